//! The thread that connects, and reads what comes.

#![allow(clippy::disallowed_methods)] // it reads the clock

use super::super::dial::{Dialled, Presence, Refusal, WINDOW};
use super::super::packet;
use super::{AT_ONCE, Link, Runs, Shared, State};
use crate::lock;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, PubAck, PubAckReason, Publish};
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Pauses between attempts to connect: the first, and the longest one.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Connects again and again, until it is told to stop.
    pub(super) fn run(&self) {
        let _runs = Runs(self);
        let mut pause = PAUSE;
        while !lock(&self.state).stop {
            let began = Instant::now();
            let refusal = match self.place.dial() {
                Ok(dialled) => Refusal { why: self.serve(dialled), lasts: false },
                Err(refusal) => refusal,
            };
            let mut state = lock(&self.state);
            if let Some(stream) = state.stream() {
                let _ = stream.shutdown(Shutdown::Both);
            }
            if state.stream().is_some() || !state.stop {
                state.link = Link::Down(refusal); // else the other thread has said why
            }
            self.changed.notify_all();
            if began.elapsed() >= LONGEST_PAUSE {
                pause = PAUSE;
            }
            let waited = self.changed.wait_timeout_while(state, pause, |state| !state.stop);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Reads until the connection ends; gives the reason.
    fn serve(&self, dialled: Dialled) -> String {
        let stream = Arc::new(dialled.stream);
        if !self.begin(stream.clone(), dialled.window, dialled.largest, dialled.ping) {
            // Without its last will, which would end the presence of one who has come meanwhile.
            let _ = (&*stream).write_all(packet::goodbye(false));
            return "it is not wanted any more".to_owned();
        }
        let mut from = BufReader::with_capacity(AT_ONCE, &*stream);
        loop {
            let read = packet::read(&mut from, self.place.largest());
            if let Err(why) = read.map_err(|error| reason(&error)).and_then(|packet| self.handle(packet)) {
                return why;
            }
        }
    }

    /// Asks for all subscriptions, and sends what the broker has not acknowledged. `false`: the connection has been dropped meanwhile.
    fn begin(&self, stream: Arc<TcpStream>, window: u16, largest: u32, ping: Duration) -> bool {
        let mut state = lock(&self.state);
        if state.stop {
            return false;
        }
        let State { outbox, subscriptions, .. } = &mut *state;
        for sample in outbox.begin(window, largest as usize) {
            let topic = String::from_utf8_lossy(&sample.topic);
            self.refusals.add(format!("a sample of {topic} that is larger than this broker takes, {largest} bytes"));
        }
        subscriptions.begin(|| outbox.id()).into_iter().for_each(|packet| outbox.put_control(packet));
        if let Some(Presence { topic, known }) = &self.place.presence {
            lock(known).clear();
            let mut presence = Publish::new(topic, QoS::AtMostOnce, &b"1"[..], None);
            presence.retain = true;
            outbox.put_control(Packet::Publish(presence));
        }
        (state.largest, state.ping, state.link) = (largest, ping, Link::Up(stream));
        self.work.notify_one();
        self.changed.notify_all();
        true
    }

    fn handle(&self, packet: Packet) -> std::result::Result<(), String> {
        match packet {
            Packet::Publish(sample) if sample.qos != QoS::ExactlyOnce && !sample.topic.is_empty() => {
                return self.take(&sample);
            }
            Packet::PubAck(answer) => self.acknowledged(&answer),
            Packet::SubAck(answer) => {
                let refused = lock(&self.state).subscriptions.answered(answer.pkid, &answer.return_codes);
                if let Some(path) = refused {
                    self.refusals.add(format!("the broker refuses the subscription to {path}"));
                }
                self.changed.notify_all();
            }
            Packet::PingResp(_) => lock(&self.state).subscriptions.ponged(),
            Packet::UnsubAck(_) => {}
            Packet::Disconnect(end) => return Err(format!("it ended the connection: {:?}", end.reason_code)),
            _ => return Err("it sent a packet that nobody asked for".to_owned()),
        }
        Ok(())
    }

    fn take(&self, sample: &Publish) -> std::result::Result<(), String> {
        let targets = lock(&self.state).subscriptions.of(sample);
        targets.iter().for_each(|(target, round)| target.take(sample, *round));
        if sample.pkid == 0 { Ok(()) } else { self.acknowledge(sample.pkid) }
    }

    /// Tells the broker that a sample has come, once there is room for that. Mosquitto before 2.0.13 sends more samples than this end takes
    /// without acknowledgement (its Receive Maximum): those wait in the socket, because with the connection all that the broker has for it is lost.
    fn acknowledge(&self, id: u16) -> std::result::Result<(), String> {
        let mut put = false;
        drop(self.wait(lock(&self.state), |state| {
            put = state.outbox.put_acknowledgement(id);
            !put && !state.stop
        }));
        if !put {
            return Err(format!("it sends more than {WINDOW} samples, and takes no acknowledgement of them"));
        }
        self.work.notify_one();
        Ok(())
    }

    fn acknowledged(&self, answer: &PubAck) {
        let sample = lock(&self.state).outbox.acknowledge(answer.pkid);
        self.work.notify_one();
        self.changed.notify_all();
        let had = matches!(answer.reason, PubAckReason::Success | PubAckReason::NoMatchingSubscribers);
        if let Some(sample) = sample.filter(|_| !had) {
            let topic = String::from_utf8_lossy(&sample.topic);
            self.refusals.add(format!("the broker refuses a sample of {topic}: {:?}", answer.reason));
        }
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".to_owned(),
        _ => error.to_string(),
    }
}
