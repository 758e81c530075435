//! Settings of the kernel (sysctl) in the network namespace of the calling thread, which ends need, and their former values.

use super::{Tunnel, labels};
use crate::queueing::{QueueError, Reason};
use qos::system::TunnelKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// A setting, and the least value that an end needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Least {
    /// Its name, below `/proc/sys`.
    pub(super) name: String,
    pub(super) value: u32,
}

/// A setting that we raise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Raised {
    pub(super) name: String,
    before: u32,
    ours: u32,
}

impl Least {
    pub(super) fn command(&self) -> String {
        format!("sysctl -w {}={}", self.name, self.value)
    }

    /// Raises it to this value; `true` if it was below.
    pub(super) fn ensure(&self) -> Result<bool, QueueError> {
        let below = read(&self.name).map_err(|error| self.refused(error))? < self.value;
        if below {
            write(&self.name, self.value).map_err(|error| self.refused(error))?;
        }
        Ok(below)
    }

    fn refused(&self, error: io::Error) -> QueueError {
        let what = self.command();
        match error.kind() {
            io::ErrorKind::NotFound => {
                QueueError { what, reason: Reason::MissingFeature, remedy: labels::LACKS.to_owned() }
            }
            _ => refused(what, error),
        }
    }
}

/// What these tunnels need.
fn needed(tunnels: &[Tunnel]) -> BTreeMap<String, u32> {
    let mut needed = BTreeMap::new();
    for Least { name, value } in tunnels.iter().filter(|one| one.kind == TunnelKind::Mpls).flat_map(labels::settings) {
        let most = needed.entry(name).or_insert(0);
        *most = value.max(*most);
    }
    needed
}

/// The settings that are raised once these tunnels are made, beside those that are raised already.
pub(super) fn raised(known: &[Raised], wanted: &[Tunnel]) -> Vec<Raised> {
    let mut all = known.to_vec();
    for (name, value) in needed(wanted) {
        // What the kernel begins with once its module is loaded.
        let now = read(&name).unwrap_or(0);
        match all.iter_mut().find(|one| one.name == name) {
            _ if now >= value => {}
            Some(one) => one.ours = value,
            None => all.push(Raised { name, before: now, ours: value }),
        }
    }
    all
}

/// Those that these tunnels need, and the others.
pub(super) fn divided(all: &[Raised], tunnels: &[Tunnel]) -> (Vec<Raised>, Vec<Raised>) {
    let needed = needed(tunnels);
    all.iter().cloned().partition(|one| needed.contains_key(&one.name))
}

/// Gives settings their former values, where they still have ours: nobody else has set them since.
pub(super) fn put_back(all: &[Raised]) -> Result<(), QueueError> {
    for Raised { name, before, ours } in all {
        if read(name).is_ok_and(|now| now == *ours && now != *before) {
            write(name, *before).map_err(|error| refused(format!("sysctl -w {name}={before}"), error))?;
        }
    }
    Ok(())
}

/// Takes back what was raised since.
pub(super) fn undo(before: &[Raised], since: &[Raised]) -> Result<(), QueueError> {
    let back = |one: &Raised| match before.iter().find(|former| former.name == one.name) {
        Some(former) => Raised { before: former.ours, ..one.clone() },
        None => one.clone(),
    };
    put_back(&since.iter().map(back).collect::<Vec<_>>())
}

fn refused(what: String, error: io::Error) -> QueueError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            QueueError { what, reason: Reason::MissingCapability("CAP_NET_ADMIN"), remedy: "run as root".to_owned() }
        }
        _ => QueueError { what, reason: Reason::Other(error), remedy: "is /proc/sys writable?".to_owned() },
    }
}

fn path(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name)
}

fn read(name: &str) -> io::Result<u32> {
    std::fs::read_to_string(path(name))?.trim().parse().map_err(io::Error::other)
}

fn write(name: &str, value: u32) -> io::Result<()> {
    std::fs::write(path(name), value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(id: u32, device: &str) -> Tunnel {
        Tunnel {
            kind: TunnelKind::Mpls,
            device: device.into(),
            id,
            port: 4789,
            local: "10.97.1.2".parse().unwrap(),
            remote: "10.97.1.1".parse().unwrap(),
            mtu: 1496,
            inside: None,
        }
    }

    /// No device has these names, so no file is read: all begin with 0.
    #[test]
    fn a_setting_is_raised_for_the_largest_label_and_kept_while_one_needs_it() {
        let (one, two) = (end(100, "no-device1"), end(200, "no-device2"));
        let found = raised(&[], &[one.clone(), two.clone()]);
        let input = |found: &[Raised], device: &str| found.iter().filter(|one| one.name.contains(device)).count();
        assert_eq!([input(&found, "no-device1"), input(&found, "no-device2")], [1, 1]);
        let mut needed = needed(&[two.clone(), one.clone()]);
        assert_eq!(needed.remove("net/mpls/platform_labels"), Some(201));
        let (kept, gone) = divided(&found, &[one]);
        assert_eq!([input(&kept, "no-device1"), input(&gone, "no-device2")], [1, 1]);
        assert_eq!(raised(&found, &[two]), found, "what is raised already has its former value");
        put_back(&gone).unwrap(); // of a device that is gone there is nothing to put back
    }
}
