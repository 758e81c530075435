//! Priorities of threads, and the processor time that they get.

use crate::doctor::judge::Severity::{Fault, Note, Warning};
use crate::doctor::judge::{Finding, Kind};
use linux::probe::Facts;
use linux::probe::process::{Capability, Limit, Privilege};
use linux::probe::scheduling::{Group, Hog, Scheduling};

/// All kinds of this module.
pub(crate) const KINDS: &[&Kind] = &[
    &RUNTIME_OFF,
    &RUNTIME_SMALL,
    &RUNTIME_SHORT,
    &RUNTIME_UNLIMITED,
    &GROUP_BUDGET,
    &GROUP_QUOTA,
    &PERMISSION,
    &PRIORITY_LIMIT,
    &MEMORY_LOCK,
    &DESCRIPTORS,
    &NET_ADMIN,
    &HOG,
];

const RUNTIME_OFF: Kind = Kind {
    id: "rt-runtime-off",
    severity: Fault,
    when: "kernel.sched_rt_runtime_us is 0",
    why: "threads of real-time priority may not run at all: sched=fifo and sched=rr are refused or starve",
    fixable: true,
};
const RUNTIME_SMALL: Kind = Kind {
    id: "rt-runtime-small",
    severity: Fault,
    when: "real-time threads may run less than half of each period",
    why: "a busy thread of real-time priority is stopped for the rest of each period, longer than most deadlines",
    fixable: true,
};
const RUNTIME_SHORT: Kind = Kind {
    id: "rt-runtime-short",
    severity: Warning,
    when: "real-time threads may run less than 90 % of each period",
    why: "a busy thread of real-time priority is stopped for the rest of each period",
    fixable: true,
};
const RUNTIME_UNLIMITED: Kind = Kind {
    id: "rt-runtime-unlimited",
    severity: Note,
    when: "kernel.sched_rt_runtime_us is -1",
    why: "best for latency, but a real-time thread that never sleeps takes the whole processor for ever",
    fixable: false,
};
const GROUP_BUDGET: Kind = Kind {
    id: "rt-group-budget",
    severity: Fault,
    when: "the processor group (cgroup) of this process has no real-time budget",
    why: "sched=fifo and sched=rr are refused with EPERM in this group, whatever the user may do",
    fixable: true,
};
const GROUP_QUOTA: Kind = Kind {
    id: "group-quota",
    severity: Warning,
    when: "the processor group (cgroup) of this process has a quota of processor time",
    why: "when the quota is used up, all ordinary threads of the group stop until the next period",
    fixable: false,
};
const PERMISSION: Kind = Kind {
    id: "rt-permission",
    severity: Fault,
    when: "this user has neither CAP_SYS_NICE nor a real-time priority limit above 0",
    why: "sched=fifo, sched=rr and sched=deadline are refused: channels share the processor with everybody else",
    fixable: false,
};
const PRIORITY_LIMIT: Kind = Kind {
    id: "rt-priority-limit",
    severity: Note,
    when: "this user may have real-time priorities, but not up to 99, and no sched=deadline",
    why: "priorities above the limit are refused",
    fixable: false,
};
const MEMORY_LOCK: Kind = Kind {
    id: "memory-lock",
    severity: Warning,
    when: "less than 64 MiB may be locked, and there is no CAP_IPC_LOCK",
    why: "memory that cannot be locked may be slow to reach: a page fault on the way costs up to milliseconds",
    fixable: false,
};
const DESCRIPTORS: Kind = Kind {
    id: "descriptors",
    severity: Warning,
    when: "fewer than 1024 descriptors may be open",
    why: "a channel takes 1 to 3 descriptors; when they run out, no further channel opens",
    fixable: false,
};
const NET_ADMIN: Kind = Kind {
    id: "net-admin",
    severity: Note,
    when: "there is no CAP_NET_ADMIN",
    why: "this user cannot install queues, nor use socket priorities above 6",
    fixable: false,
};
const HOG: Kind = Kind {
    id: "hog",
    severity: Warning,
    when: "a thread of real-time priority takes 80 % of a processor or more",
    why: "what handles interrupts in threads (networking, too) waits behind it, and so does every lower priority",
    fixable: false,
};

/// Share of a processor from which a thread is a hog.
pub(crate) const HOGS_PERCENT: u32 = 80;
/// The kernel's default, per period of 1 s.
const USUAL_RUNTIME: (i64, i64) = (950_000, 1_000_000);
/// Budget of a group by `--fix`: 30 %, so that three groups fit.
const GROUP_RUNTIME: i64 = 300_000;
const LEAST_LOCKED: u64 = 64 << 20;
const LEAST_DESCRIPTORS: u64 = 1024;

/// Judges permissions, throttling and budgets.
pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let Facts { scheduling, privilege, .. } = facts;
    let group = scheduling.group.as_ref();
    let found = [runtime(scheduling), group.and_then(budget), group.and_then(quota)];
    found.into_iter().flatten().chain(privileges(privilege)).collect()
}

fn runtime(scheduling: &Scheduling) -> Option<Finding> {
    let period = scheduling.period_us.unwrap_or(USUAL_RUNTIME.1).max(1);
    let runtime = scheduling.runtime_us?;
    let kind = match runtime {
        -1 => {
            return Some(
                RUNTIME_UNLIMITED.found(NAME, -1, "950000").remedy("sysctl -w kernel.sched_rt_runtime_us=950000"),
            );
        }
        0 => &RUNTIME_OFF,
        some if some.saturating_mul(2) < period => &RUNTIME_SMALL,
        some if some.saturating_mul(10) < period.saturating_mul(9) => &RUNTIME_SHORT,
        _ => return None,
    };
    let usual = i128::from(period) * i128::from(USUAL_RUNTIME.0) / i128::from(USUAL_RUNTIME.1);
    let value = format!("{runtime} of {period} us");
    Some(kind.found(NAME, value, usual.to_string()).write(vec!["proc/sys/kernel/sched_rt_runtime_us".into()], usual))
}

const NAME: &str = "kernel.sched_rt_runtime_us";

fn budget(group: &Group) -> Option<Finding> {
    let file = format!("{}/cpu.rt_runtime_us", group.folder);
    let found = GROUP_BUDGET.found(&file, 0, "above 0");
    (group.runtime_us == Some(0)).then(|| found.write(vec![file.trim_start_matches('/').to_owned()], GROUP_RUNTIME))
}

fn quota(group: &Group) -> Option<Finding> {
    let (quota, period) = group.quota_us?;
    let value = format!("{quota} of {period} us per period, used up {} times", group.throttled);
    let remedy = format!(
        "start it outside of {}, or lift the quota there (`docker update --cpus 0`, `CPUQuota=`)",
        group.folder
    );
    Some(GROUP_QUOTA.found(format!("the processor quota of {}", group.folder), value, "none").remedy(remedy))
}

fn privileges(privilege: &Privilege) -> Vec<Finding> {
    let nice = privilege.has(Capability::SysNice);
    let lacks = |capability| privilege.has(capability) == Some(false);
    let priority = privilege.priority.filter(|_| nice == Some(false)).and_then(priority);
    let locked =
        privilege.locked.filter(|limit| lacks(Capability::IpcLock) && limit.soft < LEAST_LOCKED).map(|limit| {
            let value = format!("{} KiB", limit.soft >> 10);
            let remedy = raise(limit, LEAST_LOCKED, "ulimit -l unlimited", "memlock", "cap_ipc_lock");
            MEMORY_LOCK.found("the limit of locked memory", value, "64 MiB or more").remedy(remedy)
        });
    let few = privilege.descriptors.filter(|limit| limit.soft < LEAST_DESCRIPTORS).map(|limit| {
        let remedy = format!("ulimit -n {}", limit.hard.clamp(limit.soft, 65_536));
        DESCRIPTORS.found("the limit of open descriptors", limit.soft, "1024 or more").remedy(remedy)
    });
    let admin = lacks(Capability::NetAdmin).then(|| {
        NET_ADMIN.found("CAP_NET_ADMIN", "missing", "there for `thalweg apply`").remedy("run `thalweg apply` as root")
    });
    [priority, locked, few, admin].into_iter().flatten().collect()
}

fn priority(limit: Limit) -> Option<Finding> {
    let remedy = raise(limit, 99, "ulimit -r 99", "rtprio", "cap_sys_nice");
    match limit.soft {
        0 => Some(PERMISSION.found("the limit of real-time priorities", 0, "up to 99, or CAP_SYS_NICE").remedy(remedy)),
        1..99 => Some(PRIORITY_LIMIT.found("the limit of real-time priorities", limit.soft, "99").remedy(remedy)),
        _ => None,
    }
}

/// The remedy for a limit: the command if the user may raise it, else the permission that the user needs.
fn raise(limit: Limit, to: u64, command: &str, item: &str, capability: &str) -> String {
    if limit.hard >= to {
        return command.to_owned();
    }
    let value = if item == "rtprio" { "99" } else { "unlimited" };
    format!("sudo setcap {capability}+ep PROGRAM, or a line `@realtime - {item} {value}` in /etc/security/limits.conf")
}

/// Judges threads that take a whole processor.
pub(crate) fn hogs(hogs: &[Hog]) -> Vec<Finding> {
    let found = hogs.iter().map(|hog| {
        let what = format!("thread {} ({}), real-time priority {}", hog.tid, hog.name, hog.priority);
        let remedy = format!("find out why it never waits; until then: chrt -o -p 0 {}", hog.tid);
        HOG.found(what, format!("at {} % of a processor", hog.percent), format!("below {HOGS_PERCENT} %"))
            .remedy(remedy)
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|f| f.kind.id).collect()
    }

    #[test]
    fn throttling_is_judged_by_its_share_of_the_period() {
        let judged = |runtime_us, period_us| {
            let scheduling = Scheduling { runtime_us: Some(runtime_us), period_us: Some(period_us), group: None };
            runtime(&scheduling)
        };
        let id = |runtime_us| judged(runtime_us, 1_000_000).map(|f| f.kind.id);
        let wanted = [(0, "rt-runtime-off"), (100_000, "rt-runtime-small"), (600_000, "rt-runtime-short")];
        assert!(wanted.iter().all(|(value, name)| id(*value) == Some(name)));
        assert_eq!((id(950_000), id(1_000_000), id(-1)), (None, None, Some("rt-runtime-unlimited")));
        let short = judged(10_000, 100_000).unwrap();
        assert_eq!(short.remedy, "sysctl -w kernel.sched_rt_runtime_us=95000");
    }

    #[test]
    fn a_user_without_rights_is_told_which_one_helps() {
        let limit = |soft, hard| Some(Limit { soft, hard });
        let user = |capabilities, priority, locked| Privilege {
            capabilities: Some(capabilities),
            priority,
            locked,
            descriptors: limit(1024, 1024),
            ..Privilege::default()
        };
        let none = privileges(&user(0, limit(0, 0), limit(8 << 20, 8 << 20)));
        assert_eq!(ids(&none), ["rt-permission", "memory-lock", "net-admin"]);
        assert!(none[0].remedy.contains("setcap cap_sys_nice+ep"), "{}", none[0].remedy);
        let may_raise = privileges(&user(1 << 12, limit(0, 99), limit(u64::MAX, u64::MAX)));
        assert_eq!((ids(&may_raise), may_raise[0].remedy.as_str()), (vec!["rt-permission"], "ulimit -r 99"));
        let root = privileges(&user(u64::MAX, limit(0, 0), limit(8 << 20, 8 << 20)));
        assert_eq!(ids(&root), [""; 0]);
        assert_eq!(ids(&privileges(&user(1 << 12, limit(80, 80), limit(u64::MAX, u64::MAX)))), ["rt-priority-limit"]);
    }

    #[test]
    fn groups_without_budget_and_with_quota_are_found() {
        let group =
            Group { folder: "/sys/fs/cgroup/cpu/robot".into(), runtime_us: Some(0), quota_us: None, throttled: 0 };
        let found = budget(&group).unwrap();
        assert_eq!(found.remedy, "echo 300000 > /sys/fs/cgroup/cpu/robot/cpu.rt_runtime_us");
        let limited = Group { runtime_us: None, quota_us: Some((50_000, 100_000)), throttled: 3, ..group };
        assert_eq!(budget(&limited), None);
        assert!(quota(&limited).unwrap().value.contains("used up 3 times"));
    }
}
