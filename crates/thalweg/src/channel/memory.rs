//! Bytes that a node holds for its channels: messages that wait in queues and mailboxes, unacknowledged and incomplete messages,
//! and histories. They are charged to the account of the peer at the channel's other end, and with it to the node's. Other hosts
//! are peers, not their nodes: a host that makes up a hundred ids has one share, and no part of the account of a node whose id
//! it uses.
//!
//! A peer may hold as much as remains of the node's limit at that moment: alone half of it, two a third each. So one slow or
//! hostile peer leaves room for the next, and no share has to be stated (dynamic thresholds: Choudhury and Hahne, "Dynamic
//! queue length thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6 (2), 1998, with α = 1).
//! Counting is an atomic addition at each level, and never waits.

use crate::control::Peer;
use linux::lock::PiMutex;
use qos::{ResourceLimit, SAMPLE_BYTES};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The charge for a message of this length.
pub fn size_of(payload: usize) -> usize {
    payload.saturating_add(SAMPLE_BYTES as usize)
}

/// Held bytes and their limit: of a node, of one of its peers, or of one of its histories.
#[derive(Debug)]
pub struct Account {
    used: AtomicUsize,
    refused: AtomicU64,
    limit: usize,
    /// The account above: for a peer the node's, for a history the account of all histories.
    of: Option<Arc<Account>>,
}

impl Account {
    /// A node's account of at most `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), refused: AtomicU64::new(0), limit, of: None })
    }

    /// The account of a peer within its node's, or of a history within the account of all histories.
    pub fn of(whole: &Arc<Account>) -> Arc<Self> {
        let of = Some(whole.clone());
        Arc::new(Self { used: AtomicUsize::new(0), refused: AtomicU64::new(0), limit: whole.limit, of })
    }

    /// Takes this many bytes.
    ///
    /// # Errors
    /// The limit that does not allow it. The refusal is counted, and no byte is taken.
    pub fn try_take(&self, bytes: usize) -> Result<(), ResourceLimit> {
        let Some(whole) = &self.of else { return self.try_add(bytes, self.limit, ResourceLimit::NodeMemory) };
        whole.try_take(bytes)?;
        let left = whole.left().saturating_add(self.used()); // of which it may have half
        let taken = self.try_add(bytes, left.saturating_add(bytes) / 2, ResourceLimit::PeerMemory);
        taken.inspect_err(|_| {
            whole.give_back(bytes);
            if whole.of.is_some() {
                whole.refused.fetch_add(1, Relaxed); // for histories the refusals of all are shown together
            }
        })
    }

    /// Takes this many bytes even beyond the limits, for messages that have to be kept.
    pub fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Relaxed);
        if let Some(whole) = &self.of {
            whole.take(bytes);
        }
    }

    /// Gives so many bytes back.
    pub fn give_back(&self, bytes: usize) {
        self.sub(bytes);
        if let Some(whole) = &self.of {
            whole.give_back(bytes);
        }
    }

    /// Bytes that are held now.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Bytes that may be held; for a peer at this moment.
    pub fn limit(&self) -> usize {
        self.of.as_ref().map_or(self.limit, |whole| whole.left().saturating_add(self.used()) / 2)
    }

    /// `true` if it holds more than it may: bytes that could not be refused were taken, or others have needed more since.
    pub fn is_over(&self) -> bool {
        self.used() > self.limit()
    }

    /// `true` if this many bytes are more than it may hold even if it gave all its bytes back; that counts as refused.
    pub fn never_holds(&self, bytes: usize) -> bool {
        let never = bytes > self.limit();
        self.refused.fetch_add(u64::from(never), Relaxed);
        never
    }

    /// The number of refusals by this limit.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Bytes that may be taken now.
    pub fn left(&self) -> usize {
        self.limit().saturating_sub(self.used())
    }

    fn try_add(&self, bytes: usize, limit: usize, what: ResourceLimit) -> Result<(), ResourceLimit> {
        // Added first: of two threads at the same time, never both succeed beyond the limit; at worst neither does.
        let before = self.used.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) <= limit {
            return Ok(());
        }
        self.sub(bytes);
        self.refused.fetch_add(1, Relaxed);
        Err(what)
    }

    fn sub(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

/// Bytes that go back to their account when this is dropped. The default holds none, and so does a clone: a holder that shares a
/// message with a channel that keeps it does not pay again.
#[derive(Debug, Default)]
pub struct Charge {
    account: Option<Arc<Account>>,
    bytes: usize,
}

impl Charge {
    /// Takes this many bytes, if the limits allow it or `forced`.
    ///
    /// # Errors
    /// The limit that does not allow it.
    pub fn new(account: &Arc<Account>, bytes: usize, forced: bool) -> Result<Self, ResourceLimit> {
        match forced {
            true => account.take(bytes),
            false => account.try_take(bytes)?,
        }
        Ok(Self { account: Some(account.clone()), bytes })
    }

    /// `true` if it holds bytes of an account.
    pub fn is_taken(&self) -> bool {
        self.account.is_some()
    }
}

impl Clone for Charge {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.give_back(self.bytes);
        }
    }
}

/// A node's account and those of its peers.
pub struct Memory {
    node: Arc<Account>,
    /// The account of all histories counts as a peer's, so that enough remains for channels. Each history has an account within it: if
    /// one holds much, the next still gets half of the rest.
    histories: Arc<Account>,
    /// Looked up when a channel opens.
    peers: PiMutex<HashMap<Peer, Arc<Account>>>,
}

impl Memory {
    /// An empty memory of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let node = Account::new(limit);
        Self { histories: Account::of(&node), node, peers: PiMutex::default() }
    }

    /// The node's account.
    pub fn node(&self) -> &Account {
        &self.node
    }

    /// The account of all histories.
    pub fn histories(&self) -> &Arc<Account> {
        &self.histories
    }

    /// The account of a peer.
    pub fn peer(&self, peer: Peer) -> Arc<Account> {
        let mut peers = self.peers.lock();
        if peers.len() > EMPTY_ACCOUNTS {
            peers.retain(|_, account| account.used() > 0 || Arc::strong_count(account) > 1);
        }
        peers.entry(peer).or_insert_with(|| Account::of(&self.node)).clone()
    }

    /// The account of a multicast group: its messages wait for all members, so it counts as a peer of its own.
    pub fn group(&self) -> Arc<Account> {
        Account::of(&self.node)
    }

    /// The report for tools, without the documents, which are the directory's.
    pub fn report(&self) -> MemoryReport {
        let of = |(peer, account): (&Peer, &Arc<Account>)| PeerMemory {
            peer: *peer,
            used: account.used() as u64,
            limit: account.limit() as u64,
            refused: account.refused(),
        };
        let mut peers: Vec<_> = self.peers.lock().iter().map(of).filter(|peer| peer.used + peer.refused > 0).collect();
        peers.sort_by_key(|peer| std::cmp::Reverse(peer.used));
        peers.truncate(MOST_TOLD);
        let Account { refused, limit, .. } = &*self.node;
        let (used, limit, refused) = (self.node.used() as u64, *limit as u64, refused.load(Relaxed));
        let of = &self.histories;
        let histories = HistoryMemory { used: of.used() as u64, limit: of.limit() as u64, refused: of.refused() };
        MemoryReport { used, limit, refused, peers, histories, ..MemoryReport::default() }
    }
}

/// The bytes that a node's channels hold: messages in queues and mailboxes, unacknowledged and incomplete messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReport {
    /// Held now.
    pub used: u64,
    /// Held at most ([`Settings::memory`](crate::Settings::memory)).
    pub limit: u64,
    /// Number of refusals by this limit.
    pub refused: u64,
    /// The peers that hold bytes or were refused some; those that hold most come first, 64 at most.
    pub peers: Vec<PeerMemory>,
    /// Bytes held by histories.
    #[serde(default)]
    pub histories: HistoryMemory,
    /// Bytes held by nodes' documents, besides.
    #[serde(default)]
    pub documents: DocumentMemory,
}

/// Memory that a node holds for the documents of all nodes that it sees, this one included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMemory {
    /// Held now, about.
    pub used: u64,
    /// Held at most: 24 MiB.
    pub limit: u64,
    /// Number of documents refused: for their bytes, or for one more node or port.
    pub refused: u64,
    /// Of a bridge's node: ends of the other system that have no port in its own document, such as those beyond its size.
    #[serde(default)]
    pub left_out: u64,
}

/// Memory for the samples that the ports of a node keep for pulls and late joiners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryMemory {
    /// Held now.
    pub used: u64,
    /// The most that they may hold, given the bytes of the channels.
    pub limit: u64,
    /// Number of times that this was too little and the oldest samples were dropped.
    pub refused: u64,
}

/// Memory for the channels with one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMemory {
    /// The peer.
    #[serde(flatten)]
    pub peer: Peer,
    /// Held now.
    pub used: u64,
    /// The most that it may hold, given the bytes of the others.
    pub limit: u64,
    /// Number of refusals by this limit.
    pub refused: u64,
}

/// The default of the bytes that all channels of a node may hold together: 1 GiB, of which one peer gets half.
pub const NODE_MEMORY: usize = 1 << 30;

/// Bytes that each queue, mailbox and window may always hold: a small channel continues when large ones have used up the
/// node's memory. A thousand of these shares are 64 MiB.
pub const ALWAYS: usize = 64 << 10;

/// The most empty accounts of peers that are kept.
const EMPTY_ACCOUNTS: usize = 64;

/// Peers that a report names.
const MOST_TOLD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::NodeId;
    use proptest::prelude::*;

    /// Takes as much as it gets, in steps of one byte.
    fn fill(account: &Account) -> usize {
        (0..).take_while(|_| account.try_take(1).is_ok()).count()
    }

    #[test]
    fn a_peer_alone_gets_half_and_leaves_room_for_the_next() {
        let memory = Memory::new(1200);
        let peers: Vec<_> = (1..4).map(|id| memory.peer(Peer::Node(NodeId(id)))).collect();
        assert_eq!(peers.iter().map(|peer| fill(peer)).collect::<Vec<_>>(), [600, 300, 150]);
        assert_eq!(peers[0].try_take(1), Err(ResourceLimit::PeerMemory), "it waits for the others to need less");
        peers[0].give_back(600);
        peers[1].give_back(300);
        assert_eq!((fill(&peers[1]), memory.node().used()), (525, 675));
        assert_eq!(memory.node().try_take(526), Err(ResourceLimit::NodeMemory));
        peers[2].take(10_000);
        assert_eq!(fill(&peers[0]), 0, "what could not be left counts, too");
    }

    #[test]
    fn each_history_has_half_of_what_the_others_leave() {
        let memory = Memory::new(1600);
        let [one, other] = [(); 2].map(|()| Account::of(memory.histories()));
        assert_eq!((fill(&one), fill(&other)), (400, 200));
        assert_eq!(fill(&memory.peer(Peer::Node(NodeId(1)))), 500, "half of what all of them leave");
        assert_eq!(other.try_take(1), Err(ResourceLimit::PeerMemory));
        let told = memory.report().histories;
        assert_eq!((told.used, told.refused), (600, 3));
        one.take(1000);
        one.give_back(1400);
        assert_eq!((memory.histories().used(), memory.node().used()), (200, 700));
    }

    #[test]
    fn an_address_has_one_share() {
        let memory = Memory::new(1200);
        let [one, other] = [1, 2].map(|last| Peer::Host([10, 0, 0, last].into()));
        assert_eq!([one, one, other].map(|peer| fill(&memory.peer(peer))), [600, 0, 300]);
        let report = memory.report();
        let told: Vec<_> = report.peers.iter().map(|peer| peer.peer.to_string()).collect();
        assert_eq!(told[..2], ["host 10.0.0.1", "host 10.0.0.2"]);
        assert_eq!(serde_json::from_str::<MemoryReport>(&serde_json::to_string(&report).unwrap()).unwrap(), report);
    }

    #[test]
    fn a_charge_goes_back_once_and_a_clone_pays_nothing() {
        let memory = Memory::new(1000);
        let peer = memory.peer(Peer::Node(NodeId(1)));
        let charge = Charge::new(&peer, 400, false).unwrap();
        assert_eq!(Charge::new(&peer, 200, false).map(drop), Err(ResourceLimit::PeerMemory));
        let (forced, clone) = (Charge::new(&peer, 200, true).unwrap(), charge.clone());
        assert_eq!((peer.used(), memory.node().used(), clone.is_taken()), (600, 600, false));
        drop((charge, clone, forced));
        assert_eq!((peer.used(), memory.node().used(), memory.report().peers.len()), (0, 0, 1), "it was refused once");
    }

    proptest! {
        /// Peers take and give back in any order: the sums are right, and each stays within its share.
        #[test]
        fn peers_together_are_the_node(limit in 1_usize..5000, steps in prop::collection::vec((0_u64..5, 0_usize..2000, any::<bool>()), 0..200)) {
            let memory = Memory::new(limit);
            let mut held: Vec<(u64, Charge, usize)> = Vec::new();
            for (peer, bytes, takes) in steps {
                let account = memory.peer(Peer::Node(NodeId(peer)));
                let own = held.iter().filter(|(of, ..)| *of == peer).map(|(.., bytes)| bytes).sum::<usize>();
                let all = held.iter().map(|(.., bytes)| bytes).sum::<usize>();
                prop_assert_eq!((account.used(), memory.node().used()), (own, all));
                if !takes {
                    held.truncate(held.len().saturating_sub(bytes % 4));
                    continue;
                }
                let fits = all + bytes <= limit && own + bytes <= limit - all - bytes;
                let got = Charge::new(&account, bytes, false);
                // Halves are rounded down.
                prop_assert!(got.is_ok() == fits || (own + bytes).abs_diff(limit.saturating_sub(all + bytes)) <= 1);
                held.extend(got.ok().map(|charge| (peer, charge, bytes)));
            }
            drop(held);
            prop_assert_eq!(memory.node().used(), 0);
        }
    }
}
