//! The thread that writes: samples as they come, delays and losses of each second, the next file when it is due.

use super::Summary;
use super::arrivals::Span;
use super::intake::{Intake, Lacking, Waiting};
use super::settings;
use super::tally::{Recorded, Tally};
use super::topics::{Source, Topics};
use crate::Error;
use crate::file::{Files, Loss, Output, Place, Stamped, channel_of_ends};
use linux::clock::monotonic_ns;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thalweg::{Change, PortRef, SampleInfo};

/// Everything that has arrived is readable after this time, and delays and losses are written.
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// The files, and the samples for them.
pub(super) struct Storage<F: Files> {
    output: Output<F>,
    topics: Arc<Topics>,
    intake: Arc<Intake>,
    tallies: Vec<(Arc<Source>, Tally)>,
    by_port: HashMap<PortRef, usize>,
    settings: Vec<u8>,
    batch: Vec<Waiting>,
    /// Samples of the batch that are written.
    written: usize,
}

impl<F: Files> Storage<F> {
    /// Samples of the intake into the output.
    pub(super) fn new(output: Output<F>, topics: Arc<Topics>, intake: Arc<Intake>) -> Self {
        Self {
            output,
            topics,
            intake,
            tallies: Vec::new(),
            by_port: HashMap::new(),
            settings: Vec::new(),
            batch: Vec::new(),
            written: 0,
        }
    }

    /// Writes until the intake is closed and empty, or the disk refuses.
    pub(super) fn run(mut self) -> Summary {
        match self.write_all() {
            Ok(()) => self.finish(),
            Err(refused) => self.fail(refused),
        }
    }

    fn write_all(&mut self) -> io::Result<()> {
        let mut due = monotonic_ns() + SECOND_NS;
        loop {
            let left = Duration::from_nanos(due.saturating_sub(monotonic_ns()));
            let open = self.intake.next(&mut self.batch, left);
            self.written = 0;
            self.write_batch()?;
            let now = monotonic_ns();
            if now >= due || !open {
                self.tick(now, !open)?;
                due = now + SECOND_NS;
            }
            if !open {
                return Ok(());
            }
        }
    }

    fn write_batch(&mut self) -> io::Result<()> {
        while let Some(Waiting { topic, info, .. }) = self.batch.get(self.written) {
            let (topic, info) = (*topic, *info);
            let at = self.index(topic, &info, Self::add_channel)?;
            let published = self.topics.published(&info);
            let log_ns = self.output.anchor().wall(info.received_ns);
            let publish_ns = published.map_or(log_ns, |(at_ns, _)| self.output.anchor().wall(at_ns));
            let stamped = Stamped { sequence: info.seq as u32, log_ns, publish_ns };
            let channel = self.channel(at, info.change)?;
            let tally = &mut self.tallies[at].1;
            let bytes = &self.batch[self.written].bytes;
            self.output.write(channel, stamped, bytes)?;
            let latency = published.map(|(_, latency)| latency).filter(|_| !info.historical);
            match info.change {
                Change::Written => tally.add(info.seq, bytes.len() as u64, latency),
                Change::Disposed | Change::Unregistered => tally.add_end(info.seq),
            }
            self.written += 1;
            if self.output.is_full() {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn add_channel(&mut self, source: &Source) -> io::Result<usize> {
        self.output.begin(self.topics.profile(), monotonic_ns())?;
        self.output.add(self.topics.channel(source))
    }

    /// The channel in the output for a publisher's samples, or for its ends of instances.
    fn channel(&mut self, at: usize, change: Change) -> io::Result<usize> {
        let (source, tally) = &mut self.tallies[at];
        let known = tally.ends.iter().find(|(kind, _)| *kind == change).map(|(_, channel)| *channel);
        if let Some(known) = known.or((change == Change::Written).then_some(tally.channel)) {
            return Ok(known);
        }
        let Some(text) = channel_of_ends(&self.topics.channel(source), change) else { return Ok(tally.channel) };
        let channel = self.output.add(text)?;
        tally.ends.push((change, channel));
        Ok(channel)
    }

    /// The index of a publisher's tally. For a new one `channel` gives the channel in the output.
    fn index(
        &mut self,
        topic: usize,
        info: &SampleInfo,
        channel: impl FnOnce(&mut Self, &Source) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let port = PortRef { node: info.node, port: info.port };
        if let Some(at) = self.by_port.get(&port) {
            return Ok(*at);
        }
        let source = self.topics.source(topic, info);
        let channel = channel(self, &source)?;
        let tally = Tally::new(channel, source.topic.clone(), source.name.clone());
        self.tallies.push((source, tally));
        self.by_port.insert(port, self.tallies.len() - 1);
        Ok(self.tallies.len() - 1)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()?;
        self.tallies.iter_mut().for_each(|(_, tally)| tally.flushed());
        let now = monotonic_ns();
        if self.output.is_due(now) {
            let split = self.output.split(self.topics.profile(), now);
            split.unwrap_or_else(|refused| self.topics.notice(format!("{refused}: the recording continues")));
        }
        Ok(())
    }

    /// What is due once a second.
    fn tick(&mut self, now_ns: u64, end: bool) -> io::Result<()> {
        if let Some(found) = self.topics.take_settings().filter(|found| *found != self.settings) {
            self.settings.clone_from(&found);
            self.flush()?; // so that what it flushes has no samples
            self.output.attach(settings::attachment(found), now_ns)?;
        }
        for loss in self.losses(end, Self::add_channel)? {
            self.output.loss(&loss, now_ns)?;
        }
        for timing in self.tallies.iter_mut().filter_map(|(_, tally)| tally.take_timing()) {
            self.output.timing(&timing, now_ns)?;
        }
        self.flush()
    }

    /// Losses since the last call, but those on the disk. The thread that looks after topics hands them over; at the `end` nobody receives, and
    /// this thread may ask for them itself.
    fn losses(
        &mut self,
        end: bool,
        channel: impl Fn(&mut Self, &Source) -> io::Result<usize>,
    ) -> io::Result<Vec<Loss>> {
        let mut losses = Vec::new();
        let mut found = self.intake.told_losses();
        if end {
            found.extend(self.topics.losses(true));
        }
        for Lacking { topic, info, lost, dropped, on_the_way } in found {
            let at = self.index(topic, &info, &channel)?;
            let (_, tally) = &mut self.tallies[at];
            if lost.count > 0 {
                losses.extend(tally.lose(lost, on_the_way));
            }
            if dropped.count > 0 {
                losses.push(tally.lose_at(Place::Recorder, dropped));
            }
        }
        Ok(losses)
    }

    fn finish(mut self) -> Summary {
        let begun = self.output.begin(self.topics.profile(), monotonic_ns());
        let (files, last) = (self.output.paths().to_vec(), self.output.path().to_owned());
        let ended = begun.and_then(|()| self.output.finish());
        let failure = ended.err().map(|source| Error::Disk { file: last, source }.to_string());
        Summary { files, channels: merged(self.tallies), failure }
    }

    /// The disk has refused. What is not in the file is counted, and the file is ended where it is whole.
    fn fail(mut self, refused: io::Error) -> Summary {
        self.intake.close();
        let mut further: HashMap<usize, Span> = HashMap::new();
        let nowhere = |_: &mut Self, _: &Source| Ok(usize::MAX);
        loop {
            for (topic, info) in self.batch[self.written..].iter().map(|s| (s.topic, s.info)).collect::<Vec<_>>() {
                if let Ok(at) = self.index(topic, &info, nowhere) {
                    further.entry(at).or_default().add(info.seq);
                }
            }
            self.written = 0;
            if !self.intake.next(&mut self.batch, Duration::ZERO) {
                break;
            }
        }
        let mut losses = self.losses(true, nowhere).unwrap_or_default();
        let tallies = self.tallies.iter_mut().enumerate();
        losses
            .extend(tallies.filter_map(|(at, (_, tally))| tally.lose_on_disk(further.remove(&at).unwrap_or_default())));
        let (files, file) = (self.output.paths().to_vec(), self.output.path().to_owned());
        self.output.cut_off(&losses, monotonic_ns());
        let failure = Some(Error::Disk { file, source: refused }.to_string());
        Summary { files, channels: merged(self.tallies), failure }
    }
}

/// The totals by topic and publisher: one that started again is the same.
fn merged(tallies: Vec<(Arc<Source>, Tally)>) -> Vec<Recorded> {
    let mut all: BTreeMap<(String, String), Recorded> = BTreeMap::new();
    for (_, Tally { totals, .. }) in tallies {
        let key = (totals.topic.clone(), totals.publisher.clone());
        match all.get_mut(&key) {
            None => drop(all.insert(key, totals)),
            Some(sum) => {
                sum.samples += totals.samples;
                sum.bytes += totals.bytes;
                sum.ended += totals.ended;
                Place::ALL.into_iter().for_each(|place| sum.lost.add(place, totals.lost.at(place)));
            }
        }
    }
    all.into_values().collect()
}
