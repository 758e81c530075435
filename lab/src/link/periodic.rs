//! Nodes that send on once a period, as the push-pull paper assumes (P-20): a sample that came in one period leaves in the next.
//!
//! A UDP datagram waits for the next one of its flow, so it is late by the period that the flow has on this link, whatever that
//! is: T before a proxy, T' behind it. Nobody tells the link which. (A delay of the time since the datagram before would grow its
//! noise threefold with each hop.) All other frames pass at once.

use std::collections::HashMap;

/// Addresses and ports of a flow of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flow([u8; 12]);

impl Flow {
    /// The flow of an Ethernet frame with a whole datagram over IPv4.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let packet = frame.strip_prefix(frame.first_chunk::<12>()?)?.strip_prefix(&[8, 0])?;
        let head = usize::from(packet.first()? & 15) * 4;
        let [fragment, protocol] = [packet.get(6..8)?, packet.get(9..10)?];
        let is_whole = fragment[0] & 0x3f == 0 && fragment[1] == 0;
        let (addresses, ports) = (packet.get(12..20)?, packet.get(head..head + 4)?);
        let mut flow = [0; 12];
        flow[..8].copy_from_slice(addresses);
        flow[8..].copy_from_slice(ports);
        (is_whole && protocol == [17]).then_some(Self(flow))
    }
}

/// The datagrams that wait, one of each flow. A frame is any value of the caller's.
#[derive(Debug)]
pub(super) struct Periodic<F> {
    waiting: HashMap<Flow, F>,
}

impl<F> Periodic<F> {
    /// None waits.
    pub(super) fn new() -> Self {
        Self { waiting: HashMap::new() }
    }

    /// A frame of this flow comes in. Gives the one that leaves.
    pub(super) fn exchange(&mut self, flow: Flow, frame: F) -> Option<F> {
        self.waiting.insert(flow, frame)
    }

    /// All that wait.
    pub(super) fn release(&mut self) -> impl Iterator<Item = F> {
        std::mem::take(&mut self.waiting).into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(protocol: u8, to: u8, fragment: u8) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8 + 32];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[14 + 6] = fragment;
        frame[14 + 9] = protocol;
        frame[14 + 19] = to;
        frame
    }

    #[test]
    fn only_whole_datagrams_have_a_flow() {
        let (one, other) = (Flow::of(&frame(17, 1, 0x40)), Flow::of(&frame(17, 2, 0)));
        assert!(one.is_some() && other.is_some() && one != other);
        for other in [frame(6, 1, 0), frame(17, 1, 0x20), frame(17, 1, 0)[..30].to_vec(), vec![0; 60], vec![8]] {
            assert_eq!(Flow::of(&other), None, "{other:?}");
        }
    }

    #[test]
    fn a_datagram_waits_for_the_next_of_its_flow() {
        let flow = |to| Flow::of(&frame(17, to, 0)).unwrap();
        let mut periodic = Periodic::new();
        let came = [(1, 'a'), (2, 'b'), (1, 'c'), (1, 'd'), (2, 'e')];
        let left: Vec<_> = came.iter().map(|(to, name)| periodic.exchange(flow(*to), *name)).collect();
        assert_eq!(left, [None, None, Some('a'), Some('c'), Some('b')]);
        let mut last: Vec<char> = periodic.release().collect();
        last.sort_unstable();
        assert_eq!((last, periodic.release().count()), (vec!['d', 'e'], 0));
    }
}
