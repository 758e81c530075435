//! `thalweg keys`: the certificate authority of a realm, and certificates for its users, hosts, brokers and nodes.

use crate::failure::{Failure, Result};
use crate::output::Output;
use agent::identity::Kind;
use agent::keys::{self, DAYS, KeyError, Keys, MOST_DAYS, Shown};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Make the keys of a realm: its authority, and certificates for users, hosts, brokers and nodes
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg keys init robot keys\n         thalweg keys issue broker base --dir keys\n         thalweg keys issue host arm --dir keys --out for-the-arm\n\nA host needs realm.pem and its own two files. realm.key stays where keys are issued."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make the authority of a new realm
    Init {
        /// Name of the realm
        realm: String,
        /// Directory of its files
        dir: PathBuf,
    },
    /// Issue the certificate and private key of a party
    Issue {
        /// user | host | broker | node
        kind: Kind,
        /// The party's name; of a host, that of its node in the contract
        name: String,
        /// Directory of the realm's files
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Directory for the party's files [default: that of the realm]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Days for which the certificate is valid
        #[arg(long, value_name = "N", default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_DAYS)))]
        days: u32,
    },
    /// Show a certificate
    Show {
        /// A file that ends in .pem
        file: PathBuf,
    },
}

/// Makes or shows keys.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let output = Output { json: arguments.json };
    let made = |file: PathBuf| output.result(&json!({ "certificate": file }), || format!("{}", file.display()));
    match &arguments.verb {
        Verb::Init { realm, dir } => made(keys::init(realm, dir).map_err(failure)?),
        Verb::Issue { kind, name, dir, out, days } => {
            made(keys::issue(dir, *kind, name, *days, out.as_ref().unwrap_or(dir)).map_err(failure)?)
        }
        Verb::Show { file } => {
            let shown = keys::show(file).map_err(failure)?;
            output.result(&shown, || text(&shown))
        }
    }
}

fn text(Shown { of, issuer, valid: [first, last], authority }: &Shown) -> String {
    let kind = if *authority { "realm " } else { "" };
    format!("{kind}{of}, issued by realm {issuer}, valid from {first} to {last}")
}

/// The keys of a party that a command needs.
pub(crate) fn read(dir: &Path, kind: Kind, name: &str) -> Result<Keys> {
    Keys::read(dir, kind, name).map_err(failure)
}

fn failure(error: KeyError) -> Failure {
    Failure::Usage(error.to_string())
}
