//! The class of each flow: the cheapest with which all domains together keep its deadline.

use super::Crossing;
use agent::peer::{Flow, Menu, Part, Refused};
use qos::contract::flow;
use qos::{Class, show_time};

/// A flow as it comes into the first domain: at its publisher, in any class unless the user fixed one.
pub(super) fn as_it_enters(flow: flow::Flow) -> Flow {
    let flow::Flow {
        topic,
        publisher,
        subscriber,
        domain,
        node,
        size,
        period,
        burst,
        jitter,
        hand,
        deadline,
        scale,
        source,
        scale_max,
        importance,
        police,
        ..
    } = flow;
    let classes = flow.class.map_or_else(|| Class::ALL.to_vec(), |class| vec![class]);
    let before = classes.into_iter().map(|class| (class, 0)).collect();
    let enters = publisher.clone();
    // The way from the application to the middleware and back is no domain's: it is part of the bound from the beginning.
    Flow {
        topic,
        publisher,
        subscriber,
        domain,
        node,
        enters,
        size,
        period,
        burst,
        jitter,
        before,
        scale,
        scale_max: scale_max.unwrap_or(0),
        importance,
        bound: Some(hand),
        deadline,
        source,
        destination: None,
        police,
    }
}

/// Joins the menus of a domain behind with those from here.
pub(super) fn join(crossing: &mut Crossing, flows: &[usize], menus: Vec<Menu>, from: &str) -> Result<(), Refused> {
    let malformed = |because: &str| Refused {
        domain: from.to_owned(),
        what: format!("answer of domain {from}"),
        because: because.to_owned(),
        ..Refused::default()
    };
    if menus.len() != flows.len() {
        return Err(malformed("it has not one menu for each flow"));
    }
    for (flow, behind) in flows.iter().zip(menus) {
        let Some(own) = crossing.menus.get_mut(*flow) else { continue };
        let joined = |(class, parts): (&Class, &Vec<Part>)| {
            let behind = behind.get(class).filter(|behind| !behind.is_empty())?;
            Some((*class, parts.iter().chain(behind).cloned().collect()))
        };
        let both: Menu = own.iter().filter_map(joined).collect();
        if both.is_empty() {
            let words = |menu: &Menu| menu.keys().map(|class| class.name()).collect::<Vec<_>>().join(" or ");
            return Err(Refused {
                domain: from.to_owned(),
                what: format!("class of {} in all domains", crossing.flows[*flow].subscriber),
                needs: words(own),
                has: words(&behind),
                because: "a flow has one class from end to end".to_owned(),
                ..Refused::default()
            });
        }
        *own = both;
    }
    Ok(())
}

/// The longest delay of a way, ns.
pub(super) fn bound(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.bound).fold(0, u64::saturating_add)
}

fn price(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.price).fold(0, u64::saturating_add)
}

/// Chooses a class for each flow; its menu has that alone then. Of equally cheap ones the lowest.
pub(super) fn choose(crossing: &mut Crossing) -> Result<(), Refused> {
    for (flow, menu) in crossing.flows.iter_mut().zip(&mut crossing.menus) {
        let hand = flow.bound.unwrap_or(0);
        let delay = |parts: &[Part]| bound(parts).saturating_add(hand);
        let in_time = |parts: &[Part]| flow.deadline.is_none_or(|deadline| delay(parts) <= deadline);
        let fit = menu.iter().filter(|(_, parts)| in_time(parts));
        let Some((class, parts)) = fit.min_by_key(|(class, parts)| (price(parts), **class)) else {
            return Err(late(flow, menu));
        };
        let (class, parts) = (*class, parts.clone());
        (flow.bound, flow.before) = (Some(delay(&parts)), [(class, 0)].into());
        flow.destination = parts.last().and_then(|last| last.address);
        *menu = [(class, parts)].into();
    }
    Ok(())
}

/// No class is fast enough.
fn late(flow: &Flow, menu: &Menu) -> Refused {
    let hand = flow.bound.unwrap_or(0);
    let time = |ns: u64| show_time(ns as f64 / 1e3);
    let fastest = menu.values().min_by_key(|parts| bound(parts));
    let (needs, because) = fastest.map_or_else(Default::default, |parts| {
        let each: Vec<String> = parts.iter().map(|part| format!("{} {}", part.domain, time(part.bound))).collect();
        (time(bound(parts).saturating_add(hand)), format!("the fastest pipes with room promise {}", each.join(", ")))
    });
    Refused {
        domain: flow.domain.clone(),
        what: format!("deadline of {}", flow.subscriber),
        needs,
        has: time(flow.deadline.unwrap_or(0)),
        because,
        ..Refused::default()
    }
}
