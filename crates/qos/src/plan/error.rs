//! Errors of plan files and of changes to contracts.

use crate::contract::ContractError;
use std::fmt;

/// A plan file that cannot be read, a plan that belongs to another contract, or a change that a contract cannot take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The contract cannot be read.
    Contract(ContractError),
    /// The contract cannot be read with the changes made in it.
    Changed(ContractError),
    /// The plan file cannot be read.
    File {
        /// The line, counted from 1.
        line: usize,
        /// The error there.
        problem: String,
    },
    /// The plan was made of another contract.
    OtherContract {
        /// Hash of the plan's contract.
        planned: String,
        /// Hash of the contract at hand.
        given: String,
    },
    /// A change of a table that the contract does not have.
    Missing {
        /// The kind of table, such as `topic`.
        table: String,
        /// Its name.
        name: String,
    },
    /// A change of a table that is written in another form of TOML.
    Layout {
        /// The kind of table.
        table: String,
        /// The form that can be changed.
        form: &'static str,
    },
    /// A change to text that is no TOML value.
    Value {
        /// The key.
        key: String,
        /// The text.
        value: String,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contract(error) => error.fmt(f),
            Self::Changed(error) => write!(f, "with the changes, line {error}"),
            Self::File { line, problem } => write!(f, "{line}: {problem}; allowed is what `thalweg plan -o` writes"),
            Self::OtherContract { planned, given } => {
                write!(f, "1: the plan is of contract {planned}, this is {given}: plan anew")
            }
            Self::Missing { table, name } => write!(f, "the contract has no {table} {name}"),
            Self::Layout { table, form } => write!(f, "{table} is not written as {form}: change it by hand"),
            Self::Value { key, value } => write!(f, "{key} = {value} is no value"),
        }
    }
}

impl std::error::Error for PlanError {}

/// Text that names no delay model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError;

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "allowed is {}", super::Model::ALL.map(super::Model::name).join(", "))
    }
}

impl std::error::Error for ModelError {}
