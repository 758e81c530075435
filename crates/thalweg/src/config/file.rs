//! The configuration file.

use super::{Given, Setting, Source, is_relative};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use toml::{Spanned, Value};

/// A variable of the environment, unless it is empty.
type Environment<'a> = dyn Fn(&str) -> Option<OsString> + 'a;
type Values = BTreeMap<&'static str, Given>;

/// Most bytes of a file.
const LONGEST: u64 = 64 << 10;
/// The file for all users of a host.
const OF_THE_HOST: &str = "/etc/thalweg/config.toml";

/// The files in which settings may stand, best first, and whether the user named the only one.
pub(super) fn candidates(environment: &Environment<'_>) -> (Vec<PathBuf>, bool) {
    if let Some(file) = environment("THALWEG_CONFIG") {
        return (vec![file.into()], true);
    }
    let directory = environment("XDG_CONFIG_HOME").map(PathBuf::from);
    let directory = directory.or_else(|| Some(PathBuf::from(environment("HOME")?).join(".config")));
    let own = directory.map(|directory| directory.join("thalweg/config.toml"));
    (own.into_iter().chain([PathBuf::from(OF_THE_HOST)]).collect(), false)
}

/// The values of the first file that is there, and its path.
pub(super) fn read(environment: &Environment<'_>) -> Result<Option<(PathBuf, Values)>> {
    let (files, named) = candidates(environment);
    for file in files {
        let found = text_of(&file);
        match found {
            Ok(Some(text)) => return parse(&file, &text).map(|values| Some((file, values))),
            Ok(None) if !named => {}
            Ok(None) => {
                let remedy = "write one, or unset THALWEG_CONFIG";
                return Err(Error::Configuration(format!(
                    "{}: there is no such file, or none that this user may look at: {remedy}",
                    file.display()
                )));
            }
            Err(error) => {
                return Err(Error::Configuration(format!("{}: cannot be read: {error}", file.display())));
            }
        }
    }
    Ok(None)
}

/// The text of a file; `None` if there is none, as far as this user may look.
fn text_of(file: &Path) -> io::Result<Option<String>> {
    let found = match file.metadata() {
        Ok(found) => found,
        Err(error) => {
            use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
            let absent = matches!(error.kind(), NotFound | NotADirectory | PermissionDenied);
            return if absent { Ok(None) } else { Err(error) };
        }
    };
    // A pipe would have its readers wait.
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if found.len() > LONGEST {
        return Err(io::Error::other(format!("it has {} bytes, allowed are {LONGEST}", found.len())));
    }
    std::fs::read_to_string(file).map(Some)
}

/// The values in the text of a file.
fn parse(file: &Path, text: &str) -> Result<Values> {
    let line = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
    let wrong = |at: usize, why: &dyn std::fmt::Display| {
        Error::Configuration(format!("{}:{}: {why}", file.display(), line(at)))
    };
    let table: BTreeMap<Spanned<String>, Spanned<Value>> =
        toml::from_str(text).map_err(|error| wrong(error.span().map_or(0, |span| span.start), &error.message()))?;
    let mut values = Values::new();
    for (key, value) in &table {
        let at = key.span().start;
        let name = Setting::named(key.get_ref()).map_err(|unknown| wrong(at, &unknown))?.name;
        let kinds = "a text, a whole number, true, false, or a list of texts";
        let text =
            text_in(value.get_ref()).ok_or_else(|| wrong(at, &format!("{name}: its value has to be {kinds}")))?;
        if is_relative(name, &text) {
            return Err(wrong(at, &format!("{name}: {text:?} is a relative path: write it from / on")));
        }
        values.insert(name, Given { text, source: Source::File(file.to_owned(), line(at)) });
    }
    Ok(values)
}

/// A value as it would stand in the environment.
fn text_in(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(yes) => Some(yes.to_string()),
        Value::Array(values) => {
            values.iter().map(Value::as_str).collect::<Option<Vec<_>>>().map(|texts| texts.join(","))
        }
        _ => None,
    }
}
