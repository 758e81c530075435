//! Priorities as YARP writes them: `qos="level:high; priority:10; policy:1"` (YS-31), `DSCP:AF42`, `POL:1 PRT:30` (YS-32).

use super::{Change, Changes, PriorityError, PrioritySettings, Scheduling, refuse};
use std::str::FromStr;

/// A scheduling policy without its priority, as YARP names and numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// SCHED_OTHER, 0.
    Other,
    /// SCHED_FIFO, 1.
    Fifo,
    /// SCHED_RR, 2.
    RoundRobin,
}

const POLICIES: &str = "SCHED_OTHER (0), SCHED_FIFO (1) or SCHED_RR (2)";
const PRIORITIES: &str = "1 to 99 for SCHED_FIFO and SCHED_RR, 0 for SCHED_OTHER, -1 for back to the default";
const FORMS: &str = "level:low|normal|high|critical, dscp:NAME or 0 to 63, tos:0 to 255, policy:0|1|2 (also pol:), \
                     priority:1 to 99 of the thread (also prt:), separated by ;";

impl FromStr for PolicyName {
    type Err = PriorityError;
    /// A number, or a name in any case with or without `SCHED_`.
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let lower = text.trim().to_ascii_lowercase();
        match lower.strip_prefix("sched_").unwrap_or(&lower) {
            "0" | "other" | "normal" => Ok(PolicyName::Other),
            "1" | "fifo" => Ok(PolicyName::Fifo),
            "2" | "rr" => Ok(PolicyName::RoundRobin),
            _ => refuse("policy", text, POLICIES),
        }
    }
}

impl PolicyName {
    /// The policy with a priority.
    ///
    /// # Errors
    /// A priority that doesn't fit: 1…99 for FIFO and RR, 0 for OTHER.
    pub fn with(self, priority: i64) -> Result<Scheduling, PriorityError> {
        let form = match self {
            PolicyName::Other if priority == 0 => "other".to_owned(),
            PolicyName::Other => String::new(),
            PolicyName::Fifo => format!("fifo:{priority}"),
            PolicyName::RoundRobin => format!("rr:{priority}"),
        };
        form.parse().or_else(|_| refuse("priority", &priority.to_string(), PRIORITIES))
    }
}

impl Changes {
    /// Reads YARP's form: `KEY:VALUE` separated by `;`, commas or spaces; case, and spaces around `:`, don't matter.
    ///
    /// # Errors
    /// An unknown key, a value that is not allowed, two marks, or a priority without its policy.
    pub fn from_yarp(text: &str) -> Result<Self, PriorityError> {
        let mut changes = Changes::default();
        let (mut policy, mut priority) = (None::<PolicyName>, None::<i64>);
        let text = text.split(':').map(str::trim).collect::<Vec<_>>().join(":");
        let words = text.split([';', ',', ' ', '\t', '\n']).filter(|word| !word.is_empty());
        for word in words {
            let Some((key, value)) = word.split_once(':') else { return refuse("qos", word, FORMS) };
            match key.to_ascii_lowercase().as_str() {
                "level" => changes.add(&format!("class={value}"))?,
                "dscp" => changes.add(&format!("dscp={value}"))?,
                "tos" => changes.add(&format!("tos={value}"))?,
                "policy" | "pol" => policy = Some(value.parse()?),
                "priority" | "prt" => {
                    let number = value.parse().or_else(|_| refuse("priority", value, PRIORITIES))?;
                    priority = Some(number);
                }
                _ => return refuse("qos", word, FORMS),
            }
        }
        changes.sched = match (policy, priority) {
            (None, None) => Change::Keep,
            (_, Some(-1)) => Change::Unset,
            (Some(policy), given) => Change::Set(policy.with(given.unwrap_or(0))?),
            (None, Some(given)) => {
                let allowed = "a priority with its policy, such as policy:1; priority:10";
                return refuse("priority", &given.to_string(), allowed);
            }
        };
        Ok(changes)
    }
}

impl PrioritySettings {
    /// As [`Changes::from_yarp`], from the defaults.
    ///
    /// # Errors
    /// As there.
    pub fn from_yarp(text: &str) -> Result<Self, PriorityError> {
        let mut settings = Self::default();
        Changes::from_yarp(text)?.apply(&mut settings);
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::{Class, Mark, Policy};
    use proptest::prelude::*;

    #[test]
    fn ys_31_strings_of_profiles() {
        for text in [
            "level:high; priority:10; policy:1",
            " LEVEL : HIGH ;priority:10;policy: SCHED_FIFO;",
            "prt:10 pol:1 Level:High",
        ] {
            let settings = PrioritySettings::from_yarp(text).unwrap();
            assert_eq!(settings.mark, Some(Mark::Class(Class::High)), "{text}");
            assert_eq!(settings.sched.unwrap().policy, Policy::Fifo(10), "{text}");
        }
        assert_eq!(PrioritySettings::from_yarp("").unwrap(), PrioritySettings::default());
    }

    #[test]
    fn ys_30_ys_51_every_form_of_packet_priority_works() {
        let tos = |text| PrioritySettings::from_yarp(text).unwrap().mark.unwrap().tos();
        assert_eq!([tos("LEVEL:HIGH"), tos("DSCP:AF42"), tos("DSCP:36"), tos("TOS:144")], [144; 4]);
        assert_eq!([tos("LEVEL:LOW"), tos("LEVEL:NORM"), tos("LEVEL:CRIT"), tos("DSCP:VA")], [40, 0, 176, 176]);
    }

    #[test]
    fn ys_12_back_to_the_default() {
        assert_eq!(Changes::from_yarp("priority:-1; policy:1").unwrap().sched, Change::Unset);
        assert_eq!(Changes::from_yarp("policy:0").unwrap().sched, Change::Set(Scheduling::default()));
    }

    #[test]
    fn errors_name_the_allowed_values() {
        for (text, says) in [
            ("high", "level:low"),
            ("colour:red", "level:low"),
            ("level:urgent", "critical (crit)"),
            ("dscp:64", "0 to 63"),
            ("tos:256", "0 to 255"),
            ("policy:7; priority:1", "SCHED_RR (2)"),
            ("policy:1; priority:100", "1 to 99"),
            ("policy:1", "1 to 99"),
            ("policy:0; priority:4", "1 to 99"),
            ("priority:10", "policy:1; priority:10"),
            ("priority:x", "1 to 99"),
            ("level:high; tos:3", "not two"),
        ] {
            let said = Changes::from_yarp(text).unwrap_err().to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,60}|((level|tos|policy|priority|:|;| |[0-9]){0,12})") {
            let _ = Changes::from_yarp(&text);
        }
    }
}
