//! Definitions that every ROS 2 installation has and that others refer to: users need not add them.

use super::interface::{Definition, read};
use super::name::TypeName;
use super::parse::Section;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The known definitions by their full names.
pub(super) fn known() -> &'static BTreeMap<String, Definition> {
    static KNOWN: OnceLock<BTreeMap<String, Definition>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let named = TEXTS.iter().filter_map(|(name, text)| Some((TypeName::parse(name)?, text)));
        // All of them are read: a test counts.
        named.filter_map(|(name, text)| read(&name, Section::whole(text)).ok()).flatten().collect()
    })
}

/// Fields and constants of the files in `rcl_interfaces`, `common_interfaces` and `unique_identifier_msgs` (Jazzy), without comments.
pub(super) const TEXTS: &[(&str, &str)] = &[
    ("builtin_interfaces/msg/Time", "int32 sec\nuint32 nanosec\n"),
    ("builtin_interfaces/msg/Duration", "int32 sec\nuint32 nanosec\n"),
    ("std_msgs/msg/Header", "builtin_interfaces/Time stamp\nstring frame_id\n"),
    ("unique_identifier_msgs/msg/UUID", "uint8[16] uuid\n"),
    (
        "service_msgs/msg/ServiceEventInfo",
        "uint8 REQUEST_SENT = 0\nuint8 REQUEST_RECEIVED = 1\nuint8 RESPONSE_SENT = 2\nuint8 RESPONSE_RECEIVED = 3\n\
         uint8 event_type\nbuiltin_interfaces/Time stamp\nchar[16] client_gid\nint64 sequence_number\n",
    ),
    ("action_msgs/msg/GoalInfo", "unique_identifier_msgs/UUID goal_id\nbuiltin_interfaces/Time stamp\n"),
    (
        "action_msgs/msg/GoalStatus",
        "int8 STATUS_UNKNOWN = 0\nint8 STATUS_ACCEPTED = 1\nint8 STATUS_EXECUTING = 2\nint8 STATUS_CANCELING = 3\n\
         int8 STATUS_SUCCEEDED = 4\nint8 STATUS_CANCELED = 5\nint8 STATUS_ABORTED = 6\n\
         GoalInfo goal_info\nint8 status\n",
    ),
    ("action_msgs/msg/GoalStatusArray", "GoalStatus[] status_list\n"),
    (
        "action_msgs/srv/CancelGoal",
        "GoalInfo goal_info\n---\n\
         int8 ERROR_NONE=0\nint8 ERROR_REJECTED=1\nint8 ERROR_UNKNOWN_GOAL_ID=2\nint8 ERROR_GOAL_TERMINATED=3\n\
         int8 return_code\nGoalInfo[] goals_canceling\n",
    ),
];
