//! Processes of an experiment: the program itself, started again in a host's namespace, controlled by lines of JSON.
//!
//! The first line says which role it plays, where and on which processors; the rest is between the experiment and the
//! role. Standard input is its life line: when that ends, so does the part. To add a role: a function that takes
//! [`Orders`], and its line in [`crate::run::ROLES`].

pub mod flow;
pub mod hog;
pub mod member;
pub mod node;
mod process;
pub mod pull;
pub mod stages;
pub mod stream;

pub use process::{Orders, Part, Place};

use crate::error::{Error, Result};
use std::io::Write;
use std::time::Duration;

/// Longest wait of an experiment for a part.
pub const LONG: Duration = Duration::from_secs(40);

/// A role: takes its settings and orders, and ends when they do.
pub type Role = fn(Orders) -> Result;

/// The roles of this room.
pub const ROLES: &[(&str, Role)] = &[
    (hog::ROLE, hog::hog),
    ("relay", node::relay),
    ("member", member::member),
    ("publisher", stream::publisher),
    ("subscriber", stream::subscriber),
    ("keeper", pull::keeper),
    ("puller", pull::puller),
    ("echo", echo),
];

/// Plays the part that standard input asks for, one of these roles.
pub(crate) fn play(roles: &[&[(&str, Role)]]) -> Result {
    let (place, role, orders) = process::listen()?;
    let played = enter(&place).and_then(|()| find(roles, &role)?(orders));
    if let Err(error) = &played {
        process::say_failed(error);
    }
    played
}

/// Prints an error of a thread that is not waited for.
pub(crate) fn tell(error: &Error) {
    let _ = writeln!(std::io::stderr().lock(), "{error}");
}

fn find(roles: &[&[(&str, Role)]], name: &str) -> Result<Role> {
    let found = roles.iter().copied().flatten().find(|(role, _)| *role == name).map(|(_, play)| *play);
    found.ok_or_else(|| Error::Usage(format!("role {name:?} is none of the lab's")))
}

/// Before any other thread is started, so that all are where the first one is.
fn enter(place: &Place) -> Result {
    if let Some(namespace) = &place.namespace {
        linux::namespace::Namespace::named(namespace)
            .and_then(|namespace| namespace.enter())
            .map_err(|e| Error::system(&format!("namespace {namespace}"), &e, "run it as root"))?;
    }
    if !place.processors.is_empty() {
        linux::thread::pin(&place.processors)
            .map_err(|e| Error::system(&format!("processors {:?}", place.processors), &e, "name others"))?;
    }
    if place.nice != 0 {
        rustix::process::setpriority_process(None, place.nice)
            .map_err(|e| Error::system(&format!("nice {}", place.nice), &e.into(), "run it as root"))?;
    }
    Ok(())
}

/// The smallest role: repeats its settings and orders.
fn echo(mut orders: Orders) -> Result {
    orders.say(&orders.settings::<serde_json::Value>()?)?;
    while let Some(order) = orders.wait::<serde_json::Value>()? {
        orders.say(&order)?;
    }
    Ok(())
}
