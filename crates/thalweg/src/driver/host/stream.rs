//! The middle of a hosted stream: its subscriber at the source, and the processing of each sample.

use crate::carrier;
use crate::channel::proxy::scaler::Scaler;
use crate::channel::proxy::{Picture, Selection};
use crate::codec::Untyped;
use crate::control::{Direction, PortInfo};
use crate::port::{AnyOutlet, Inlet, Outlet, Sample};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// Forwards each sample of a source, scaled if asked. A sample that cannot be scaled is left out, and counted as one that could not be
/// decoded.
pub(super) fn forwarder(
    outlet: Arc<Outlet<Untyped>>,
    mut scaler: Option<(Box<dyn Scaler>, Picture)>,
    inlet: Weak<Inlet<Untyped>>,
) -> impl FnMut(Sample<'_, Untyped>) + Send {
    let mut scaled = Vec::new();
    move |sample| {
        let Some((scaler, picture)) = &mut scaler else { return outlet.forward(sample.info(), &sample) };
        scaled.clear();
        match scaler.scale(&sample, *picture, &mut scaled) {
            Ok(()) => outlet.forward(sample.info(), &scaled),
            Err(why) => {
                let inlet = inlet.upgrade();
                inlet.iter().for_each(|inlet| inlet.cannot_decode(&why.to_string()));
                for channel in outlet.channels() {
                    channel.counters.unscalable.fetch_add(1, Relaxed);
                }
            }
        }
    }
}

/// The subscriber that takes a stream from its source: whole, as it is offered, and connected by name alone. If pictures are scaled,
/// samples that no subscriber wants are left out before.
pub(super) fn upstream(offered: &PortInfo, name: String, picture: Option<(Picture, Selection)>) -> PortInfo {
    let mut qos = offered.qos.clone();
    if let Some((_, selection)) = picture {
        qos.scale = selection.into();
    }
    let topic = name.clone();
    // Within this process a publisher hands over values of its own type only.
    let carriers = offered.carriers.iter().filter(|carrier| **carrier != carrier::Name::Local).cloned().collect();
    PortInfo { name, topic, qos, carriers, direction: Direction::Subscriber, answers: None, ..offered.clone() }
}
