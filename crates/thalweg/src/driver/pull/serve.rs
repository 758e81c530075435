//! The thread that answers questions: a few at a time, each as fast as the asking peer reads.

use super::answering::Answering;
use super::shares::{MOST_QUESTIONS, Shares};
use super::stream::{AnswerStream, Turn};
use crate::control::Peer;
use crate::guard::or_abort;
use crate::handshake::{Reason, Refused};
use crate::port::Histories;
use crate::pull::Question;
use linux::lock::PiMutex;
use linux::poll::{Poller, Readiness, Ready, Waker};
use linux::thread::Settings;
use qos::priority::{Policy, Scheduling};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An answer of which the peer reads nothing for this time ends.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two searches for such answers.
const SWEEP: Duration = Duration::from_secs(1);
/// Nice value of the thread, which gives way to ordinary threads.
const NICE: i8 = 10;

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

const WAKER: u64 = u64::MAX;

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
            super::make_low(&answer.stream);
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
