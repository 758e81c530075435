//! Whose answers are under way, and whose give way when too many are wanted. Pure.

use crate::control::Peer;
use std::collections::BTreeMap;

/// Questions that are answered at once; who asks beyond that is told so.
pub(super) const MOST_QUESTIONS: usize = 32;
/// Of these, one peer has so many for certain, and more only while others need none.
const SHARE: usize = 4;
/// Questions that may arrive before those that give way to them have ended.
const MOST_GIVING_WAY: usize = 16;

/// The answers under way, by who asked.
#[derive(Debug, Default)]
pub(super) struct Shares {
    open: usize,
    peers: BTreeMap<Peer, usize>,
}

impl Shares {
    /// Whether one more is answered for this peer, which it is from now on: while there is room, and beyond that when somebody has
    /// more than its share while this one has less.
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

    /// Whose answer has to end, because more are under way than may be: who has most, and more than its share.
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
    fn one_peer_has_all_while_nobody_else_asks() {
        let mut shares = Shares::default();
        assert_eq!(begun(&mut shares, peer(1), 40), MOST_QUESTIONS);
        assert_eq!(shares.gives_way(), None);
        shares.end(peer(1));
        assert_eq!(begun(&mut shares, peer(1), 2), 1);
    }

    #[test]
    fn who_has_less_than_its_share_has_an_answer_of_who_has_most() {
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
    fn no_more_than_sixteen_come_before_others_have_given_way() {
        let mut shares = Shares::default();
        begun(&mut shares, peer(1), MOST_QUESTIONS);
        let others = (2..40).map(|address| begun(&mut shares, peer(address), 1)).sum::<usize>();
        assert_eq!(others, MOST_GIVING_WAY);
    }

    #[test]
    fn where_all_have_their_share_the_next_one_has_none() {
        let mut shares = Shares::default();
        for address in 1..=8 {
            assert_eq!(begun(&mut shares, peer(address), SHARE), SHARE);
        }
        assert!(!shares.begin(peer(9)));
        assert_eq!(shares.gives_way(), None);
    }

    #[test]
    fn an_end_that_nobody_began_changes_nothing() {
        let mut shares = Shares::default();
        shares.end(peer(1));
        assert_eq!(begun(&mut shares, peer(2), 40), MOST_QUESTIONS);
    }
}
