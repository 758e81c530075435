//! Shares of peers in the answers under way, and the answers that give way when too many are wanted. Pure.

use crate::control::Peer;
use std::collections::BTreeMap;

/// Questions that are answered at once; further ones are refused.
pub(super) const MOST_QUESTIONS: usize = 32;
/// Answers that each peer is guaranteed; it gets more only while others need none.
const SHARE: usize = 4;
/// Answers that may begin beyond the limit before others that give way have ended.
const MOST_GIVING_WAY: usize = 16;

/// The answers under way, by peer.
#[derive(Debug, Default)]
pub(super) struct Shares {
    open: usize,
    peers: BTreeMap<Peer, usize>,
}

impl Shares {
    /// Begins an answer for this peer; `false`: there is no room. Beyond the limit there is room if another peer has more than its share
    /// and this peer has less.
    pub(super) fn begin(&mut self, peer: Peer) -> bool {
        let own = self.peers.get(&peer).copied().unwrap_or(0);
        let gives_way = own < SHARE && self.open < MOST_QUESTIONS + MOST_GIVING_WAY && self.greediest().is_some();
        if self.open >= MOST_QUESTIONS && !gives_way {
            return false;
        }
        self.open += 1;
        *self.peers.entry(peer).or_default() += 1;
        true
    }

    /// An answer has ended.
    pub(super) fn end(&mut self, peer: Peer) {
        let Some(count) = self.peers.get_mut(&peer) else { return };
        (self.open, *count) = (self.open.saturating_sub(1), count.saturating_sub(1));
        if *count == 0 {
            self.peers.remove(&peer);
        }
    }

    /// The peer one of whose answers has to end because too many are under way: the one with the most, and more than its share.
    pub(super) fn gives_way(&self) -> Option<Peer> {
        self.greediest().filter(|_| self.open > MOST_QUESTIONS)
    }

    fn greediest(&self) -> Option<Peer> {
        let greedy = self.peers.iter().filter(|(_, count)| **count > SHARE);
        greedy.max_by_key(|(_, count)| **count).map(|(peer, _)| *peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: u8) -> Peer {
        Peer::at([10, 0, 0, address].into())
    }

    fn begun(shares: &mut Shares, of: Peer, count: usize) -> usize {
        (0..count).filter(|_| shares.begin(of)).count()
    }

    #[test]
    fn one_peer_has_all_answers_while_no_other_asks() {
        let mut shares = Shares::default();
        assert_eq!(begun(&mut shares, peer(1), 40), MOST_QUESTIONS);
        assert_eq!(shares.gives_way(), None);
        shares.end(peer(1));
        assert_eq!(begun(&mut shares, peer(1), 2), 1);
    }

    #[test]
    fn a_peer_below_its_share_gets_an_answer_of_the_one_with_most() {
        let mut shares = Shares::default();
        begun(&mut shares, peer(1), MOST_QUESTIONS);
        assert_eq!(begun(&mut shares, peer(2), 10), SHARE);
        for _ in 0..SHARE {
            assert_eq!(shares.gives_way(), Some(peer(1)));
            shares.end(peer(1));
        }
        assert_eq!(shares.gives_way(), None);
        assert_eq!(begun(&mut shares, peer(1), 1), 0);
    }

    #[test]
    fn sixteen_answers_at_most_begin_beyond_the_limit() {
        let mut shares = Shares::default();
        begun(&mut shares, peer(1), MOST_QUESTIONS);
        let others = (2..40).map(|address| begun(&mut shares, peer(address), 1)).sum::<usize>();
        assert_eq!(others, MOST_GIVING_WAY);
    }

    #[test]
    fn a_further_peer_is_refused_when_all_have_their_share() {
        let mut shares = Shares::default();
        for address in 1..=8 {
            assert_eq!(begun(&mut shares, peer(address), SHARE), SHARE);
        }
        assert!(!shares.begin(peer(9)));
        assert_eq!(shares.gives_way(), None);
    }

    #[test]
    fn an_end_without_a_beginning_changes_nothing() {
        let mut shares = Shares::default();
        shares.end(peer(1));
        assert_eq!(begun(&mut shares, peer(2), 40), MOST_QUESTIONS);
    }
}
