//! The role `relay`: a node that hosts proxies for others, until it ends.

use super::Orders;
use super::node::NodeSettings;
use crate::error::Result;
use serde_json::{Value, json};

/// Hosts.
pub(super) fn relay(mut orders: Orders) -> Result {
    let settings = NodeSettings { relay: true, ..orders.settings()? };
    let node = settings.open()?;
    orders.say(&json!({"node": node.id()}))?;
    while orders.wait::<Value>()?.is_some() {}
    Ok(())
}
