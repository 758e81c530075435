//! Marks and pace of a channel's sockets, changed together or not at all.

use super::kept::Marked;
use super::{Refusal, Side};
use crate::channel::Channel;
use linux::marks::{self, Marks};
use linux::socket;
use qos::Class;
use qos::priority::PrioritySettings;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

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
