//! `thalweg config`: the settings of nodes and of the command, each with its value and where that comes from.

#[cfg(feature = "sessions")]
use crate::domain::BrokerArguments;
use crate::failure::Result;
use crate::output::table;
use crate::participant::Common;
use clap::Args;
use serde::Serialize;
use thalweg::Settings;
use thalweg::config::{Configuration, SETTINGS, Setting, Source, files};

/// Show every setting: its value, where that comes from, what is allowed, what it does
///
/// A flag counts more than the environment (THALWEG_REALM for realm), that more than the file, and that more than the default.
/// The file is $THALWEG_CONFIG, else ~/.config/thalweg/config.toml, else /etc/thalweg/config.toml.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg config\n         thalweg config realm --json")]
pub(crate) struct Arguments {
    /// One setting [default: all]
    setting: Option<String>,
    #[command(flatten)]
    common: Common,
    #[cfg(feature = "sessions")]
    #[command(flatten)]
    broker: BrokerArguments,
}

/// A setting as it is now.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    /// `None`: none is given, and there is no default.
    value: Option<String>,
    origin: Origin,
    /// Flag, variable, or file and line.
    at: Option<String>,
    default: &'static str,
    unit: &'static str,
    allowed: &'static str,
    about: &'static str,
    variable: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Origin {
    Flag,
    Environment,
    File,
    Default,
}

impl Origin {
    fn of(source: &Source) -> Self {
        match source {
            Source::Flag(_) => Self::Flag,
            Source::Environment(_) => Self::Environment,
            Source::File(..) => Self::File,
        }
    }
}

/// Shows all, or one. A value that is not allowed is an error with its origin, whichever setting is asked for: no node opens with it.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let given = Configuration::read()?.overridden(arguments.stated());
    Settings::of(&given)?;
    let output = arguments.common.output();
    if let Some(name) = &arguments.setting {
        let row = Row::of(Setting::named(name)?, &given);
        return output.result(&row, || row.text());
    }
    let rows: Vec<Row> = SETTINGS.iter().map(|setting| Row::of(setting, &given)).collect();
    output.result(&rows, || format!("{}\n\n{}", text(&rows), file_text(&given)))
}

impl Arguments {
    /// What flags say.
    fn stated(&self) -> Vec<(&'static str, String)> {
        let stated = self.common.stated().into_iter();
        #[cfg(feature = "sessions")]
        let stated = stated.chain(self.broker.stated());
        stated.collect()
    }
}

impl Row {
    fn of(setting: &Setting, given: &Configuration) -> Self {
        let Setting { name, default, unit, allowed, about } = *setting;
        let (value, origin, at) = match given.get(name) {
            Some(given) => (Some(given.text.clone()), Origin::of(&given.source), Some(given.source.to_string())),
            None => (by_default(setting), Origin::Default, None),
        };
        Self { name, value, origin, at, default, unit, allowed, about, variable: setting.variable() }
    }

    fn shown(&self) -> &str {
        self.value.as_deref().unwrap_or("-")
    }

    /// Where the value comes from, in words.
    fn source(&self) -> String {
        match (self.origin, &self.at) {
            (Origin::Flag, Some(at)) => format!("flag {at}"),
            (Origin::Environment, Some(at)) => format!("environment {at}"),
            (Origin::File, Some(at)) => format!("file {at}"),
            _ => "default".to_owned(),
        }
    }

    fn text(&self) -> String {
        let source = self.source();
        let lines = [
            ("value", self.shown()),
            ("origin", source.as_str()),
            ("default", self.default),
            ("unit", self.unit),
            ("allowed", self.allowed),
            ("variable", self.variable.as_str()),
        ];
        let shown = lines.iter().filter(|(_, value)| !value.is_empty());
        let lines: String = shown.map(|(name, value)| format!("\n  {name:<8}  {value}")).collect();
        format!("{}: {}{lines}", self.name, self.about)
    }
}

/// The value that is not stated anywhere.
fn by_default(setting: &Setting) -> Option<String> {
    match (setting.name, setting.default) {
        ("run-dir", _) => Some(thalweg::control::run_dir().0.display().to_string()),
        ("user", _) => Some(std::env::var("USER").unwrap_or_else(|_| "root".to_owned())),
        (_, "none") => None,
        (_, value) => Some(value.to_owned()),
    }
}

fn text(rows: &[Row]) -> String {
    let headers = [("setting", '<'), ("value", '<'), ("origin", '<'), ("unit", '<'), ("allowed", '<'), ("effect", '<')];
    let cells = |row: &Row| {
        let known = [row.unit, row.allowed, row.about].map(str::to_owned);
        [vec![row.name.to_owned(), row.shown().to_owned(), row.source()], known.to_vec()].concat()
    };
    table(&headers, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// The file that was read, or the places where one may be.
fn file_text(given: &Configuration) -> String {
    match &given.file {
        Some(file) => format!("file: {}", file.display()),
        None => {
            let places: Vec<_> = files().iter().map(|file| file.display().to_string()).collect();
            format!("file: none; it may be $THALWEG_CONFIG, {}", places.join(" or "))
        }
    }
}
