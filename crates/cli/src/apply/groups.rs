//! Limits of control groups: their table in a host file, and what was set and taken back.

use super::host_file::{Text, Wrong, wrong};
use crate::failure::Failure;
use linux::cgroup::{CgroupError, Limit, Outcome, PERIOD_US, Setting};
use serde::Deserialize;
use std::ops::Range;
use std::path::PathBuf;

/// A `[[cgroup]]` table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupEntry {
    /// The group's path below the mount.
    pub name: Text,
    quota: Option<Text>,
    cpus: Option<Text>,
}

impl GroupEntry {
    /// Its limits.
    pub(super) fn read(&self, at: &Range<usize>) -> Result<Limit, Wrong> {
        let group = self.name.get_ref();
        // Not the root, which has no limits, and nothing outside the mount.
        if group.is_empty() || group.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return wrong(&self.name, "name", "a group's path below the mount, such as system.slice");
        }
        if self.quota.is_none() && self.cpus.is_none() {
            return Err((at.clone(), "a group without quota and cpus".to_owned()));
        }
        let quota_us = self.quota.as_ref().map(quota).transpose()?;
        let cpus = self.cpus.as_ref().map(cpus).transpose()?;
        Ok(Limit { group: group.clone(), quota_us, cpus })
    }
}

/// The kernel's least quota is a millisecond.
fn quota(text: &Text) -> Result<u64, Wrong> {
    let number = text.get_ref().trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match number.filter(|percent| (1.0..=MOST).contains(percent)) {
        Some(percent) => Ok((percent / 100.0 * PERIOD_US as f64) as u64),
        None => wrong(text, "quota", "1 % and more, of one processor: 150 % are one and a half"),
    }
}

fn cpus(text: &Text) -> Result<String, Wrong> {
    let list = text.get_ref().trim();
    let number = |number: &str| number.parse::<u16>().is_ok();
    let part = |part: &str| part.split_once('-').map_or_else(|| number(part), |(from, to)| number(from) && number(to));
    match list.split(',').all(part) {
        true => Ok(list.to_owned()),
        false => wrong(text, "cpus", "processors by number, such as 0-1,3"),
    }
}

/// Most percent: 4096 processors.
const MOST: f64 = 409_600.0;

pub(super) fn failure(error: CgroupError) -> Failure {
    Failure::System(error.to_string())
}

/// The limits as the kernel has them, for people.
pub(super) fn limits_text(settings: &[Setting]) -> String {
    let line = |Setting { file, text }: &Setting| format!("{}: {text}", file.display());
    settings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// One line for a file after `restore`.
pub(super) fn restored_text((file, outcome): &(PathBuf, Outcome)) -> String {
    let file = file.display();
    match outcome {
        Outcome::AsBefore => format!("{file}: as before"),
        Outcome::Gone => format!("{file}: the group is gone, and its limits with it"),
        Outcome::Stuck(why) => format!("{file}: not as before: {why}"),
    }
}
