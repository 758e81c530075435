//! Services of ROS 2 over Cyclone DDS (`rmw_cyclonedds_cpp`), which are two topics there as in Thalweg.
//!
//! | Thalweg | ROS 2 |
//! |---|---|
//! | questions on `/add` | topic `rq/addRequest`, type `pkg::srv::dds_::Add_Request_` |
//! | answers on `/add/reply` | topic `rr/addReply`, type `pkg::srv::dds_::Add_Response_` |
//! | asker, number, body | header of the request (64 bits of its client's identity, a number of 64 bits), which the reply repeats; request or reply |
//!
//! So the bytes are the same. Other implementations say beside the message which request a reply is of: theirs are refused.

use super::ros::ros_name;
use crate::engine::services::{answered, asked};
use cyclone::Guid;
use thalweg::codec::TypeDescription;

/// The vendor of Cyclone DDS, with which its GUIDs begin (DDSI-RTPS 2.5 §9.3.1.5).
const CYCLONE: [u8; 2] = [1, 0x10];

/// The topic here of one of a service there. Those of actions are none.
pub(super) fn here(topic: &str) -> Option<String> {
    let service = |prefix, suffix| {
        let name = topic.strip_prefix(prefix)?.strip_suffix(suffix)?;
        (!name.contains("/_action/")).then(|| format!("/{name}"))
    };
    service("rq/", "Request").or_else(|| service("rr/", "Reply").map(|name| answered(&name)))
}

/// The topic there of one of a service here.
pub(super) fn there(topic: &str) -> String {
    match asked(topic) {
        Some(service) => format!("rr{service}Reply"),
        None => format!("rq{topic}Request"),
    }
}

/// `true` for the type of a request or a reply.
pub(super) fn is_part(type_name: &str) -> bool {
    ros_name(type_name).is_some_and(|name| {
        let is_part = name.ends_with("_Request") || name.ends_with("_Response");
        is_part && name.split('/').nth(1) == Some("srv")
    })
}

/// The reason why an end of a service is not carried, if there is one.
pub(super) fn refusal(end: Guid, message: &TypeDescription) -> Option<&'static str> {
    match (end.0, message.schema.is_some()) {
        ([first, second, ..], _) if [first, second] != CYCLONE => {
            Some("its program does not use Cyclone DDS, and says beside the message which request a reply is of")
        }
        (_, false) => Some("services are carried where their definitions are known (--definitions)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_two_topics() {
        for (own, other) in [("/arm/add", "rq/arm/addRequest"), ("/arm/add/reply", "rr/arm/addReply")] {
            assert_eq!((there(own), here(other)), (other.to_owned(), Some(own.to_owned())));
        }
        for other in ["rt/add", "rq/add", "rr/addRequest", "rq/fibonacci/_action/send_goalRequest", "rqRequest", ""] {
            assert_eq!(here(other), None, "{other}");
        }
    }

    #[test]
    fn types_of_services_are_told_from_others() {
        let parts = ["a::srv::dds_::B_Request_", "a::srv::dds_::B_Response_"];
        let others = [
            "a::msg::dds_::B_Request_",
            "a::srv::dds_::B_",
            "a::srv::B_Request",
            "a::action::dds_::B_SendGoal_Request_",
        ];
        assert!(parts.iter().all(|name| is_part(name)) && !others.iter().any(|name| is_part(name)));
    }

    #[test]
    fn services_of_others_or_without_a_definition_are_refused() {
        let (known, unknown) = (TypeDescription::of::<(u64, u64)>(), TypeDescription::opaque("A"));
        let of = |vendor: u8| Guid([1, vendor, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(refusal(of(0x10), &known), None);
        assert!(refusal(of(0x0f), &known).unwrap().contains("Cyclone"));
        assert!(refusal(of(0x10), &unknown).unwrap().contains("--definitions"));
    }
}
