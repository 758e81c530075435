//! Definitions of a file: a message, or all messages that `rosidl_parser` makes of a service or an action.

use super::error::RosError;
use super::member::Member;
use super::name::{Kind, TypeName};
use super::parse::{Place, Section, message};

/// One type that can be described.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) members: Vec<Member>,
    /// Its text: of the file or the part of it, or one that says the same for types that stand in no file.
    pub(super) text: String,
    /// The service or action whose text has this type in it.
    pub(super) origin: Option<String>,
    /// `true` for a service or an action as a whole.
    pub(super) service: bool,
}

/// The line between request and response, and between goal, result and feedback.
const SEPARATOR: &str = "---";

/// Reads the text of a file with this name.
pub(super) fn read(name: &TypeName, section: Section<'_>) -> Result<Vec<(String, Definition)>, RosError> {
    let mut file = File { name, full: name.to_string(), found: Vec::new() };
    match name.kind {
        Kind::Service if !name.is_part() => file.service(section)?,
        Kind::Action if !name.is_part() => file.action(section)?,
        _ => {
            let members = message(file.place(), section)?;
            file.add(file.full.clone(), members, section.text, None);
        }
    }
    Ok(file.found)
}

/// A file that is read, and the definitions so far.
struct File<'a> {
    name: &'a TypeName,
    full: String,
    found: Vec<(String, Definition)>,
}

impl File<'_> {
    fn place(&self) -> Place<'_> {
        Place { definition: &self.full, package: &self.name.package }
    }

    fn service(&mut self, section: Section<'_>) -> Result<(), RosError> {
        let parts = section.split(SEPARATOR);
        let [request, response] = parts.as_slice() else {
            return Err(self.separators(1, parts.len()));
        };
        self.part("_Request", *request)?;
        self.part("_Response", *response)?;
        let full = self.full.clone();
        self.derived("_Event", &event(&full))?;
        self.whole(&service(&full), section)
    }

    fn action(&mut self, section: Section<'_>) -> Result<(), RosError> {
        let parts = section.split(SEPARATOR);
        let [goal, result, feedback] = parts.as_slice() else {
            return Err(self.separators(2, parts.len()));
        };
        self.part("_Goal", *goal)?;
        self.part("_Result", *result)?;
        self.part("_Feedback", *feedback)?;
        let full = self.full.clone();
        self.derived("_SendGoal_Request", &format!("{GOAL_ID}{full}_Goal goal\n"))?;
        self.derived("_SendGoal_Response", "bool accepted\nbuiltin_interfaces/msg/Time stamp\n")?;
        self.derived("_GetResult_Request", GOAL_ID)?;
        self.derived("_GetResult_Response", &format!("int8 status\n{full}_Result result\n"))?;
        for suffix in ["_SendGoal", "_GetResult"] {
            let service_name = format!("{full}{suffix}");
            self.derived(&format!("{suffix}_Event"), &event(&service_name))?;
            self.derived(suffix, &service(&service_name))?;
        }
        self.derived("_FeedbackMessage", &format!("{GOAL_ID}{full}_Feedback feedback\n"))?;
        self.whole(&action(&full), section)
    }

    /// A message of which the file has the text.
    fn part(&mut self, suffix: &str, section: Section<'_>) -> Result<(), RosError> {
        let members = message(self.place(), section)?;
        self.add(format!("{}{suffix}", self.full), members, section.text, Some(self.full.clone()));
        Ok(())
    }

    /// A type that follows from the file.
    fn derived(&mut self, suffix: &str, text: &str) -> Result<(), RosError> {
        self.part(suffix, Section::whole(text))
    }

    /// The service or action itself, whose fields are its messages.
    fn whole(&mut self, members: &str, section: Section<'_>) -> Result<(), RosError> {
        let members = message(self.place(), Section::whole(members))?;
        self.add(self.full.clone(), members, section.text, None);
        Ok(())
    }

    fn add(&mut self, full: String, members: Vec<Member>, text: &str, origin: Option<String>) {
        let service = TypeName::parse(&full).is_some_and(|name| name.is_service());
        let mut text = text.to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        self.found.push((full, Definition { members, text, origin, service }));
    }

    fn separators(&self, expected: usize, parts: usize) -> RosError {
        let found = parts.saturating_sub(1);
        RosError::Separators { definition: self.full.clone(), expected, found }
    }
}

const GOAL_ID: &str = "unique_identifier_msgs/msg/UUID goal_id\n";

/// The message by which a service tells of its calls (REP-2012).
fn event(service: &str) -> String {
    format!(
        "service_msgs/msg/ServiceEventInfo info\n{service}_Request[<=1] request\n{service}_Response[<=1] response\n"
    )
}

fn service(name: &str) -> String {
    format!("{name}_Request request_message\n{name}_Response response_message\n{name}_Event event_message\n")
}

fn action(name: &str) -> String {
    format!(
        "{name}_Goal goal\n{name}_Result result\n{name}_Feedback feedback\n{name}_SendGoal send_goal_service\n\
         {name}_GetResult get_result_service\n{name}_FeedbackMessage feedback_message\n"
    )
}
