//! Nodes whose addresses stand in a file.
//!
//! ```toml
//! [[node]]
//! address = "10.0.0.1:7400"
//! name = "arm"          # optional, for people
//! ```

use super::links::Source;
use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Most nodes of a file.
pub const MOST_NODES: usize = super::limits::MOST_NODES;

/// An error in a file of addresses: its place, the text there, and the allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticFileError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, where known.
    pub line: Option<usize>,
    /// Key, value and the allowed values.
    pub problem: String,
}

impl fmt::Display for StaticFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.problem)
    }
}

impl std::error::Error for StaticFileError {}

/// A node as the file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticNode {
    /// The address on which it listens.
    pub address: SocketAddr,
    /// Its name, for people.
    pub name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    node: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    address: Spanned<String>,
    name: Option<String>,
}

/// Reads a file of addresses. The reader's own address may be among them.
///
/// # Errors
/// [`StaticFileError`] with file, line, key, value and the allowed values.
pub fn read(file: &Path) -> Result<Vec<StaticNode>, StaticFileError> {
    let failed = |e| StaticFileError { file: file.to_owned(), line: None, problem: format!("cannot be read: {e}") };
    parse(file, &std::fs::read_to_string(file).map_err(failed)?)
}

/// As [`read`], from the text of `file`.
///
/// # Errors
/// As [`read`].
pub fn parse(file: &Path, text: &str) -> Result<Vec<StaticNode>, StaticFileError> {
    let error = |at: Option<usize>, problem: String| {
        let line = at.map(|at| text.get(..at).unwrap_or(text).matches('\n').count() + 1);
        StaticFileError { file: file.to_owned(), line, problem }
    };
    let parsed: File = toml::from_str(text).map_err(|e| {
        let allowed = "allowed are [[node]] tables with address = \"IP:PORT\" and name = \"text\"";
        error(e.span().map(|s| s.start), format!("{}; {allowed}", e.message()))
    })?;
    if parsed.node.len() > MOST_NODES {
        return Err(error(None, format!("{} nodes, allowed are {MOST_NODES}", parsed.node.len())));
    }
    let node = |entry: Entry| match entry.address.get_ref().parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 && !address.ip().is_unspecified() => {
            Ok(StaticNode { address, name: entry.name })
        }
        _ => Err(error(Some(entry.address.span().start), bad_address(entry.address.get_ref()))),
    };
    parsed.node.into_iter().map(node).collect()
}

fn bad_address(value: &str) -> String {
    format!("address = {value:?}; allowed is an IP address and a port, such as \"10.0.0.1:7400\" or \"[fd00::1]:7400\"")
}

/// The addresses as a source for control links.
pub fn source(nodes: &[StaticNode]) -> Source {
    Source::Addresses(nodes.iter().map(|n| n.address).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(Path::new("nodes.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn addresses_and_names_are_read() {
        let text = "[[node]]\naddress = \"10.0.0.1:7400\"\nname = \"arm\"\n[[node]]\naddress = \"[fd00::1]:7400\"\n";
        let nodes = parse(Path::new("nodes.toml"), text).unwrap();
        assert_eq!(nodes[0], StaticNode { address: ([10, 0, 0, 1], 7400).into(), name: Some("arm".into()) });
        assert!(nodes[1].address.is_ipv6() && nodes[1].name.is_none());
        assert!(parse(Path::new("nodes.toml"), "").unwrap().is_empty());
    }

    #[test]
    fn an_error_names_file_line_key_value_and_what_is_allowed() {
        for bad in ["arm:7400", "10.0.0.1", "10.0.0.1:0", "0.0.0.0:7400", "10.0.0.1:70000"] {
            let text = format!("# list\n[[node]]\naddress = \"{bad}\"\n");
            let said = refused(&text);
            assert!(
                said.starts_with(&format!("nodes.toml:3: address = \"{bad}\"; allowed is an IP address")),
                "{said}"
            );
        }
        assert!(refused("[[node]]\nname = \"x\"\n").contains("address"));
        let unknown = refused("[[node]]\naddress = \"10.0.0.1:1\"\nport = 3\n");
        assert!(unknown.starts_with("nodes.toml:3:") && unknown.contains("port"), "{unknown}");
        assert!(refused("[[node]]\naddress = 5\n").starts_with("nodes.toml:2:"));
        assert!(refused("nonsense").contains("allowed are [[node]] tables"));
        let missing = read(Path::new("no-such-file.toml")).unwrap_err().to_string();
        assert!(missing.starts_with("no-such-file.toml: cannot be read"), "{missing}");
    }
}
