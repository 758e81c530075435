//! Leaving a relay that gives no sign of life. The new way is opened first. Without one the relay's channel continues, and the attempt has
//! lost nothing.

use super::moves::place;
use crate::carrier;
use crate::channel::Channel;
use crate::channel::inbound::Inbound;
use crate::channel::proxy::Proxy;
use crate::driver::control::Control;
use crate::driver::matching::Pair;
use std::sync::Arc;

impl Control {
    /// Looks for a way past the relay that serves this channel, unless a move is under way.
    pub(in crate::driver) fn leave(&mut self, channel: &Arc<Channel>) {
        let pair = (channel.publisher, channel.subscriber);
        let Some(wanted) = self.matching.get(&pair) else { return };
        let is_open = self.is_open(channel);
        if !is_open || self.moves.is_under_way(&pair) {
            return;
        }
        let (offered, asked, proxy) = (wanted.publisher.clone(), wanted.subscriber.clone(), wanted.proxy.clone());
        let at = place(channel).cloned();
        let mut ways = self.ways(pair, &offered, &asked, &proxy);
        ways.retain(|way| Some(&way.place) != at.as_ref() && way.carrier != carrier::Name::Local);
        let way = self.moves.leave(pair, ways);
        self.try_move(pair, way);
    }

    /// One way past a silent relay failed: tries the next one. Without one the channel waits for its relay, and all ways are tried again.
    pub(super) fn leaving_failed(&mut self, pair: Pair) {
        match self.moves.leaving_failed(pair) {
            Some(way) => self.try_move(pair, Some(way)),
            None => drop(self.wait_for_relay(pair)),
        }
    }

    /// The other way is open: the relay's channel ends. The new channel continues after the last sample that the old channel's thread
    /// delivers, so it begins when that thread is done.
    pub(in crate::driver) fn leave_for(&mut self, pair: Pair, inbound: Inbound, asked: &Proxy) {
        let Some(old) = self.open_channel(&pair).cloned() else {
            self.moves.forget(&pair);
            self.begin(pair, inbound);
            return self.settle(pair, asked);
        };
        self.moves.arrives(pair, (Box::new(inbound), asked.clone()));
        old.cut();
    }

    /// The relay's channel has ended: the channel that was opened in its place begins. `false`: none was opened.
    pub(in crate::driver) fn arrive(&mut self, pair: Pair) -> bool {
        let Some((mut inbound, asked)) = self.moves.arrived(pair) else { return false };
        let delivered = self.resume_after(&pair, inbound.channel.incarnation);
        inbound.resume_after(delivered);
        self.begin(pair, *inbound);
        self.settle(pair, &asked);
        true
    }
}
