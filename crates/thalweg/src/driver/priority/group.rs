//! Members of a multicast group that want a priority of their own.

use super::kept::Source;
use super::{End, Side};
use crate::admin;
use crate::channel::Channel;
use crate::driver::calls::Asker;
use crate::driver::control::Control;
use qos::priority::PrioritySettings;
use std::time::Instant;

impl Control {
    /// `true` if this is the sending end of a multicast channel: one send has one mark for all members.
    pub(super) fn sends_to_group(&self, end: &End, channel: &Channel) -> bool {
        end.side == Side::Publisher && self.is_multicast(channel)
    }

    fn is_multicast(&self, channel: &Channel) -> bool {
        self.state.carrier(&channel.carrier).is_some_and(|carrier| carrier.capabilities().multicast)
    }

    /// Gives a member a flow of its own over udp: one send can neither carry two marks nor leave on two threads.
    pub(super) fn rehome(&mut self, end: &End, channel: &Channel) -> Result<String, String> {
        let (publisher, subscriber) = (end.name.clone(), end.other.clone());
        let note = format!(
            "re-homed from {} to unicast udp, because one multicast send has one mark for all members: connected anew, \
             samples published meanwhile may be lost",
            channel.carrier
        );
        if channel.subscriber.node == self.state.id {
            return match self.connect(publisher, subscriber, Some("udp".into())) {
                admin::Reply::No(why) => Err(why),
                _ => Ok(note),
            };
        }
        let request = admin::pack(&admin::Request::Connect { publisher, subscriber, carrier: Some("udp".into()) });
        let (id, to) = (self.calls.number(), channel.subscriber.node);
        if !self.discoveries.call(to, id, &request) {
            return Err(format!("{} has to connect by udp for it, and its node cannot be asked now", end.other));
        }
        self.calls.forget_rehoming(&end.key());
        self.calls.sent(id, to, Asker::Rehoming(end.key()), Instant::now());
        Ok(note)
    }

    /// The subscriber's node answered: a member that stays in its group keeps the group's priority.
    pub(in crate::driver) fn rehomed(&mut self, key: (String, String), answer: &[u8]) {
        if let Err(why) = admin::unpack(answer) {
            self.warn(format!("{} to {} keeps its group's priority: {why}", key.0, key.1));
            self.keep(key, PrioritySettings::default(), Source::Set);
        }
    }
}
