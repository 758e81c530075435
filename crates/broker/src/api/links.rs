//! Links that carry less than the contract says: what agents report and users state, and the plans that follow.

use super::sessions::Clock;
use super::{Answer, Broker, OwnHost, Refused, Shared, User};
use crate::degradation::{AT_LEISURE, adapt};
use crate::hosts::Kept;
use crate::links::measured::Hysteresis;
use crate::links::{Links, Rates, Unstated};
use crate::planning::{Change, Present, Unadmitted};
use agent::message::{self, Carrier, LONGEST_NAME, MOST_DEVICES, Rate};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use qos::contract::Contract;
use qos::contract::rule::Right;
use qos::placement::Watch;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest time between two looks at the links.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time after which links are planned for again for which no plan was found, or that the disk did not take.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// The links for which there is no plan.
#[derive(Debug)]
pub(super) struct Unplanned {
    links: Rates,
    because: String,
    at: Duration,
}

/// The clock of a search that nobody waits for. It has no time left when links have changed.
pub(super) struct Meanwhile {
    broker: Arc<Broker>,
    links: Rates,
    clock: Clock,
}

impl Meanwhile {
    /// While links are these.
    pub(super) fn new(broker: Arc<Broker>, links: Rates) -> Self {
        Self { broker, links, clock: super::sessions::clock() }
    }
}

impl Watch for Meanwhile {
    fn elapsed(&mut self) -> Duration {
        let is_same = self.broker.links().now(self.broker.now()) == self.links;
        self.clock.elapsed() + if is_same { Duration::ZERO } else { AT_LEISURE }
    }
}

impl Broker {
    /// Looks so long for less to take back when links have changed, before hosts hear of it.
    #[must_use]
    pub fn decides_within(mut self, time: Duration) -> Self {
        self.at_once = time;
        self
    }

    /// Rates of links that agents have measured count by this rule.
    #[must_use]
    pub fn hysteresis(mut self, rule: Hysteresis) -> Self {
        self.hysteresis = rule;
        self
    }

    pub(super) fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unplanned(&self) -> MutexGuard<'_, Option<Unplanned>> {
        self.unplanned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks after links as long as the broker runs.
    pub(crate) async fn follow_links(self: &Arc<Self>) {
        loop {
            let _ = tokio::time::timeout(LOOK_EVERY, self.news_of_links.notified()).await;
            let now = self.now();
            let links = self.links().now(now);
            let given_up = |one: &Unplanned| one.links == links && now.saturating_sub(one.at) < TRY_AGAIN;
            let waits = self.unplanned().as_ref().is_some_and(given_up);
            if !waits && !self.is_planned_for(&links) {
                self.plan_for_links().await;
            }
        }
    }

    /// `true` if the plan is for these links, or nothing is planned, as after `restore --all`: no report brings a plan back. Then there is no reason any
    /// more why not.
    fn is_planned_for(&self, links: &Rates) -> bool {
        let is_planned = {
            let hosts = self.hosts();
            hosts.kept().links == *links || !hosts.kept().is_planning()
        };
        if is_planned {
            *self.unplanned() = None;
        }
        is_planned
    }

    /// Plans for the links as they are now, unless that was done meanwhile.
    async fn plan_for_links(self: &Arc<Self>) {
        let turn = self.turn().await;
        let links = self.links().now(self.now());
        if self.is_planned_for(&links) {
            return;
        }
        let kept = Kept { links: links.clone(), ..self.hosts().kept().clone() };
        let (planned, sessions) = (kept.revision + 1, asked(&kept));
        let at_once = self.at_once;
        let decide = move |present: Present<'_>, _| adapt(present, at_once, &mut super::sessions::clock());
        let decided = self.decide(turn, kept, decide).await;
        let made = match decided {
            Ok((turn, change)) => {
                let hurried = change.hurried;
                self.make(turn, change, planned).await.map(|_| hurried)
            }
            Err(why) => Err(why),
        };
        if matches!(made, Ok(true)) {
            let (broker, links) = (self.clone(), links.clone());
            tokio::spawn(async move { broker.give_back(links, sessions).await });
        }
        let at = self.now();
        *self.unplanned() = made.err().map(|why| Unplanned { links, because: why.text(), at });
    }

    /// Gives back what was taken in a hurry, if that was more than needed, or takes it from others, if a whole search says so. For a session that has
    /// come since (`sessions` are those of before) nothing is taken from others.
    async fn give_back(self: Arc<Self>, links: Rates, sessions: Vec<(String, u64)>) {
        let turn = self.turn().await;
        let kept = self.hosts().kept().clone();
        let (planned, taken) = (kept.revision + 1, kept.reduction.clone());
        let are_same = asked(&kept) == sessions;
        if kept.links != links || !kept.is_planning() {
            return;
        }
        let mut watch = Meanwhile::new(self.clone(), links);
        let decide = move |present: Present<'_>, _| adapt(present, AT_LEISURE, &mut watch);
        let is_better = |change: &Change| {
            let is_whole = are_same && !change.hurried;
            change.reduction.takes_less_than(&taken) || is_whole && change.reduction != taken
        };
        if let Ok((turn, change)) = self.decide(turn, kept, decide).await
            && is_better(&change)
        {
            // What the disk does not take stays as it is.
            let _ = self.make(turn, change, planned).await;
        }
    }

    /// Pipes that are left out of the plan sell nothing, and those that are smaller there give their sessions fewer samples; those that are in it
    /// again, or larger, sell and give more when all hosts have it. Without a plan all pipes are left out. Called while nobody else keeps a change.
    pub(super) fn fit_pipes(self: &Arc<Self>) {
        let Some(crossings) = self.crossings() else { return };
        let (reduction, revision, is_planning) = {
            let hosts = self.hosts();
            (hosts.kept().reduction.clone(), hosts.kept().revision, hosts.kept().is_planning())
        };
        let reduction = if is_planning { reduction } else { crossings.without_pipes(reduction) };
        let each = crossings.fit_pipes(self.now(), &reduction, revision);
        each.into_iter().for_each(|effects| self.spawn(effects));
    }

    /// Refuses if there is no plan for the links as they are.
    pub(super) fn check_links(&self) -> Result<(), Refused> {
        self.without_plan().map_or(Ok(()), |because| Err(Refused::new(StatusCode::CONFLICT, because)))
    }

    /// Why nothing is admitted: there is no plan for the links as they are.
    pub(super) fn without_plan(&self) -> Option<String> {
        let now = self.links().now(self.now());
        let unplanned = self.unplanned();
        let because = &unplanned.as_ref().filter(|one| one.links == now)?.because;
        Some(format!(
            "nothing is admitted while there is no plan for the links as they are (`thalweg links`): {because}"
        ))
    }

    /// The links as they are.
    fn shown_links(&self) -> Result<message::Links, Refused> {
        let kept = self.hosts().kept().clone();
        let missing = || Refused::new(StatusCode::CONFLICT, "this broker has no contract, and so no links".to_owned());
        let contract = Contract::read(&kept.contract.ok_or_else(missing)?).map_err(Unadmitted::Malformed)?;
        let mut links = self.links();
        let now = links.now(self.now());
        let (system, links) = (&contract.system, &*links);
        let measured = links.measured();
        let shown = |link: &qos::system::Link| message::Link {
            link: link.name.clone(),
            between: link.between.map(|node| system.nodes[node].name.clone()),
            rate_bits_per_s: link.rate,
            carries_bits_per_s: now.get(&link.name).copied().unwrap_or(link.rate),
            stated: links.stated().contains_key(&link.name),
            measured: measured.contains(link.name.as_str()),
        };
        let because = self.unplanned().as_ref().filter(|one| one.links == now).map(|one| one.because.clone());
        let links = system.links.iter().map(shown).collect();
        Ok(message::Links { links, left_out: kept.reduction.left_out, because })
    }

    /// A user states what a link carries; `None`: what the contract says. Done to the end, even if the user gives up.
    async fn state(self: &Arc<Self>, link: String, rate: Option<u64>) -> Result<message::Links, Refused> {
        self.shown_links()?;
        let broker = self.clone();
        let done = tokio::spawn(async move {
            broker.keep_stated(&link, rate).await?;
            broker.plan_for_links().await;
            broker.shown_links()
        });
        done.await.map_err(|e| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?
    }

    /// Kept first, then told: what the disk does not take changes nothing.
    async fn keep_stated(self: &Arc<Self>, link: &str, rate: Option<u64>) -> Result<(), Refused> {
        let _turn = self.turn().await; // nobody's plan is made from what was kept before
        let disk = self.disk().await;
        let mut copy = self.links().clone();
        copy.state(link, rate).map_err(|why| match why {
            Unstated::Unknown(names) => {
                Refused::new(StatusCode::NOT_FOUND, format!("there is no link {link}: allowed is {names}"))
            }
            Unstated::OutOfRange(least, most) => {
                let rate = rate.unwrap_or(0);
                let said = format!("{rate} bit/s for link {link}: allowed is {least} to the contract's rate, {most} bit/s, or 0: it is down");
                Refused::new(StatusCode::UNPROCESSABLE_ENTITY, said)
            }
        })?;
        let kept = Kept { stated: copy.stated().clone(), ..self.hosts().kept().clone() };
        self.keep(disk, kept).await?;
        // Agents may have reported meanwhile.
        let _ = self.links().state(link, rate);
        Ok(())
    }
}

/// The sessions, with the revisions for which they were asked for.
fn asked(kept: &Kept) -> Vec<(String, u64)> {
    kept.sessions.iter().map(|one| (one.name.clone(), one.asked)).collect()
}

pub(super) async fn list(_: User, State(broker): Shared) -> Answer<message::Links> {
    broker.shown_links().map(Json)
}

pub(super) async fn put(
    User(user): User,
    State(broker): Shared,
    Path(link): Path<String>,
    rate: Result<Json<Rate>, JsonRejection>,
) -> Answer<message::Links> {
    broker.check_may(&user.to_string(), Right::Links)?;
    let Json(Rate { rate_bits_per_s }) = rate?;
    broker.state(link, Some(rate_bits_per_s)).await.map(Json)
}

pub(super) async fn delete(
    User(user): User,
    State(broker): Shared,
    Path(link): Path<String>,
) -> Answer<message::Links> {
    broker.check_may(&user.to_string(), Right::Links)?;
    broker.state(link, None).await.map(Json)
}

pub(super) async fn reported(
    OwnHost(host): OwnHost,
    State(broker): Shared,
    report: Result<Json<Vec<Carrier>>, JsonRejection>,
) -> Result<StatusCode, Refused> {
    let Json(devices) = report?;
    if devices.len() > MOST_DEVICES || devices.iter().any(|one| one.device.len() > LONGEST_NAME) {
        let said = format!("{} devices: allowed are {MOST_DEVICES}", devices.len());
        return Err(Refused::new(StatusCode::UNPROCESSABLE_ENTITY, said));
    }
    let now = broker.now();
    {
        let mut links = broker.links();
        for Carrier { device, up, rate_bits_per_s, drained } in &devices {
            links.reported(now, &host, device, *up);
            if *up {
                links.reported_rate(now, &host, device, *rate_bits_per_s);
                drained.iter().for_each(|drained| links.took(now, &host, device, *drained));
            }
        }
    }
    broker.news_of_links.notify_one();
    Ok(StatusCode::NO_CONTENT)
}
