//! Requests that only this process's own user and root may make. All users of a shared run directory may administer its nodes. However, no
//! user may have another user's process do what the user itself may not: a node of root runs at `fifo:99`, while its caller could not.
//!
//! These requests are for scheduling, processors, and socket priorities above 6. For these, the kernel requires a capability or the
//! process's own user. All other settings a user can as well reach by ports of its own.

use super::control::Control;
use super::permit::Caller;
use crate::admin::Request;
use crate::control::Origin;
use qos::priority::{Change, Changes, PrioritySettings};

/// Highest socket priority for which the kernel requires no capability.
const MOST_SOCKET_PRIORITY: u32 = 6;

/// The part of a change that takes a privilege; `None`: no part does.
fn of_changes(changes: &Changes) -> Option<String> {
    if !changes.sched.is_keep() {
        let to = if let Change::Set(sched) = changes.sched { sched.to_string() } else { "default".to_owned() };
        return Some(format!("scheduling (sched={to})"));
    }
    if !changes.affinity.is_keep() {
        return Some("processors (affinity=)".to_owned());
    }
    match changes.socket_priority {
        Change::Set(priority) if priority > MOST_SOCKET_PRIORITY => Some(format!("socket priority {priority}")),
        _ => None,
    }
}

/// The same for settings that are to be kept.
fn of_settings(settings: &PrioritySettings) -> Option<String> {
    fn set<T: Clone>(value: &Option<T>) -> Change<T> {
        value.clone().map_or(Change::Keep, Change::Set)
    }
    let PrioritySettings { socket_priority, sched, affinity, .. } = settings;
    let (socket_priority, sched, affinity) = (set(socket_priority), set(sched), set(affinity));
    of_changes(&Changes { socket_priority, sched, affinity, ..Changes::default() })
}

/// The settings, with those that take a privilege as they were `before`.
pub(super) fn without(settings: PrioritySettings, before: Option<&PrioritySettings>) -> PrioritySettings {
    let high = |priority: &u32| *priority > MOST_SOCKET_PRIORITY;
    let before = before.cloned().unwrap_or_default();
    PrioritySettings {
        sched: before.sched,
        affinity: before.affinity,
        socket_priority: before.socket_priority.filter(high).or(settings.socket_priority.filter(|p| !high(p))),
        ..settings
    }
}

/// The settings that a user's file may set for this process's ends. A directory's owner who is not root can have a process of root do no
/// more by a file there than by the socket.
pub(super) fn of_user(user: u32, settings: PrioritySettings) -> PrioritySettings {
    if is_ours(user) { settings } else { without(settings, None) }
}

pub(super) fn is_ours(user: u32) -> bool {
    user == 0 || user == own_user()
}

impl Control {
    /// A request without the parts that this caller may not ask of this process.
    ///
    /// # Errors
    /// The reason why the request is not carried out at all. Settings that nodes send each other to remember are accepted, but without
    /// those that take a privilege: otherwise these would come back as this node's own when the other node starts anew.
    pub(super) fn permitted(&self, request: Request, caller: Caller) -> Result<Request, String> {
        let Some(who) = unprivileged(caller) else { return Ok(request) };
        let what = match &request {
            Request::Set { changes, .. } => of_changes(changes),
            Request::Keep { priority, .. } => of_settings(priority),
            Request::Remember { .. } => return Ok(self.without_privilege(request)),
            _ => None,
        };
        let Some(what) = what else { return Ok(request) };
        let (name, own) = (&self.state.settings.name, own_user());
        let by = if own == 0 { "user 0".to_owned() } else { format!("user {own} or root") };
        Err(format!(
            "node {name} is user {own}'s and takes {what} from that user and root only, not from {who}: say it as {by}"
        ))
    }

    fn without_privilege(&self, request: Request) -> Request {
        let Request::Remember { port, other, settings } = request else { return request };
        let settings = without(settings, self.priorities.remembered(&port, &other));
        Request::Remember { port, other, settings }
    }
}

/// `true` if this caller may ask for settings that take a privilege.
pub(super) fn may_all(caller: Caller) -> bool {
    unprivileged(caller).is_none()
}

/// The name of a caller that is neither this process's user nor root. A caller of another host that an administrator has let in may do all.
fn unprivileged(caller: Caller) -> Option<String> {
    match caller.origin {
        Origin::Own => None,
        Origin::Host { user } if is_ours(user) => None,
        Origin::Host { user } => Some(format!("user {user}")),
        Origin::Tcp { here: true, user: Some(user), .. } if is_ours(user) => None,
        Origin::Tcp { here: true, user: Some(user), .. } => Some(format!("user {user}")),
        Origin::Tcp { from, here: true, user: None } => {
            Some(format!("{from}, an address of this host whose user is unknown (the node's unix socket tells it)"))
        }
        Origin::Tcp { here: false, .. } | Origin::Zenoh => None,
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_take_a_privilege_are_told_from_others() {
        let what = |text: &str| of_changes(&text.parse().unwrap());
        for free in ["class=critical", "dscp=EF", "tos=184", "priority=6", "priority=default", "pace=1Mbit/s"] {
            assert_eq!(what(free), None, "{free}");
        }
        let privileged = [
            ("sched=fifo:30 class=high", "scheduling (sched=fifo:30)"),
            ("sched=default", "scheduling (sched=default)"),
            ("affinity=1", "processors (affinity=)"),
            ("affinity=default", "processors (affinity=)"),
            ("class=high priority=7", "socket priority 7"),
        ];
        for (text, named) in privileged {
            assert_eq!(what(text).as_deref(), Some(named), "{text}");
        }
    }

    #[test]
    fn settings_remembered_for_another_user_leave_privileged_ones_as_they_were() {
        let settings = |text: &str| {
            let mut settings = PrioritySettings::default();
            text.parse::<Changes>().unwrap().apply(&mut settings);
            settings
        };
        let before = settings("class=low sched=fifo:30 priority=9");
        let said = settings("class=high sched=fifo:99 affinity=0 priority=12");
        assert_eq!(without(said.clone(), None), settings("class=high"));
        assert_eq!(without(said, Some(&before)), settings("class=high sched=fifo:30 priority=9"));
        assert_eq!(without(settings(""), Some(&before)), settings("sched=fifo:30 priority=9"));
        assert_eq!(without(settings("priority=3"), Some(&settings("priority=2"))), settings("priority=3"));
        let kept = settings("class=high sched=fifo:99 priority=12");
        assert_eq!(of_user(own_user() + 7, kept.clone()), settings("class=high"), "the directory's owner's file");
        assert_eq!((of_user(0, kept.clone()), of_user(own_user(), kept.clone())), (kept.clone(), kept));
        assert_eq!(of_settings(&settings("class=high priority=6")), None);
        assert_eq!(of_settings(&settings("affinity=0")).as_deref(), Some("processors (affinity=)"));
    }

    #[test]
    fn another_user_and_an_unknown_one_of_this_host_are_named() {
        let of = |origin| unprivileged(Caller { node: None, origin });
        let own = own_user();
        let by = |here, user| Origin::Tcp { from: [10, 0, 0, 7].into(), here, user };
        let at = |here| by(here, None);
        for may in [Origin::Own, Origin::Host { user: own }, Origin::Host { user: 0 }, at(false), by(true, Some(own))] {
            assert_eq!(of(may), None, "{may:?}");
        }
        assert_eq!(of(Origin::Host { user: own + 7 }), Some(format!("user {}", own + 7)));
        assert_eq!(of(by(true, Some(own + 7))), Some(format!("user {}", own + 7)));
        assert!(of(at(true)).unwrap().contains("10.0.0.7, an address of this host"));
    }
}
