//! The ends of channels that commands name, and the marks and pace of their sockets, which are changed together or not at all.

use super::Refusal;
use super::kept::Marked;
use crate::channel::{Channel, PortRef};
use crate::control::{Direction, PortId};
use crate::driver::control::Control;
use linux::marks::{self, Marks};
use linux::socket;
use qos::Class;
use qos::priority::PrioritySettings;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

/// The publisher's or the subscriber's end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum Side {
    Publisher,
    Subscriber,
}

/// One end of a channel that is open or may open later.
#[derive(Clone, Debug)]
pub(in crate::driver) struct End {
    pub side: Side,
    /// The port of this node.
    pub port: PortId,
    pub name: String,
    pub other: String,
}

impl Control {
    pub(super) fn find_end(&self, name: &str, other: &str) -> Result<End, String> {
        let (side, port) = self.find_port(name)?;
        let direction = self.state.directory().port_named(other).map(|(_, info)| info.direction);
        let same = match side {
            Side::Publisher => direction == Some(Direction::Publisher),
            Side::Subscriber => direction == Some(Direction::Subscriber),
        };
        if same {
            return Err(format!("no channel leads from {name} to {other}: both are {}s", side.name()));
        }
        crate::control::matching::check_name(other).map_err(|wrong| format!("port name {wrong}"))?;
        Ok(End { side, port, name: name.to_owned(), other: other.to_owned() })
    }

    pub(super) fn find_port(&self, name: &str) -> Result<(Side, PortId), String> {
        if let Some((port, _)) = self.state.publisher_named(name) {
            return Ok((Side::Publisher, port));
        }
        let subscriber_ports = self.state.subscriber_ports();
        if let Some((port, _)) =
            subscriber_ports.iter().find(|(_, subscriber_port)| subscriber_port.info().name == name)
        {
            return Ok((Side::Subscriber, *port));
        }
        let publisher_ports = self.state.publisher_ports();
        let names =
            publisher_ports.iter().map(|o| &o.info().name).chain(subscriber_ports.iter().map(|(_, i)| &i.info().name));
        Err(format!("this node has no port {name}: it has {}", listed(names)))
    }

    pub(super) fn channels_at(&self, side: Side, port: PortId) -> Vec<Arc<Channel>> {
        match side {
            Side::Publisher => self.channels_of_publisher(port),
            Side::Subscriber => {
                let subscriber_port = self.state.subscriber_port(port);
                let channels = subscriber_port.and_then(|i| i.channels().lock().map(|channels| channels.clone()).ok());
                channels.unwrap_or_default().into_iter().filter(|channel| !channel.is_closed()).collect()
            }
        }
    }

    pub(super) fn channel_of(&self, end: &End) -> Option<Arc<Channel>> {
        self.channels_of(end).pop()
    }

    /// The open channels of an end, the newest last: two while its proxy moves.
    pub(super) fn channels_of(&self, end: &End) -> Vec<Arc<Channel>> {
        let channels = self.channels_at(end.side, end.port);
        let its =
            |channel: &&Arc<Channel>| *end.side.other_name(channel) == end.other && !is_claimed(&channels, channel);
        channels.iter().filter(its).cloned().collect()
    }

    /// `true` for a channel at a publisher's end that somebody asked for in the name of a subscriber which has one.
    pub(super) fn is_claimed(&self, end: &End, channel: &Channel) -> bool {
        end.side == Side::Publisher && is_claimed(&self.channels_at(end.side, end.port), channel)
    }

    /// The text that a channel does not exist, with the channels that do.
    pub(super) fn no_channel(&self, end: &End) -> String {
        let channels = self.channels_at(end.side, end.port);
        let names = listed(channels.iter().map(|channel| end.side.other_name(channel)));
        format!("{} has no channel with {}: it has channels with {names}", end.name, end.other)
    }
}

impl Side {
    pub(in crate::driver) fn name(self) -> &'static str {
        match self {
            Side::Publisher => "publisher",
            Side::Subscriber => "subscriber",
        }
    }
    pub(super) fn port(self, channel: &Channel) -> PortRef {
        if self == Side::Publisher { channel.publisher } else { channel.subscriber }
    }
    fn own_name(self, channel: &Channel) -> &String {
        if self == Side::Publisher { &channel.publisher_name } else { &channel.subscriber_name }
    }
    pub(super) fn other_name(self, channel: &Channel) -> &String {
        if self == Side::Publisher { &channel.subscriber_name } else { &channel.publisher_name }
    }
}

impl End {
    pub(super) fn of(side: Side, channel: &Channel) -> Self {
        let (name, other) = (side.own_name(channel).clone(), side.other_name(channel).clone());
        End { side, port: side.port(channel).port, name, other }
    }
    pub(super) fn key(&self) -> (String, String) {
        (self.name.clone(), self.other.clone())
    }
}

/// `true` if a channel's subscriber is that of an older one by name and number, but does not have its token, and so is another one: settings
/// for the ends of the older one are not for it.
fn is_claimed(channels: &[Arc<Channel>], channel: &Channel) -> bool {
    let ports = |of: &Channel| (of.publisher, of.subscriber);
    let mut older = channels.iter().take_while(|other| other.id != channel.id);
    older.any(|other| {
        ports(other) == ports(channel) && other.token.get().is_some() && other.token.get() != channel.token.get()
    })
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    const MOST: usize = 16;
    let names: Vec<&str> = names.map(String::as_str).collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > MOST => format!("{} and {} more", names[..MOST].join(", "), count - MOST),
        _ => names.join(", "),
    }
}

/// The former marks and pace of a socket.
pub(super) struct Before {
    socket: Arc<dyn AsFd + Send + Sync>,
    marks: Marks,
    pace: Option<u64>,
}

/// The sockets by which packets of the channel leave this end.
pub(super) fn sockets(channel: &Channel) -> Vec<Arc<dyn AsFd + Send + Sync>> {
    channel.sockets.get().into_iter().flatten().filter_map(Weak::upgrade).collect()
}

/// Marks all sockets of the channel, and paces the first, which sends its data. Returns their former settings.
pub(super) fn change_sockets(channel: &Channel, to: &Marked) -> Result<Vec<Before>, Refusal> {
    let mut changed: Vec<Before> = Vec::new();
    for socket in sockets(channel) {
        let to = Marked { pace: to.pace.filter(|_| changed.is_empty()), ..*to };
        match change(socket, &to) {
            Ok(before) => changed.push(before),
            Err(error) => {
                put_back(changed);
                return Err(refusal(&to, &error));
            }
        }
    }
    Ok(changed)
}

/// Gives sockets their former settings. A socket that is gone meanwhile is passed over.
pub(super) fn put_back(changed: Vec<Before>) {
    for Before { socket, marks, pace } in changed {
        let _ = marks::put_back(socket.as_fd(), &marks);
        let _ = socket::set_pace(socket.as_fd(), pace);
    }
}

/// Tries whether this process may have these settings, before there are a socket and a thread to apply them to.
pub(super) fn try_out(wanted: &PrioritySettings) -> Result<(), Refusal> {
    let to = Marked { pace: None, ..Marked::new(wanted, Class::default(), Side::Subscriber) };
    if let Ok(socket) = UdpSocket::bind("127.0.0.1:0") {
        set(socket.as_fd(), &to).map_err(|error| refusal(&to, &error))?;
    }
    if wanted.wants_own_thread() {
        let settings = linux::thread::Settings {
            affinity: wanted.affinity.clone(),
            scheduling: wanted.sched,
            ..linux::thread::Settings::named("channel")
        };
        let (thread, _) = linux::thread::start(settings, || ()).map_err(Refusal::kernel)?;
        let _ = thread.join();
    }
    Ok(())
}

fn change(socket: Arc<dyn AsFd + Send + Sync>, to: &Marked) -> io::Result<Before> {
    let (marks, pace) = (marks::read(socket.as_fd())?, socket::pace(socket.as_fd())?);
    let before = Before { socket, marks, pace };
    let result = set(before.socket.as_fd(), to);
    if let Err(error) = result {
        put_back(vec![before]);
        return Err(error);
    }
    Ok(before)
}

fn set(socket: BorrowedFd<'_>, to: &Marked) -> io::Result<()> {
    marks::set(socket, &to.mark, to.priority)?;
    socket::set_pace(socket, to.pace)
}

fn refusal(to: &Marked, error: &io::Error) -> Refusal {
    let Marked { mark, priority, .. } = to;
    let remedy = if *priority > 6 && error.kind() == io::ErrorKind::PermissionDenied {
        "a socket priority above 6 needs CAP_NET_ADMIN: say priority=6 or less, or `setcap cap_net_admin+ep PROGRAM`"
    } else {
        crate::error::remedy(error)
    };
    Refusal::Kernel(format!("{mark} with socket priority {priority}: {error}; {remedy}"))
}
