//! The stages of streams that this node hosts, at the sending end.

use crate::driver::control::Control;
use crate::port::AnyOutlet;
use crate::trace::stages::{End, Stage, StagesReport};

impl Control {
    /// Stage `publish` is the way from the source to this node. It is known only if both read one clock.
    pub(in crate::driver) fn stages_of_hosted(&self, topic: &str) -> Vec<StagesReport> {
        let channels = self.relay.streams.iter().flat_map(|(_, hosted)| hosted.outlet.channels());
        let mut reports = Vec::new();
        for channel in channels.filter(|channel| channel.topic == topic) {
            let Some(mut report) = channel.stages_report(End::Relay) else { continue };
            if self.source(channel.publisher.node).1 != self.state.clock {
                report.stages_us.remove(Stage::Publish.name());
            }
            reports.push(report);
        }
        reports
    }
}
