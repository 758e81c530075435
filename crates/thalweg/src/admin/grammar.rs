//! The commands that a port answers, in YARP's grammar (YS-01…YS-15). A text becomes a typed [`Command`];
//! [`super::answer`] carries it out.
//!
//! Words of the protocol may be written bare (`list`) or as vocabs (`[list]`), in any case.

use super::priority::Priority;
use crate::bottle::{Bottle, Property, Value, properties};
use crate::carrier;

/// Direction of a port's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Received samples.
    In,
    /// Sent samples.
    Out,
}

impl Side {
    /// `in` or `out`.
    pub const fn name(self) -> &'static str {
        match self {
            Side::In => "in",
            Side::Out => "out",
        }
    }
}

/// An administrative command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// `help`
    Help,
    /// `ver`
    Version,
    /// `pray`
    Pray,
    /// `add /other [carrier]`: connect this output.
    Add {
        /// The subscribing port.
        other: String,
        /// The carrier of the samples.
        carrier: Option<carrier::Name>,
    },
    /// `del /other`: disconnect this port from another.
    Delete {
        /// The other port.
        other: String,
    },
    /// `atch in|out (type NAME) …`: attach a monitor.
    Attach {
        /// The side.
        side: Side,
        /// Its type and parameters.
        properties: Vec<Property>,
    },
    /// `dtch in|out`: detach the monitor.
    Detach {
        /// The side.
        side: Side,
    },
    /// `list [in|out] [/other]`: names of the other ends, or details of one.
    List {
        /// The side of the connections.
        side: Side,
        /// Only this one, with details.
        other: Option<String>,
    },
    /// `set in|out /name (KEY VALUE) …`: parameters of the monitor (the port's own name).
    SetParameters {
        /// The side.
        side: Side,
        /// The port's own name.
        name: String,
        /// The parameters to set.
        parameters: Vec<Property>,
    },
    /// `get in|out /name`: parameters of the monitor (the port's own name), or of a connection.
    GetParameters {
        /// The side.
        side: Side,
        /// The port's own name or the other end's.
        name: String,
    },
    /// `prop get`: all user properties.
    Properties,
    /// `prop get KEY`: one user property.
    Property(String),
    /// `prop get /name`: thread and packets of a connection by its other end, or of the port itself.
    Settings(String),
    /// `prop set KEY VALUE`, `prop set /name (process …) (sched …) (qos …)`.
    Set {
        /// A name, or the other end's port, or the port itself.
        key: String,
        /// The value stored under the key (YS-15).
        value: Value,
        /// The priority to set, if there are groups.
        priority: Option<Priority>,
    },
    /// A verb that is not part of the grammar: for the user's own reader, if the port has one.
    Other(Bottle),
}

/// The answer to `help`.
pub(crate) const HELP: &[&str] = &[
    "help                             these lines",
    "ver                              versions of the protocol",
    "pray                             ask the port for a sign",
    "add /port [carrier]              connect this output to a port",
    "del /port                        remove a connection to or from a port",
    "list [in|out] [/port]            connections (default out), or details of one",
    "atch in|out (type NAME) (K V)…   attach a monitor: throttle, delay, statistics, arbitrate",
    "dtch in|out                      detach the monitor",
    "set in|out /self (K V)…          set parameters of the monitor",
    "get in|out /self                 parameters of the monitor",
    "prop get                         all properties of the port",
    "prop get KEY                     one of them",
    "prop set KEY VALUE               store one",
    "prop get /port                   thread and packets of the connection to or from a port",
    "prop get /self                   thread, process, platform and kind of this port",
    "prop set /port (sched ((policy SCHED_FIFO) (priority 30))) (qos ((priority HIGH)))",
    "prop set /self (process ((policy SCHED_FIFO) (priority 30)))",
];

/// The verb or word, in lower case.
fn lower(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::word).map(str::to_ascii_lowercase)
}

fn side(value: Option<&Value>) -> Option<Side> {
    match lower(value)?.as_str() {
        "in" => Some(Side::In),
        "out" => Some(Side::Out),
        _ => None,
    }
}

impl Command {
    /// `true` if it changes something. The effect of a command on a port's own reader is unknown, so that counts, too.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Command::Add { .. }
            | Command::Delete { .. }
            | Command::Attach { .. }
            | Command::Detach { .. }
            | Command::SetParameters { .. }
            | Command::Set { .. }
            | Command::Other(_) => true,
            Command::Help
            | Command::Version
            | Command::Pray
            | Command::List { .. }
            | Command::GetParameters { .. }
            | Command::Properties
            | Command::Property(_)
            | Command::Settings(_) => false,
        }
    }

    /// Reads a command.
    ///
    /// # Errors
    /// The reason why it is malformed, for people: the text, and the allowed forms.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bottle = Bottle::parse(text).map_err(|e| e.to_string())?;
        let Some(verb) = lower(bottle.0.first()) else {
            return match bottle.0.first() {
                None => Err("an empty command; send [help] for list of valid commands".to_owned()),
                Some(_) => Ok(Command::Other(bottle)),
            };
        };
        let rest = bottle.0.get(1..).unwrap_or_default();
        match verb.as_str() {
            "help" => Ok(Command::Help),
            "ver" => Ok(Command::Version),
            "pray" => Ok(Command::Pray),
            "add" => add(rest),
            "del" => Ok(Command::Delete { other: port(rest.first(), "del /port")? }),
            "list" => list(rest),
            "atch" => attach(rest),
            "dtch" => Ok(Command::Detach { side: needed_side(rest.first(), "dtch")? }),
            "set" => {
                let (side, name, rest) = target(rest, "set")?;
                Ok(Command::SetParameters { side, name, parameters: properties(rest)? })
            }
            "get" => target(rest, "get").map(|(side, name, _)| Command::GetParameters { side, name }),
            "prop" => property(rest),
            _ => Ok(Command::Other(bottle)),
        }
    }
}

fn port(value: Option<&Value>, form: &str) -> Result<String, String> {
    match value.and_then(Value::word) {
        Some(name) if name.starts_with('/') => Ok(name.to_owned()),
        Some(other) => Err(format!("{other:?} is no port name, which starts with /; the form is {form}")),
        None => Err(format!("a port name is missing; the form is {form}")),
    }
}

fn add(rest: &[Value]) -> Result<Command, String> {
    // YARP also takes `add tcp://other`.
    let first = rest.first().and_then(Value::word).unwrap_or_default();
    if let Some((carrier, name)) = first.split_once(":/") {
        let carrier = Some(carrier).filter(|c| !c.is_empty()).map(Into::into);
        return Ok(Command::Add { other: format!("/{}", name.trim_start_matches('/')), carrier });
    }
    let carrier = match rest.get(1) {
        None => None,
        Some(value) => Some(value.word().ok_or_else(|| format!("carrier {value} is no name"))?.into()),
    };
    Ok(Command::Add { other: port(rest.first(), "add /port [carrier]")?, carrier })
}

fn list(rest: &[Value]) -> Result<Command, String> {
    let (given, rest) = match side(rest.first()) {
        Some(side) => (side, &rest[1..]),
        None => (Side::Out, rest),
    };
    let other = if rest.is_empty() { None } else { Some(port(rest.first(), "list [in|out] [/port]")?) };
    Ok(Command::List { side: given, other })
}

fn needed_side(value: Option<&Value>, verb: &str) -> Result<Side, String> {
    side(value).ok_or_else(|| format!("{verb} must be followed by out or in"))
}

fn attach(rest: &[Value]) -> Result<Command, String> {
    let side = needed_side(rest.first(), "atch")?;
    Ok(Command::Attach { side, properties: properties(&rest[1..])? })
}

fn target<'a>(rest: &'a [Value], verb: &str) -> Result<(Side, String, &'a [Value]), String> {
    let side = needed_side(rest.first(), verb)?;
    let name = port(rest.get(1), &format!("{verb} in|out /port"))?;
    Ok((side, name, rest.get(2..).unwrap_or_default()))
}

fn property(rest: &[Value]) -> Result<Command, String> {
    let key = rest.get(1);
    match lower(rest.first()).as_deref() {
        Some("get") => match key {
            None => Ok(Command::Properties),
            Some(key) => {
                let key = key.word().map_or_else(|| key.to_string(), str::to_owned);
                Ok(if key.starts_with('/') { Command::Settings(key) } else { Command::Property(key) })
            }
        },
        Some("set") => {
            let key = key.ok_or("prop set needs a key: prop set KEY VALUE, or prop set /port (sched …) (qos …)")?;
            let key = key.word().map_or_else(|| key.to_string(), str::to_owned);
            let groups = rest.get(2..).unwrap_or_default();
            let value = groups.first().cloned().ok_or_else(|| format!("a value for {key} is missing"))?;
            let priority = if key.starts_with('/') { Priority::read(groups)? } else { None };
            Ok(Command::Set { key, value, priority })
        }
        _ => Err("property action not known: it is prop get or prop set".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Command {
        Command::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn ys_01_every_verb_is_read_bare_and_as_a_vocab() {
        assert_eq!((read("help"), read("[HELP]")), (Command::Help, Command::Help));
        assert_eq!((read("ver"), read("pray")), (Command::Version, Command::Pray));
        assert!(matches!(read("wave 1"), Command::Other(bottle) if bottle.to_string() == "wave 1"));
        assert!(matches!(read("12 a"), Command::Other(_)));
    }

    #[test]
    fn ys_02_connections_and_monitors() {
        let other = || "/in".to_owned();
        assert_eq!(read("[add] /in"), Command::Add { other: other(), carrier: None });
        assert_eq!(read("add /in udp"), Command::Add { other: other(), carrier: Some("udp".into()) });
        assert_eq!(read("add udp://in"), Command::Add { other: other(), carrier: Some("udp".into()) });
        assert_eq!(read("[del] /in"), Command::Delete { other: other() });
        assert_eq!(read("list"), Command::List { side: Side::Out, other: None });
        assert_eq!(read("list /in"), Command::List { side: Side::Out, other: Some(other()) });
        assert_eq!(read("[list] [in] /in"), Command::List { side: Side::In, other: Some(other()) });
        let properties = vec![("type".to_owned(), "throttle".into()), ("period_ms".to_owned(), Value::Int(20))];
        for text in ["atch in (type throttle) (period_ms 20)", "[atch] [in] ((type throttle) (period_ms 20))"] {
            assert_eq!(read(text), Command::Attach { side: Side::In, properties: properties.clone() });
        }
        assert_eq!(read("dtch out"), Command::Detach { side: Side::Out });
        let parameters = vec![("period_ms".to_owned(), Value::Int(5))];
        assert_eq!(
            read("set in /in (period_ms 5)"),
            Command::SetParameters { side: Side::In, name: other(), parameters }
        );
        assert_eq!(read("get out /in"), Command::GetParameters { side: Side::Out, name: other() });
    }

    #[test]
    fn ys_03_properties() {
        assert_eq!(read("prop get"), Command::Properties);
        assert_eq!(read("[prop] [get] colour"), Command::Property("colour".into()));
        assert_eq!(read("prop get /in"), Command::Settings("/in".into()));
        let set = Command::Set { key: "colour".into(), value: "red".into(), priority: None };
        assert_eq!(read("prop set colour red"), set);
    }

    #[test]
    fn malformed_commands_are_refused_with_the_reason() {
        for (text, says) in [
            ("", "[help]"),
            ("add", "port name is missing"),
            ("add in", "starts with /"),
            ("add /in 7", "carrier 7"),
            ("del 5", "port name is missing"),
            ("list in 3", "port name is missing"),
            ("atch", "out or in"),
            ("atch up (type throttle)", "out or in"),
            ("atch in throttle", "no (KEY VALUE)"),
            ("dtch", "out or in"),
            ("set in", "port name is missing"),
            ("get", "out or in"),
            ("prop", "prop get or prop set"),
            ("prop put a b", "prop get or prop set"),
            ("prop set", "needs a key"),
            ("prop set colour", "value for colour is missing"),
            ("prop set /in (sched ((policy SCHED_FIFO) (priority 30))", "at character 14"),
        ] {
            let said = Command::parse(text).unwrap_err();
            assert!(said.contains(says), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(prop|set|get|\\[add\\]|list|atch|in|out|/a|sched|qos|process|tos|priority|[0-9-]{1,3}|[() ]){0,40}") {
            let _ = Command::parse(&text);
        }
    }
}
