//! The flows of multicast groups. Subscribers of one publisher on one interface share a flow if they get the same samples.

use crate::carrier::Parameters;
use crate::channel::PortRef;
use crate::channel::flow::Flow;
use crate::channel::proxy::{Picture, Selection};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A group's publisher, its interface, and the selection and picture of its samples.
pub(super) type Group = (PortRef, IpAddr, Selection, Option<Picture>);

/// The flow of each group, and the parameters that a new subscriber needs.
pub(super) struct Groups<F = Arc<Flow>>(HashMap<Group, (F, Parameters)>);

impl<F> Default for Groups<F> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<F> Groups<F> {
    /// The flow of a group, if it accepts members.
    pub(super) fn find(&self, group: &Group, takes_members: impl Fn(&F) -> bool) -> Option<&(F, Parameters)> {
        self.0.get(group).filter(|(flow, _)| takes_members(flow))
    }

    /// A group has this flow from now on.
    pub(super) fn insert(&mut self, group: Group, flow: F, parameters: Parameters) {
        self.0.insert(group, (flow, parameters));
    }

    /// A publisher closed: its groups end.
    pub(super) fn closed(&mut self, publisher: PortRef) {
        self.0.retain(|(of, ..), _| *of != publisher);
    }

    /// A publisher no longer sends these pictures (`None`: unscaled samples): their groups end.
    pub(super) fn ended(&mut self, publisher: PortRef, picture: Option<Picture>) {
        self.0.retain(|(of, _, _, its), _| *of != publisher || *its != picture);
    }

    /// Removes the flows for which `is` is true.
    pub(super) fn retired(&mut self, is: impl Fn(&F) -> bool) {
        self.0.retain(|_, (flow, _)| !is(flow));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{NodeId, PortId};

    fn group(port: u32, last: u8) -> Group {
        let publisher = PortRef { node: NodeId(1), port: PortId(port) };
        (publisher, [10, 0, 0, last].into(), Selection::default(), None)
    }

    fn groups() -> Groups<u32> {
        let mut groups = Groups::default();
        for (flow, of) in [group(1, 1), group(1, 2), group(2, 1)].into_iter().enumerate() {
            groups.insert(of, flow as u32, Parameters::default());
        }
        groups
    }

    fn flows(groups: &Groups<u32>) -> Vec<Option<u32>> {
        let of = |of: Group| groups.find(&of, |_| true).map(|(flow, _)| *flow);
        vec![of(group(1, 1)), of(group(1, 2)), of(group(2, 1))]
    }

    #[test]
    fn each_interface_and_publisher_has_a_flow_that_takes_members() {
        let groups = groups();
        assert_eq!(flows(&groups), [Some(0), Some(1), Some(2)]);
        assert!(groups.find(&group(1, 1), |flow| *flow != 0).is_none(), "it takes none any more");
        assert!(groups.find(&group(3, 1), |_| true).is_none());
    }

    #[test]
    fn flows_go_with_their_publisher_and_with_their_last_member() {
        let mut all = groups();
        all.closed(group(1, 1).0);
        assert_eq!(flows(&all), [None, None, Some(2)]);
        let mut all = groups();
        all.retired(|flow| *flow == 1);
        assert_eq!(flows(&all), [Some(0), None, Some(2)]);
        all.ended(group(2, 1).0, None);
        assert_eq!(flows(&all), [Some(0), None, None]);
    }
}
