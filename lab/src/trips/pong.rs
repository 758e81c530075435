//! The role that sends back what came, on the thread that received it.

use super::CARRIERS;
use super::ends::{End, Ends, Ready};
use super::ping::Order;
use crate::error::{Error, Result};
use crate::part::Orders;
use std::sync::mpsc::{Receiver, channel};
use thalweg::codec::Raw;
use thalweg::{Publisher, Subscriber};

/// Name of the role.
pub const ROLE: &str = "pong";

/// Plays the role.
pub fn play(mut orders: Orders) -> Result {
    let ends = Ends::open(&orders.settings::<End>()?, "pong")?;
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for carrier in CARRIERS {
        let publisher = ends.publisher(carrier, "pong").open()?;
        let (give, given) = channel();
        held.push(answer(&ends, carrier, given)?);
        waiting.push((publisher, give));
    }
    for (publisher, give) in waiting {
        ends.connected(&publisher)?;
        let _ = give.send(publisher); // fails when the subscriber was closed, and nothing comes
    }
    orders.say(&Ready { ready: true })?;
    while let Some(order) = orders.wait()? {
        match order {
            Order::Priority(priority) => orders.say(&ends.set_priority(&priority)?)?,
            Order::Measure(_) => return Err(Error::Usage("pongs measure nothing".into())),
        }
    }
    Ok(())
}

/// Answers what comes by a carrier, once the publisher is given.
fn answer(ends: &Ends, carrier: &str, given: Receiver<Publisher<Raw>>) -> Result<Subscriber<Raw>> {
    let mut publisher = None;
    let subscriber = ends.subscriber(carrier, "ping").callback(move |sample| {
        if publisher.is_none() {
            publisher = given.try_recv().ok();
        }
        // A sample that cannot be sent back is missed at the other end.
        if let Some(publisher) = &mut publisher {
            let _ = publisher.publish(&sample[..]);
        }
    })?;
    Ok(subscriber)
}
