//! Pull: answering questions to this node's histories, and asking those of others.
//!
//! One thread answers, a few questions at a time, each as fast as the asking peer reads. Both ends mark their stream as class LOW; nothing
//! here runs on a thread that delivers samples.

mod answer;
mod ask;
mod late;

#[cfg(any(test, feature = "testing"))]
pub(crate) use answer::read_answer;
pub(crate) use ask::{Asked, Asking, Holder, not_kept};
pub(crate) use late::{Fetch, Fetches};

use crate::control::Peer;
use crate::guard::or_abort;
use crate::handshake::{Reason, Refused};
use crate::port::Histories;
use crate::pull::Question;
use answer::{AnswerStream, Answering, Turn};
use linux::lock::PiMutex;
use linux::marks;
use linux::poll::{Poller, Readiness, Ready, Waker};
use linux::thread::Settings;
use qos::Class;
use qos::priority::{Mark, Policy, Scheduling};
use socket2::SockRef;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The questions to a node's histories.
pub(crate) struct Questions {
    intake: PiMutex<Option<Arc<Intake>>>,
    thread: PiMutex<Option<JoinHandle<()>>>,
    stop: Arc<AtomicBool>,
    next_flow: AtomicUsize,
}

struct Intake {
    arrivals: PiMutex<Vec<(AnswerStream, Peer)>>,
    waker: Waker,
    shares: PiMutex<Shares>,
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Default for Questions {
    fn default() -> Self {
        let next_flow = AtomicUsize::new(linux::clock::monotonic_ns() as usize);
        Self { intake: PiMutex::default(), thread: PiMutex::default(), stop: Arc::default(), next_flow }
    }
}

impl Questions {
    /// Begins an answer within this process, without a stream.
    ///
    /// # Errors
    /// As [`Answering::new`].
    pub(crate) fn begin(&self, question: Question, histories: Arc<Histories>) -> Result<Answering, Refused> {
        // The flow numbers of answers are far apart, so that frames of one are never taken for another's.
        Answering::new(histories, question, self.next_flow.fetch_add(1 << 12, Ordering::Relaxed) as u32)
    }

    /// Answers a question over the stream it came by.
    ///
    /// # Errors
    /// The refusal, with the stream: too many answers are under way, there is no thread, or as [`Questions::begin`].
    pub(crate) fn answer(
        &self,
        question: Question,
        histories: Arc<Histories>,
        (stream, peer): (OwnedFd, Peer),
    ) -> Result<(), (Refused, OwnedFd)> {
        let busy = |offered: String, remedy: &str| Refused {
            policy: Reason::System,
            offered,
            requested: "an answer".into(),
            remedy: remedy.into(),
            others: Vec::new(),
        };
        let intake = match self.intake() {
            Ok(intake) => intake,
            Err(error) => {
                return Err((busy(format!("no thread: {error}"), "raise `ulimit -u` and `ulimit -n`"), stream));
            }
        };
        if !intake.shares.lock().begin(peer) {
            let offered = format!("{MOST_QUESTIONS} answers at once");
            return Err((busy(offered, "ask again when others have theirs"), stream));
        }
        match self.begin(question, histories) {
            Ok(answering) => {
                intake.arrivals.lock().push((AnswerStream::new(stream, answering), peer));
                intake.waker.wake();
                Ok(())
            }
            Err(refused) => {
                intake.shares.lock().end(peer);
                Err((refused, stream))
            }
        }
    }

    fn intake(&self) -> io::Result<Arc<Intake>> {
        let mut slot = self.intake.lock();
        if let Some(intake) = slot.as_ref() {
            return Ok(intake.clone());
        }
        let (arrivals, shares) = (PiMutex::new(Vec::new()), PiMutex::default());
        let intake = Arc::new(Intake { arrivals, waker: Waker::new()?, shares });
        let poller = Poller::new()?;
        poller.add(&intake.waker, WAKER, Readiness::IN)?;
        let server = Server { intake: intake.clone(), stop: self.stop.clone(), poller, answers: Vec::new() };
        let scheduling = Some(Scheduling { policy: Policy::Other, nice: NICE });
        let settings = Settings { scheduling, best_effort: true, ..Settings::named("pull") };
        *self.thread.lock() = Some(
            linux::thread::start(settings, move || or_abort("the thread that answers questions", || server.run()))?.0,
        );
        *slot = Some(intake.clone());
        Ok(intake)
    }

    /// Ends all answers.
    pub(crate) fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(intake) = self.intake.lock().as_ref() {
            intake.waker.wake();
        }
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

struct Server {
    intake: Arc<Intake>,
    stop: Arc<AtomicBool>,
    poller: Poller,
    answers: Vec<Option<Open>>,
}

struct Open {
    answer: AnswerStream,
    moved: Instant,
    peer: Peer,
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Server {
    fn run(mut self) {
        let mut ready: Vec<Ready> = Vec::with_capacity(MOST_QUESTIONS);
        while !self.stop.load(Ordering::Relaxed) {
            let wait = self.answers.iter().any(Option::is_some).then_some(SWEEP);
            if let Err(error) = self.poller.wait(&mut ready, wait) {
                crate::guard::abort(&format!("the pull thread cannot wait any more: {error}"));
            }
            for event in &ready {
                match event.token {
                    WAKER => {
                        self.take_arrivals();
                        self.make_room();
                    }
                    token => self.visit(token as usize),
                }
            }
            let slow = |open: &Option<Open>| open.as_ref().is_some_and(|open| open.moved.elapsed() > PATIENCE);
            (0..self.answers.len())
                .filter(|at| slow(&self.answers[*at]))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|at| self.end(at));
        }
    }

    fn take_arrivals(&mut self) {
        self.intake.waker.clear();
        for (answer, peer) in std::mem::take(&mut *self.intake.arrivals.lock()) {
            make_low(&answer.stream);
            let at = self.answers.iter().position(Option::is_none).unwrap_or(self.answers.len());
            if self.poller.add(answer.stream.as_fd(), at as u64, Readiness::OUT).is_err() {
                self.intake.shares.lock().end(peer);
                continue;
            }
            let open = Some(Open { answer, moved: Instant::now(), peer });
            match self.answers.get_mut(at) {
                Some(free) => *free = open,
                None => self.answers.push(open),
            }
        }
    }

    /// Too many answers are under way: the peer with the most answers loses the one that moved longest ago.
    fn make_room(&mut self) {
        loop {
            let Some(greediest) = self.intake.shares.lock().gives_way() else { return };
            let its = self.answers.iter().enumerate().filter_map(|(at, open)| Some((at, open.as_ref()?)));
            let slowest = its.filter(|(_, open)| open.peer == greediest).min_by_key(|(_, open)| open.moved);
            let Some(at) = slowest.map(|(at, _)| at) else { return };
            self.end(at);
        }
    }

    fn visit(&mut self, at: usize) {
        let Some(Some(open)) = self.answers.get_mut(at) else { return };
        match open.answer.turn(linux::clock::monotonic_ns()) {
            Ok(Turn::More | Turn::Full(true)) => open.moved = Instant::now(),
            Ok(Turn::Full(false)) => {}
            Ok(Turn::Over) | Err(_) => self.end(at),
        }
    }

    fn end(&mut self, at: usize) {
        if let Some(open) = self.answers.get_mut(at).and_then(Option::take) {
            let _ = self.poller.remove(open.answer.stream.as_fd());
            self.intake.shares.lock().end(open.peer);
        }
    }
}

/// The answers under way, by peer, and those that give way when too many are wanted. Pure.
#[derive(Debug, Default)]
struct Shares {
    open: usize,
    peers: BTreeMap<Peer, usize>,
}

impl Shares {
    /// Begins an answer for this peer; `false`: there is no room. Beyond the limit there is room if another peer has more than its share
    /// and this peer has less.
    fn begin(&mut self, peer: Peer) -> bool {
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
    fn end(&mut self, peer: Peer) {
        let Some(count) = self.peers.get_mut(&peer) else { return };
        (self.open, *count) = (self.open.saturating_sub(1), count.saturating_sub(1));
        if *count == 0 {
            self.peers.remove(&peer);
        }
    }

    /// The peer one of whose answers has to end because too many are under way: the one with the most, and more than its share.
    fn gives_way(&self) -> Option<Peer> {
        self.greediest().filter(|_| self.open > MOST_QUESTIONS)
    }

    fn greediest(&self) -> Option<Peer> {
        let greedy = self.peers.iter().filter(|(_, count)| **count > SHARE);
        greedy.max_by_key(|(_, count)| **count).map(|(peer, _)| *peer)
    }
}

/// Marks a stream of questions or answers as low, and gives it small buffers. A stream within the host has no packets to mark. If the
/// kernel refuses the mark, the answer comes unmarked.
fn make_low(stream: impl AsFd) {
    let mark = Mark::Class(Class::Low);
    let _ = marks::set(stream.as_fd(), &mark, mark.socket_priority());
    let socket = SockRef::from(&stream);
    let _ = (socket.set_send_buffer_size(ON_THE_WAY), socket.set_recv_buffer_size(ON_THE_WAY));
}

/// An answer of which the peer reads nothing for this time ends.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two searches for such answers.
const SWEEP: Duration = Duration::from_secs(1);
/// Nice value of the thread, which gives way to ordinary threads.
const NICE: i8 = 10;
const WAKER: u64 = u64::MAX;
/// Questions that are answered at once; further ones are refused.
const MOST_QUESTIONS: usize = 32;
/// Answers that each peer is guaranteed; it gets more only while others need none.
const SHARE: usize = 4;
/// Answers that may begin beyond the limit before others that give way have ended.
const MOST_GIVING_WAY: usize = 16;
/// Send and receive buffer of an answer's stream, in bytes (the kernel doubles it for its own needs). Bytes that the kernel moves at one go
/// hold up more urgent channels: p99 of a 1 kHz channel was 2.0 times its p99 alone without a limit, and 1.3 times with this one.
const ON_THE_WAY: usize = 32 << 10;

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
