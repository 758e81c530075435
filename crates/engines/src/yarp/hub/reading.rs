//! How much of what comes is read and carried out before others have their turn.

use super::super::frame::Heard;
use super::super::port::Role;
use super::{Connection, Loop, Side};
use std::io;

/// Reads before the next connection has its turn.
const READS: usize = 16;
/// Bytes of messages that have not come as a whole, of all connections; or four of the largest.
const MOST_RECEIVED: usize = 512 << 20;

impl Loop {
    /// Reads what has come; `false`: the connection is over.
    pub(super) fn read(&mut self, connection: &mut Connection) -> Result<bool, String> {
        let mut turn = self.heed(connection)?;
        for _ in 0..READS {
            if let Some(goes_on) = turn {
                return Ok(goes_on);
            }
            let count = match linux::socket::receive_stream(connection.link.fd(), &mut self.buffer, false) {
                Ok(0) => return Ok(false),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Ok(false),
            };
            match &mut connection.side {
                Side::Out(acknowledgements) => acknowledgements.push(&self.buffer[..count])?,
                Side::In(receiver, ..) => receiver.push(&self.buffer[..count]),
            }
            turn = self.heed(connection)?;
        }
        Ok(turn.unwrap_or(true))
    }

    /// Carries out what was read, one command and any number of samples; `None`: more can be read, else whether the connection goes on.
    fn heed(&mut self, connection: &mut Connection) -> Result<Option<bool>, String> {
        while let Side::In(receiver, ..) = &mut connection.side {
            if connection.link.is_over() {
                return Ok(Some(false));
            }
            if connection.link.is_busy() {
                return Ok(Some(true)); // nothing is done for who does not read the answers
            }
            let Some(heard) = receiver.next()? else { break };
            let is_sample = matches!((&heard, &connection.port.role), (Heard::Data(_), Role::In(_)));
            if !self.act(connection, heard)? {
                return Ok(Some(false));
            }
            if !is_sample {
                self.left.insert(connection.link.token);
                return Ok(Some(true));
            }
        }
        Ok(None)
    }

    /// Counts what waits for more bytes. Of too many in all, whoever has the most must go.
    pub(super) fn count(&mut self, connection: &mut Connection) -> Result<(), String> {
        let held = if let Side::In(receiver, ..) = &connection.side { receiver.held() } else { 0 };
        self.received = self.received - connection.held + held;
        connection.held = held;
        let most = MOST_RECEIVED.max(self.hub.largest.saturating_mul(4));
        if self.received <= most {
            return Ok(());
        }
        let why = format!("all connections wait for the rest of {} bytes, at most {most} are taken", self.received);
        let largest = self.connections.values().max_by_key(|other| other.held).filter(|other| other.held > held);
        let Some(token) = largest.map(|other| other.link.token) else { return Err(why) };
        if let Some(other) = self.connections.remove(&token) {
            self.hub.refuse(format!("{} from {}: {why}", other.port.name, other.link.peer()));
            self.remove(&other);
        }
        Ok(())
    }
}
