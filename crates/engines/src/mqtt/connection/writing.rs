//! The thread that writes what waits, and asks the broker whether it is there.

#![allow(clippy::disallowed_methods)] // it reads the clock

use super::super::packet;
use super::{AT_ONCE, PATIENCE, Shared, State};
use crate::lock;
use bytes::BytesMut;
use rumqttc::v5::mqttbytes::v5::{Packet, PingReq};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

impl Shared {
    /// Writes until it is told to stop.
    pub(super) fn write(&self) {
        let mut bytes = BytesMut::new();
        let mut pinged = Instant::now();
        while let Some(stream) = self.gather(&mut bytes, &mut pinged) {
            if (&*stream).write_all(&bytes).is_err() {
                let _ = stream.shutdown(Shutdown::Both); // the reading thread sees its end
            }
            bytes.clear();
            if bytes.capacity() > 16 * AT_ONCE {
                bytes = BytesMut::new();
            }
        }
    }

    /// Waits for something to send, and encodes it. `None`: nothing will come, and the connection is closed.
    fn gather(&self, bytes: &mut BytesMut, pinged: &mut Instant) -> Option<Arc<TcpStream>> {
        let mut state = lock(&self.state);
        loop {
            if state.stop {
                self.say_goodbye(&state);
                return None;
            }
            if let Some(stream) = state.stream().cloned() {
                if pinged.elapsed() >= state.ping {
                    *pinged = Instant::now();
                    state.outbox.put_control(Packet::PingReq(PingReq));
                }
                while bytes.len() < AT_ONCE {
                    let Some(packet) = state.outbox.take() else { break };
                    if let (Err(error), Packet::Publish(sample)) = (packet::write(&packet, bytes), &packet) {
                        state.outbox.acknowledge(sample.pkid);
                        self.tally.refuse(format!("a sample of {:?}: {error}", sample.topic));
                    }
                }
                if !bytes.is_empty() {
                    self.changed.notify_all();
                    return Some(stream);
                }
            }
            let asks = state.stream().map(|_| state.ping.saturating_sub(pinged.elapsed()));
            let rest = asks.map_or(PATIENCE, |rest| rest.max(Duration::from_millis(1)));
            state = self.work.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn say_goodbye(&self, state: &State) {
        let Some(stream) = state.stream() else { return };
        let _ = (&**stream).write_all(packet::goodbye(self.place.presence.is_some()));
        let _ = stream.shutdown(Shutdown::Both);
    }
}
