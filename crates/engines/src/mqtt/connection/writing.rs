//! The thread that writes what waits, and asks the broker whether it is there.

#![allow(clippy::disallowed_methods)] // it reads the clock

use super::super::dial::STALLED;
use super::super::packet;
use super::{AT_ONCE, PATIENCE, Runs, Shared};
use crate::lock;
use bytes::BytesMut;
use rumqttc::v5::mqttbytes::v5::{Packet, PingReq};
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

impl Shared {
    /// Writes until it is told to stop.
    pub(super) fn write(&self) {
        let _runs = Runs(self);
        let _silence = Silence(self);
        let mut bytes = BytesMut::new();
        let mut pinged = Instant::now();
        while let Some(stream) = self.gather(&mut bytes, &mut pinged) {
            if send(&stream, &bytes).is_err() {
                let _ = stream.shutdown(Shutdown::Both); // the reading thread sees its end
            }
            bytes.clear();
            if bytes.capacity() > 16 * AT_ONCE {
                bytes = BytesMut::new();
            }
        }
        self.say_goodbye();
    }

    /// Waits for something to send, and encodes it. `None`: nothing will come.
    fn gather(&self, bytes: &mut BytesMut, pinged: &mut Instant) -> Option<Arc<TcpStream>> {
        let mut state = lock(&self.state);
        loop {
            if state.stop {
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
                        self.refusals.add(format!("a sample of {:?}: {error}", sample.topic));
                        self.changed.notify_all(); // there is room again
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

    fn say_goodbye(&self) {
        // Nobody else waits for the lock while a broker does not read.
        let Some(stream) = lock(&self.state).stream().cloned() else { return };
        let _ = send(&stream, packet::goodbye(self.place.presence.is_some()));
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Says at its end that the writing thread has ended.
struct Silence<'a>(&'a Shared);

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).silent = true;
        self.0.changed.notify_all();
    }
}

/// Writes all of it. Each call of the system takes at most [`STALLED`]; all of them together that and a second for each [`AT_ONCE`] bytes:
/// a broker that takes less is none.
fn send(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let (began, most) = (Instant::now(), STALLED + Duration::from_secs((bytes.len() / AT_ONCE) as u64));
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if !bytes.is_empty() && began.elapsed() >= most {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}
