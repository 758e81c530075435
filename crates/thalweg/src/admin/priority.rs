//! The groups of `prop set /name (process …) (sched …) (qos …)`: threads and packets in YARP's words (YS-10…YS-12).

use crate::bottle::{Property, Value, properties};
use qos::priority::{Change, Changes, Policy, PolicyName, Scheduling};

/// The changes of one `prop set`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Priority {
    /// All threads of the process, if the name is the port's own.
    pub process: Option<Thread>,
    /// The thread that serves the connection.
    pub sched: Option<Thread>,
    /// Packets: mark and socket priority.
    pub qos: Option<Changes>,
}

/// Changes of a thread's scheduling. Missing parts stay.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Thread {
    policy: Option<PolicyName>,
    priority: Option<i64>,
    nice: Option<i64>,
    /// The scheduling as a whole, where it was written as such: `(deadline 1ms/10ms)`.
    whole: Option<Scheduling>,
    affinity: Change<Vec<u16>>,
}

const POLICIES: &str = "SCHED_OTHER (0), SCHED_FIFO (1), SCHED_RR (2) or SCHED_DEADLINE (6)";
const PRIORITIES: &str = "1 to 99 for SCHED_FIFO and SCHED_RR, 0 for SCHED_OTHER, -1 for back to the default";
const GROUPS: &str =
    "(process ((priority N) (policy P))), (sched ((priority N) (policy P))) and (qos ((priority HIGH)))";

impl Priority {
    /// Reads the groups; `None` if there are none: then a value to be stored follows.
    ///
    /// # Errors
    /// A key or value that is not allowed, with the allowed ones.
    pub(crate) fn read(groups: &[Value]) -> Result<Option<Self>, String> {
        let known = |v: &Value| v.group().is_some_and(|(name, _)| ["process", "sched", "qos"].contains(&name));
        if !groups.iter().any(known) {
            return Ok(None);
        }
        let mut priority = Self::default();
        for value in groups {
            let Some((name, rest)) = value.group() else { return Err(format!("{value}: the groups are {GROUPS}")) };
            let properties = properties(rest)?;
            match name {
                "process" => priority.process = Some(Thread::read("process", &properties)?),
                "sched" => priority.sched = Some(Thread::read("sched", &properties)?),
                "qos" => priority.qos = Some(marks(&properties)?),
                _ => return Err(format!("({name} …): the groups are {GROUPS}")),
            }
        }
        Ok(Some(priority))
    }

    /// The changes to a connection whose thread was asked to be scheduled like `now`.
    ///
    /// # Errors
    /// A priority that does not fit the policy.
    pub(crate) fn changes(&self, now: Option<Scheduling>) -> Result<Changes, String> {
        let mut changes = self.qos.clone().unwrap_or_default();
        if let Some(thread) = &self.sched {
            changes.sched = thread.scheduling(now)?;
            changes.affinity = thread.affinity.clone();
        }
        Ok(changes)
    }
}

impl Thread {
    fn read(group: &str, given: &[Property]) -> Result<Self, String> {
        let mut thread = Self::default();
        let mut reservation = [None, None, None];
        let (mut deadline, mut unstated) = (false, false);
        for (key, value) in given {
            match key.as_str() {
                "priority" => thread.priority = Some(whole(value).ok_or_else(|| wrong("priority", value, PRIORITIES))?),
                "policy" if is_deadline(value) => deadline = true,
                "policy" if whole(value) == Some(-1) => unstated = true,
                "policy" => thread.policy = Some(policy(value)?),
                "nice" => thread.nice = Some(whole(value).ok_or_else(|| wrong("nice", value, "-20 to 19"))?),
                "affinity" => thread.affinity = processors(value)?,
                "runtime" => reservation[0] = Some(time(value)),
                "deadline" => reservation[1] = Some(time(value)),
                "period" => reservation[2] = Some(time(value)),
                _ => return Err(format!("({key} …) in ({group} …): allowed is {THREAD_KEYS}")),
            }
        }
        if unstated && thread.priority == Some(-1) {
            thread.priority = None; // so setConnectionQos says that it sets no thread (YS-54)
        }
        if deadline || reservation.iter().any(Option::is_some) {
            thread.whole = Some(reserved(reservation)?);
        }
        if given.is_empty() {
            return Err(format!("({group}) is empty: it has {THREAD_KEYS}"));
        }
        Ok(thread)
    }

    /// The change of a thread that is now scheduled like `now`.
    ///
    /// # Errors
    /// A priority that does not fit the policy.
    pub(crate) fn scheduling(&self, now: Option<Scheduling>) -> Result<Change<Scheduling>, String> {
        if let Some(whole) = self.whole {
            return Ok(Change::Set(whole));
        }
        if self.priority == Some(-1) {
            return Ok(Change::Unset); // YS-12
        }
        if self.policy.is_none() && self.priority.is_none() && self.nice.is_none() {
            return Ok(Change::Keep);
        }
        let now = now.unwrap_or_default();
        let present = match now.policy {
            Policy::Fifo(_) => PolicyName::Fifo,
            Policy::RoundRobin(_) => PolicyName::RoundRobin,
            Policy::Other | Policy::Deadline { .. } => PolicyName::Other,
        };
        let chosen = self.policy.unwrap_or(present);
        let left = if chosen == PolicyName::Other { 0 } else { i64::from(now.policy.priority()) };
        let mut found = chosen.with(self.priority.unwrap_or(left)).map_err(|e| match self.policy {
            None => format!("{e}; say (policy SCHED_FIFO), too"),
            Some(_) => e.to_string(),
        })?;
        if chosen == PolicyName::Other {
            let nice = self.nice.unwrap_or(i64::from(now.nice));
            let fits = i8::try_from(nice).ok().filter(|nice| (-20..=19).contains(nice));
            found.nice = fits.ok_or_else(|| wrong("nice", &Value::Int(nice), "-20 to 19"))?;
        }
        Ok(Change::Set(found))
    }

    /// The change of its processors.
    pub(crate) fn affinity(&self) -> &Change<Vec<u16>> {
        &self.affinity
    }
}

const THREAD_KEYS: &str = "(policy P), (priority N), (nice N), (affinity CPU …), and for SCHED_DEADLINE (runtime T), \
                           (deadline T) and (period T)";

fn wrong(what: &str, value: &Value, allowed: &str) -> String {
    format!("{what} {value}: allowed is {allowed}")
}

/// A whole number, also where it was quoted.
fn whole(value: &Value) -> Option<i64> {
    value.int().or_else(|| value.word().and_then(|word| word.trim().parse().ok()))
}

fn is_deadline(value: &Value) -> bool {
    let named = |word: &str| ["deadline", "sched_deadline"].iter().any(|name| name.eq_ignore_ascii_case(word));
    value.int() == Some(6) || value.word().is_some_and(named)
}

fn policy(value: &Value) -> Result<PolicyName, String> {
    plain(value).parse().map_err(|_| wrong("policy", value, POLICIES))
}

/// A time as written with its unit, or in nanoseconds.
fn time(value: &Value) -> String {
    value.int().map_or_else(|| value.word().unwrap_or_default().to_owned(), |ns| format!("{ns}ns"))
}

fn reserved([runtime, deadline, period]: [Option<String>; 3]) -> Result<Scheduling, String> {
    let runtime =
        runtime.ok_or("SCHED_DEADLINE needs (runtime T) and (period T), such as (runtime 1ms) (period 10ms)")?;
    let period = period.ok_or("SCHED_DEADLINE needs (period T), such as (period 10ms)")?;
    let deadline = deadline.unwrap_or_else(|| period.clone());
    format!("deadline:{runtime}/{deadline}/{period}").parse().map_err(|e: qos::priority::PriorityError| e.to_string())
}

fn processors(value: &Value) -> Result<Change<Vec<u16>>, String> {
    let text = match value {
        Value::List(numbers) => numbers.iter().map(plain).collect::<Vec<_>>().join(","),
        one => plain(one),
    };
    word("affinity", &if text == "-1" { "default".to_owned() } else { text }).map(|changes| changes.affinity)
}

fn plain(value: &Value) -> String {
    value.word().map_or_else(|| value.to_string(), str::to_owned)
}

/// One `NAME=VALUE` of `thalweg set`.
fn word(name: &str, value: &str) -> Result<Changes, String> {
    let mut changes = Changes::default();
    changes.add(&format!("{name}={value}")).map_err(|e| e.to_string())?;
    Ok(changes)
}

const MARKS: &str =
    "(priority LOW|NORMAL|HIGH|CRITICAL), (dscp NAME or 0 to 63), (tos 0 to 255) and (socket_priority 0 to 15)";

/// The first of priority, dscp and tos counts (YS-11).
fn marks(given: &[Property]) -> Result<Changes, String> {
    if let Some((key, _)) =
        given.iter().find(|(k, _)| !["priority", "dscp", "tos", "socket_priority"].contains(&k.as_str()))
    {
        return Err(format!("({key} …) in (qos …): allowed is {MARKS}"));
    }
    if given.is_empty() {
        return Err(format!("(qos) is empty: it has {MARKS}"));
    }
    let find = |key: &str| given.iter().find(|(k, _)| k == key).map(|(_, value)| plain(value));
    let mut changes = match (find("priority"), find("dscp"), find("tos")) {
        (Some(class), ..) => word("class", &class)?,
        (None, Some(dscp), _) => word("dscp", &dscp)?,
        // setConnectionQos sends (tos -1) when only threads are set; that is no failure here (YS-54).
        (None, None, Some(tos)) if tos != "-1" => word("tos", &tos)?,
        _ => Changes::default(),
    };
    if let Some(priority) = find("socket_priority") {
        changes.socket_priority = word("priority", &priority)?.socket_priority;
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::grammar::Command;

    fn read(groups: &str) -> Result<Priority, String> {
        match Command::parse(&format!("prop set /x {groups}"))? {
            Command::Set { priority: Some(priority), .. } => Ok(priority),
            other => panic!("{groups}: {other:?}"),
        }
    }

    fn sched(text: &str, now: Option<&str>) -> Result<Change<Scheduling>, String> {
        let now = now.map(|n| n.parse().unwrap());
        read(&format!("(sched ({text}))"))?.changes(now).map(|changes| changes.sched)
    }

    fn set(text: &str) -> Result<Change<Scheduling>, String> {
        Ok(Change::Set(text.parse().unwrap()))
    }

    #[test]
    fn y_21_ys_12_policies_by_name_and_number() {
        for policy in ["SCHED_FIFO", "fifo", "1", "\"1\"", "[FIFO]"] {
            assert_eq!(sched(&format!("(policy {policy}) (priority 30)"), None), set("fifo:30"), "{policy}");
        }
        assert_eq!(sched("(priority 7) (policy 2)", None), set("rr:7"));
        assert_eq!(sched("(policy SCHED_OTHER)", Some("fifo:3")), set("other"));
        assert_eq!(sched("(policy 0) (priority 0)", None), set("other"));
        assert_eq!(sched("(policy OTHER) (nice -5)", None), set("other:-5"));
        assert_eq!(sched("(priority 40)", Some("rr:3")), set("rr:40"));
        assert_eq!(sched("(policy 2)", Some("fifo:3")), set("rr:3"));
        assert_eq!(sched("(priority -1)", Some("fifo:3")), Ok(Change::Unset));
        assert_eq!(sched("(priority -1) (policy 1)", None), Ok(Change::Unset));
        let deadline = set("deadline:1ms/10ms");
        assert_eq!(sched("(policy SCHED_DEADLINE) (runtime 1ms) (period 10ms)", None), deadline);
        assert_eq!(sched("(policy 6) (runtime 1000000) (deadline 10ms) (period 10ms)", None), deadline);
        assert_eq!(sched("(priority -1) (policy -1)", Some("fifo:3")), Ok(Change::Keep));
        let priority = read("(sched ((policy 1) (priority 3) (affinity 0 2)))").unwrap();
        assert_eq!(priority.changes(None).unwrap().affinity, Change::Set(vec![0, 2]));
    }

    #[test]
    fn y_22_ys_11_marks_in_their_order_of_precedence() {
        for (text, tos) in [
            ("(priority HIGH)", 0x90),
            ("(priority LOW)", 0x28),
            ("(priority NORM)", 0),
            ("(priority normal)", 0),
            ("(priority CRIT)", 0xb0),
            ("(priority Critical)", 0xb0),
            ("(dscp AF12)", 0x30),
            ("(dscp 36)", 0x90),
            ("(dscp VA)", 0xb0),
            ("(dscp CS0)", 0),
            ("(tos 144)", 144),
            ("(tos 12) (dscp EF)", 0xb8),
            ("(tos 12) (dscp EF) (priority LOW)", 0x28),
        ] {
            let Change::Set(mark) = read(&format!("(qos ({text}))")).unwrap().changes(None).unwrap().mark else {
                panic!("{text} sets no mark")
            };
            assert_eq!(mark.tos(), tos, "{text}");
        }
        assert!(read("(qos ((tos -1)))").unwrap().changes(None).unwrap().is_empty());
    }

    #[test]
    fn ys_10_groups_in_any_combination() {
        let all =
            read("(qos ((priority HIGH))) (process ((priority 9) (policy 1))) (sched ((priority 30) (policy 1)))");
        let all = all.unwrap();
        assert_eq!(all.process.unwrap().scheduling(None), set("fifo:9"));
        assert_eq!(all.sched.unwrap().scheduling(None), set("fifo:30"));
        assert!(all.qos.is_some());
        let one = read("(qos ((tos 0)))").unwrap();
        assert!(one.process.is_none() && one.sched.is_none());
    }

    #[test]
    fn forbidden_values_are_named_with_the_allowed_ones() {
        for (groups, says) in [
            ("(sched ((policy SCHED_FIFO) (priority 100)))", "1 to 99"),
            ("(sched ((policy SCHED_FIFO)))", "1 to 99"),
            ("(sched ((policy SCHED_FIFO) (priority 0)))", "1 to 99"),
            ("(sched ((policy SCHED_OTHER) (priority 5)))", "1 to 99"),
            ("(sched ((priority 5)))", "(policy SCHED_FIFO)"),
            ("(sched ((policy IDLE)))", "SCHED_RR (2)"),
            ("(sched ((policy 7) (priority 1)))", "SCHED_RR (2)"),
            ("(sched ((priority high) (policy 1)))", "1 to 99"),
            ("(sched ((colour red)))", "(affinity CPU"),
            ("(sched)", "is empty"),
            ("(sched fifo)", "no (KEY VALUE)"),
            ("(sched ((policy SCHED_DEADLINE)))", "(runtime T)"),
            ("(sched ((policy SCHED_DEADLINE) (runtime 9ms) (period 1ms)))", "RUNTIME <= DEADLINE"),
            ("(sched ((affinity 5000)))", "0 to 1023"),
            ("(sched ((nice 44)))", "-20 to 19"),
            ("(qos ((priority URGENT)))", "critical (crit)"),
            ("(qos ((dscp 64)))", "0 to 63"),
            ("(qos ((dscp AF44)))", "0 to 63"),
            ("(qos ((tos 256)))", "0 to 255"),
            ("(qos ((tos -2)))", "0 to 255"),
            ("(qos ((level HIGH)))", "(tos 0 to 255)"),
            ("(qos ())", "is empty"),
            ("(qos ((priority HIGH))) (link ((rate 3)))", "the groups are"),
            ("(qos ((priority HIGH))) 5", "the groups are"),
        ] {
            let said = read(groups).and_then(|priority| priority.changes(None)).unwrap_err();
            assert!(said.contains(says), "{groups}: {said}");
        }
    }
}
