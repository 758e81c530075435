//! One process of the robot: publishes and receives its channels, obeys its parent, and ends with it.

use super::Place;
use super::report::{PartReport, Received};
use super::robot::{BUSY, Command, Content, Imu, LINES, Line, parts};
use super::stage::Work;
use crate::failure::{Failure, Result};
use crate::output::line;
use crate::signals::Stop;
use lab::statistics::Latencies;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg::SampleInfo;
use thalweg::codec::{Message, Raw};
use thalweg::{Node, Publisher, Sample, Subscriber};

/// An order of the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Reset the counters, and report when ready.
    Prepare,
    /// Fill the processors from now on, if this is the busy process.
    Busy,
    /// Begin to publish.
    Start,
    /// Publish no more.
    Stop,
}

impl Order {
    const ALL: [Self; 4] = [Order::Prepare, Order::Busy, Order::Start, Order::Stop];

    /// The order as text on the pipe.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Order::Prepare => "prepare",
            Order::Busy => "busy",
            Order::Start => "start",
            Order::Stop => "stop",
        }
    }
}

/// Interval of a part's reports.
const PERIOD: Duration = Duration::from_millis(200);
/// Time in which waiting samples have to be sent at the end.
const DRAIN: Duration = Duration::from_secs(3);

/// Runs until the parent closes its pipe, which also happens when it ends.
pub(super) fn run(part: &str, place: &Place) -> Result {
    if !parts().contains(&part) {
        return Err(Failure::Usage(format!("part {part:?}: allowed are {}", parts().join(", "))));
    }
    Stop::never()?;
    // Before any other thread starts: threads inherit the namespace.
    place.enter()?;
    let orders = listen()?;
    let node = place.open(part)?;
    let subscribers: Vec<CountingSubscriber> =
        LINES.iter().filter(|l| l.to == part).map(|l| CountingSubscriber::open(&node, l)).collect::<Result<_>>()?;
    let mut publishers = Vec::new();
    for line in LINES.iter().filter(|l| l.from == part) {
        let publisher = DemoPublisher::open(&node, line)?;
        if !publisher.wait_connected(&node, &orders) {
            return Ok(());
        }
        publishers.push(PublisherThread::new(line, publisher));
    }
    say(&PartReport::Ready)?;
    obey(part, &orders, &subscribers, publishers)
}

/// Orders of the parent; the receiver ends with the pipe.
fn listen() -> Result<Receiver<Order>> {
    let (tell, told) = channel();
    let read = move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            let order = Order::ALL.into_iter().find(|order| order.word() == line);
            if order.is_some_and(|order| tell.send(order).is_err()) {
                return;
            }
        }
    };
    linux::thread::spawn(linux::thread::Settings::named("orders"), read)?;
    Ok(told)
}

fn obey(
    part: &str,
    orders: &Receiver<Order>,
    subscribers: &[CountingSubscriber],
    mut publishers: Vec<PublisherThread>,
) -> Result {
    let mut work = Vec::new();
    loop {
        let order = orders.recv_timeout(PERIOD);
        match order {
            Ok(Order::Prepare) => {
                subscribers.iter().for_each(CountingSubscriber::prepare);
                publishers.iter_mut().for_each(PublisherThread::prepare);
            }
            Ok(Order::Busy) if part == BUSY => work = Work::start()?,
            Ok(Order::Busy) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Order::Start) => publishers.iter_mut().try_for_each(PublisherThread::start)?,
            Ok(Order::Stop) => publishers.iter_mut().try_for_each(PublisherThread::finish)?,
            Err(RecvTimeoutError::Disconnected) => {
                drop(work);
                return Ok(());
            }
        }
        for ear in subscribers {
            say(&PartReport::Received(ear.received()))?;
        }
        for mouth in &publishers {
            say(&mouth.sent())?;
        }
        if order == Ok(Order::Prepare) {
            say(&PartReport::Ready)?;
        }
    }
}

fn say(what: &PartReport) -> Result {
    line(&serde_json::to_string(what).map_err(std::io::Error::from)?)
}

/// A publisher of the robot.
enum DemoPublisher {
    Imu(Publisher<Imu>),
    Command(Publisher<Command>),
    Bytes(Publisher<Raw>, usize),
}

impl DemoPublisher {
    fn open(node: &Node, line: &Line) -> Result<Self> {
        Ok(match line.content {
            Content::Imu => DemoPublisher::Imu(node.publisher(line.topic).named(line.publisher).open()?),
            Content::Command => DemoPublisher::Command(node.publisher(line.topic).named(line.publisher).open()?),
            Content::Bytes(size) => {
                DemoPublisher::Bytes(node.publisher(line.topic).named(line.publisher).open()?, size)
            }
        })
    }

    /// Waits for the subscriber; `false` if the parent ended first.
    fn wait_connected(&self, node: &Node, orders: &Receiver<Order>) -> bool {
        let connected = || match self {
            DemoPublisher::Imu(publisher) => publisher.connected() > 0,
            DemoPublisher::Command(publisher) => publisher.connected() > 0,
            DemoPublisher::Bytes(publisher, _) => publisher.connected() > 0,
        };
        while !node.wait_until(PERIOD, connected) {
            if orders.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) {
                return false;
            }
        }
        true
    }

    fn publish(&mut self, number: u64) -> Result {
        match self {
            DemoPublisher::Imu(publisher) => publisher.publish(&Imu::at(linux::clock::monotonic_ns()))?,
            DemoPublisher::Command(publisher) => publisher.publish(&Command::numbered(number))?,
            DemoPublisher::Bytes(publisher, size) => {
                // The picture is drawn in place: in shared memory, if that is the carrier.
                let mut picture = publisher.loan(*size)?;
                picture.bytes_mut().fill(number as u8);
                picture.bytes_mut().iter_mut().zip(number.to_le_bytes()).for_each(|(byte, digit)| *byte = digit);
                picture.publish()?
            }
        };
        Ok(())
    }

    fn drain(&mut self) {
        // Closing waits for samples on their way. The port stays until the process ends, so that no sample is cut off.
        let waiting = |channels: Vec<thalweg::ChannelReport>| channels.iter().any(|c| c.waiting > 0);
        let until = Instant::now() + DRAIN;
        while Instant::now() < until {
            let busy = match self {
                DemoPublisher::Imu(publisher) => waiting(publisher.channels()),
                DemoPublisher::Command(publisher) => waiting(publisher.channels()),
                DemoPublisher::Bytes(publisher, _) => waiting(publisher.channels()),
            };
            if !busy {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A publisher with its thread.
struct PublisherThread {
    topic: &'static str,
    period: Duration,
    over: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    finished: bool,
    publisher: Arc<Mutex<(DemoPublisher, Result)>>,
}

impl PublisherThread {
    fn new(line: &Line, publisher: DemoPublisher) -> Self {
        Self {
            topic: line.topic,
            period: Duration::from_secs_f64(1.0 / line.hz),
            over: Arc::default(),
            sent: Arc::default(),
            thread: None,
            finished: false,
            publisher: Arc::new(Mutex::new((publisher, Ok(())))),
        }
    }

    fn prepare(&mut self) {
        self.finished = false;
        self.sent.store(0, Relaxed);
    }

    fn start(&mut self) -> Result {
        self.over.store(false, Relaxed);
        let (period, over, sent, publisher) =
            (self.period, self.over.clone(), self.sent.clone(), self.publisher.clone());
        let body = move || {
            let mut publisher = publisher.lock().unwrap_or_else(PoisonError::into_inner);
            publisher.1 = speak(&mut publisher.0, period, &over, &sent);
        };
        self.thread = Some(linux::thread::spawn(linux::thread::Settings::named("publish"), body)?);
        Ok(())
    }

    /// Stops publishing.
    fn hush(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Stops publishing, and waits for the samples on their way.
    fn finish(&mut self) -> Result {
        self.hush();
        let mut publisher = self.publisher.lock().unwrap_or_else(PoisonError::into_inner);
        publisher.0.drain();
        self.finished = true;
        std::mem::replace(&mut publisher.1, Ok(()))
    }

    fn sent(&self) -> PartReport {
        PartReport::Sent { topic: self.topic.to_owned(), sent: self.sent.load(Relaxed), finished: self.finished }
    }
}

impl Drop for PublisherThread {
    /// Joins the thread: it holds the port and with it the node, whose socket file is removed at its end.
    fn drop(&mut self) {
        self.hush();
    }
}

/// Publishes at even intervals. A delay is caught up, unless it is longer than a second.
fn speak(publisher: &mut DemoPublisher, period: Duration, over: &AtomicBool, sent: &AtomicU64) -> Result {
    let mut due = Instant::now();
    while !over.load(Relaxed) {
        let number = sent.load(Relaxed) + 1;
        publisher.publish(number)?;
        sent.store(number, Relaxed);
        due += period;
        let now = Instant::now();
        match due.checked_duration_since(now) {
            Some(left) => std::thread::sleep(left),
            None if now.duration_since(due) > Duration::from_secs(1) => due = now,
            None => {}
        }
    }
    Ok(())
}

/// A subscriber that counts.
struct CountingSubscriber {
    topic: &'static str,
    port: Port,
    account: Arc<Mutex<Account>>,
}

/// A subscriber of the robot.
enum Port {
    Imu(Subscriber<Imu>),
    Command(Subscriber<Command>),
    Bytes(Subscriber<Raw>),
}

struct Account {
    received: u64,
    before: u64, // the highest sequence number before counting began
    last_seq: u64,
    first_ns: u64,
    last_ns: u64,
    latencies: Latencies,
}

impl CountingSubscriber {
    fn open(node: &Node, line: &Line) -> Result<Self> {
        let latencies = Latencies::default();
        let account =
            Arc::new(Mutex::new(Account { received: 0, before: 0, last_seq: 0, first_ns: 0, last_ns: 0, latencies }));
        let port = match line.content {
            Content::Imu => Port::Imu(subscribe(node, line, &account)?),
            Content::Command => Port::Command(subscribe(node, line, &account)?),
            Content::Bytes(_) => Port::Bytes(subscribe(node, line, &account)?),
        };
        Ok(Self { topic: line.topic, port, account })
    }

    fn prepare(&self) {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let last_seq = account.last_seq;
        let latencies = Latencies::default();
        *account = Account { received: 0, before: last_seq, last_seq, first_ns: 0, last_ns: 0, latencies };
    }

    fn received(&self) -> Received {
        let channels = match &self.port {
            Port::Imu(subscriber) => subscriber.channels(),
            Port::Command(subscriber) => subscriber.channels(),
            Port::Bytes(subscriber) => subscriber.channels(),
        };
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        Received {
            topic: self.topic.to_owned(),
            received: account.received,
            last_seq: account.last_seq - account.before,
            span_ns: account.last_ns - account.first_ns,
            carrier: channels.into_iter().next().map(|c| c.carrier.to_string()).unwrap_or_default(),
            latency_us: account.latencies.percentiles(),
        }
    }
}

fn subscribe<M: Message>(node: &Node, line: &Line, account: &Arc<Mutex<Account>>) -> Result<Subscriber<M>> {
    let account = account.clone();
    let note = move |sample: Sample<'_, M>| {
        account.lock().unwrap_or_else(PoisonError::into_inner).note(sample.info());
    };
    Ok(node.subscriber::<M>(line.topic).named(line.subscriber).callback(note)?)
}

impl Account {
    fn note(&mut self, info: &SampleInfo) {
        if self.received == 0 {
            self.first_ns = info.received_ns;
        }
        self.received += 1;
        self.last_seq = self.last_seq.max(info.seq);
        self.last_ns = self.last_ns.max(info.received_ns);
        if let Some(ns) = info.latency_ns() {
            self.latencies.record(ns);
        }
    }
}
