//! The role that sends back what came, on the thread that received it.

use super::ends::{End, Ends, Ready};
use super::ping::Order;
use super::route::Route;
use crate::error::{Error, Result};
use crate::part::Orders;
use std::sync::mpsc::{Receiver, channel};
use thalweg::codec::Raw;
use thalweg::{Publisher, Subscriber};

/// Name of the role.
pub const ROLE: &str = "pong";

/// Plays the role.
pub fn play(mut orders: Orders) -> Result {
    let end: End = orders.settings()?;
    let ends = Ends::open(&end, "pong")?;
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for route in &end.routes {
        let Some(carrier) = route.carrier() else { continue };
        let publisher = ends.publisher(&route.name, carrier, "pong").open()?;
        let (give, given) = channel();
        held.push((answer(&ends, route, carrier, given)?, route.proxy()));
        waiting.push((publisher, give));
    }
    for (publisher, give) in waiting {
        ends.connected(&publisher)?;
        let _ = give.send(publisher); // fails when the subscriber was closed, and nothing comes
    }
    held.iter().try_for_each(|(subscriber, place)| ends.placed(subscriber, *place))?;
    orders.say(&Ready { ready: true })?;
    while let Some(order) = orders.wait()? {
        match order {
            Order::Priority(priority) => orders.say(&ends.set_priority(&priority)?)?,
            Order::Measure(_) => return Err(Error::Usage("pongs measure nothing".into())),
            Order::Stages(route) => orders.say(&ends.stages(&route)?)?,
        }
    }
    Ok(())
}

/// Answers what comes by a route, once the publisher is given.
fn answer(ends: &Ends, route: &Route, carrier: &str, given: Receiver<Publisher<Raw>>) -> Result<Subscriber<Raw>> {
    let mut publisher = None;
    let builder = Ends::proxied(ends.subscriber(&route.name, carrier, "ping"), route.proxy());
    let subscriber = builder.callback(move |sample| {
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
