//! The way to a broker: a marked TCP connection, and its first two packets.

use super::packet;
use crate::engine::{Error, Result};
use bytes::{Bytes, BytesMut};
use qos::Class;
use qos::priority::Mark;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnAckProperties, Connect, ConnectProperties, ConnectReturnCode, LastWill, Login, Packet,
};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thalweg::control::NodeId;

/// The port of brokers (IANA, `mqtt`).
const PORT: u16 = 1883;
/// Wait for a TCP connection, and for the broker's answer to the first packet.
const PATIENCE: Duration = Duration::from_secs(3);
/// A broker that takes no byte for so long is gone.
pub(super) const STALLED: Duration = Duration::from_secs(5);
/// A broker that sends nothing for one and a half times this is gone. It is asked twice in this time.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Samples that the broker may send before they are acknowledged.
pub(super) const WINDOW: u16 = 256;
/// Bytes of a packet beside the message: topic and properties.
const AROUND: u32 = 128 << 10;

/// A broker, and who this is there.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) client: String,
    pub(super) class: Class,
    /// Bytes.
    pub(super) max_message: u32,
    /// Of a bridge.
    pub(super) presence: Option<Presence>,
}

/// A retained message of a bridge, which is there while its connection lasts.
#[derive(Clone)]
pub(super) struct Presence {
    pub(super) topic: String,
    /// The bridges whose messages are there. A connection that is lost may have missed that one has gone: a new one gets all of them anew.
    pub(super) known: Arc<Mutex<BTreeSet<NodeId>>>,
}

/// An open connection.
pub(super) struct Dialled {
    pub(super) stream: TcpStream,
    /// Samples that the broker takes before it has acknowledged them.
    pub(super) window: u16,
    /// Largest packet that it takes, in bytes.
    pub(super) largest: u32,
    /// Pause between two questions whether it is there.
    pub(super) ping: Duration,
}

/// The reason why there is no connection.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) why: String,
    /// It will be the same the next time.
    pub(super) lasts: bool,
}

fn refusal(why: impl ToString) -> Refusal {
    Refusal { why: why.to_string(), lasts: false }
}

/// Host and port of `HOST`, `HOST:PORT` or `mqtt://HOST:PORT`.
///
/// # Errors
/// [`Error::Usage`] for anything else.
pub(super) fn address(text: &str) -> Result<(String, u16)> {
    let wrong = || Error::Usage(format!("broker {text:?}: HOST or HOST:PORT is expected, such as 10.0.0.1:{PORT}"));
    let rest = text.strip_prefix("mqtt://").unwrap_or(text);
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?)
        }
        _ => (rest, PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host.contains(['/', '@', ' ']) {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

impl Place {
    /// Largest packet that this end takes, without its first bytes.
    pub(super) fn largest(&self) -> u32 {
        self.max_message.saturating_add(AROUND).min(packet::LARGEST)
    }

    /// Connects. Takes at most [`PATIENCE`] for each address of the host, and for the answer.
    pub(super) fn dial(&self) -> std::result::Result<Dialled, Refusal> {
        let mut stream = self.reach()?;
        self.introduce(&mut stream).map_err(refusal)?;
        let answer = packet::read(&mut stream, self.largest()).map_err(refusal)?;
        let Packet::ConnAck(answer) = answer else { return Err(refusal("its first packet is no CONNACK")) };
        self.agreed(stream, &answer)
    }

    fn reach(&self) -> std::result::Result<TcpStream, Refusal> {
        let addresses = (&self.host[..], self.port).to_socket_addrs().map_err(refusal)?;
        let mut last = refusal("the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    self.prepare(&stream).map_err(refusal)?;
                    return Ok(stream);
                }
                Err(error) => last = refusal(error),
            }
        }
        Err(last)
    }

    fn prepare(&self, stream: &TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(STALLED))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mark = Mark::Class(self.class);
        linux::marks::set(stream.as_fd(), &mark, mark.socket_priority())
    }

    fn introduce(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let properties = ConnectProperties {
            receive_maximum: Some(WINDOW),
            max_packet_size: Some(self.largest()),
            ..ConnectProperties::new()
        };
        let connect = Connect {
            keep_alive: KEEP_ALIVE.as_secs() as u16,
            client_id: self.client.clone(),
            clean_start: true,
            properties: Some(properties),
        };
        let will = self.presence.as_ref().map(|presence| LastWill {
            topic: Bytes::from(presence.topic.clone()),
            message: Bytes::new(), // empty and retained: the topic has none any more
            qos: QoS::AtLeastOnce,
            retain: true,
            properties: None,
        });
        let login = (!self.user.is_empty()).then(|| Login::new(&self.user[..], &self.password[..]));
        let mut bytes = BytesMut::new();
        packet::write(&Packet::Connect(connect, will, login), &mut bytes)?;
        stream.write_all(&bytes)
    }

    fn agreed(&self, stream: TcpStream, answer: &ConnAck) -> std::result::Result<Dialled, Refusal> {
        use ConnectReturnCode::{
            BadAuthenticationMethod, BadUserNamePassword, ClientIdentifierNotValid, NotAuthorized, Success,
            UnsupportedProtocolVersion,
        };
        let lasts = matches!(
            answer.code,
            BadAuthenticationMethod
                | BadUserNamePassword
                | ClientIdentifierNotValid
                | NotAuthorized
                | UnsupportedProtocolVersion
        );
        if answer.code != Success {
            return Err(Refusal { why: format!("it refuses: {:?}", answer.code), lasts });
        }
        let properties = answer.properties.as_ref();
        let asked = |value: fn(&ConnAckProperties) -> Option<u8>| properties.and_then(value);
        for (value, lacks) in [
            (asked(|all| all.max_qos), "QoS 1"),
            (asked(|all| all.retain_available), "retained messages"),
            (asked(|all| all.subscription_identifiers_available), "subscription identifiers"),
        ] {
            if value == Some(0) {
                return Err(Refusal { why: format!("it has no {lacks}, which a bridge needs"), lasts: true });
            }
        }
        let server = properties.and_then(|all| all.server_keep_alive).filter(|seconds| *seconds > 0);
        let keep_alive = server.map_or(KEEP_ALIVE, |seconds| Duration::from_secs(seconds.into()).min(KEEP_ALIVE));
        stream.set_read_timeout(Some(keep_alive * 3 / 2)).map_err(refusal)?;
        let largest = properties.and_then(|all| all.max_packet_size).unwrap_or(packet::LARGEST);
        let window = properties.and_then(|all| all.receive_max).unwrap_or(u16::MAX).max(1);
        Ok(Dialled { stream, window, largest, ping: keep_alive / 2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("10.0.0.1:1884", "10.0.0.1", 1884),
            ("robot.local", "robot.local", 1883),
            ("mqtt://robot.local:8883", "robot.local", 8883),
            ("[fd00::1]:1884", "fd00::1", 1884),
            ("[fd00::1]", "fd00::1", 1883),
            ("fd00::1", "fd00::1", 1883),
        ] {
            assert_eq!(address(text), Ok((host.to_owned(), port)), "{text}");
        }
        for wrong in ["", ":1883", "a:b", "a:0", "http://a", "user@a", "a:70000"] {
            assert!(matches!(address(wrong), Err(Error::Usage(text)) if text.contains("HOST:PORT")), "{wrong}");
        }
    }
}
