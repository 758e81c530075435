//! A plan as tables.

use crate::output::table;
use qos::plan::{Chain, ChainPart, Channel, FileChange, Plan, Refusal};
use qos::{show_bit_rate, show_time};

/// The whole plan, for people.
pub(super) fn text(plan: &Plan) -> String {
    let mut parts = vec![verdict(plan)];
    if !plan.refusals.is_empty() {
        parts.push(refusals(&plan.refusals));
    }
    parts.push(channels(plan));
    parts.push(chains(plan));
    parts.push(links(plan));
    parts.push(settings(plan));
    parts.push(tunnels(plan));
    parts.push(borders(plan));
    if plan.channels.iter().any(|channel| channel.proxy.is_some()) && !plan.placement.is_empty() {
        parts.push(proxies(plan));
    }
    parts.push(next(plan));
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// One line with the verdict.
pub(super) fn verdict(plan: &Plan) -> String {
    let name = if plan.contract.name.is_empty() { "the contract" } else { plan.contract.name.as_str() };
    let kind = if plan.model.is_mean() { "on average" } else { "always" };
    let with_deadline = plan.channels.iter().filter(|channel| channel.deadline_us.is_some()).count();
    if !plan.feasible {
        let times = plan.refusals.len();
        let reasons = if times == 1 { "1 reason".to_owned() } else { format!("{times} reasons") };
        return format!("{name} does NOT fit (model {}): {reasons}", plan.model);
    }
    // A mean is no promise for a chain.
    let chains = plan.chains.iter().filter(|chain| chain.deadline_us.is_some() && !plan.model.is_mean()).count();
    let counted = [(with_deadline, plan.channels.len(), "channels"), (chains, plan.chains.len(), "chains")];
    let counted = counted.into_iter().filter(|(with, ..)| *with > 0);
    let counted: Vec<String> = counted.map(|(with, of, what)| format!("{with} of {of} {what}")).collect();
    let deadlines = match counted.as_slice() {
        [] => "no channel has a deadline".to_owned(),
        counted => format!("{} have a deadline, and {kind} keep it", counted.join(" and ")),
    };
    format!("{name} fits (model {}): {deadlines}", plan.model)
}

/// The reasons of a refusal, and the changes that would help.
pub(crate) fn refusals(refusals: &[Refusal]) -> String {
    let reasons = refusals.iter().map(reason).collect::<Vec<_>>().join("\n");
    let offers = refusals.first().map(|refusal| refusal.offers.as_slice()).unwrap_or_default();
    if offers.is_empty() {
        return reasons;
    }
    format!("{reasons}\n\nany one of these makes it fit\n{}", self::offers(offers))
}

/// Changes, each by number with its lines in the file.
pub(crate) fn offers(offers: &[qos::plan::Offer]) -> String {
    let offer = |(n, offer): (usize, &qos::plan::Offer)| {
        let changes: Vec<String> = offer.changes.iter().map(|change| format!("\n       {}", in_file(change))).collect();
        format!("  {}. {}{}", n + 1, offer.what, changes.concat())
    };
    offers.iter().enumerate().map(offer).collect::<Vec<_>>().join("\n")
}

/// A change to the file, as a person makes it.
fn in_file(FileChange { table, name, key, value }: &FileChange) -> String {
    match (name.as_str(), key.as_str()) {
        ("", key) => format!("[{table}] {key} = {value}"),
        (name, "") => format!("[[{table}]] {name:?} goes"),
        (name, key) => format!("[[{table}]] {name:?}: {key} = {value}"),
    }
}

fn reason(refusal: &Refusal) -> String {
    let Refusal { what, needs, has, because, .. } = refusal;
    format!("  {what}: needs {needs}, has {has}\n    because {because}")
}

fn channels(plan: &Plan) -> String {
    let delay = if plan.model.is_mean() { "mean" } else { "bound" };
    let mut headers = vec![
        ("topic", '<'),
        ("from", '<'),
        ("to", '<'),
        ("at", '<'),
        ("class", '<'),
        ("threads", '<'),
        ("proxy", '<'),
        (delay, '>'),
        ("deadline", '>'),
        ("used", '>'),
    ];
    let percentiles = plan.channels.iter().find_map(|channel| channel.percentiles);
    let title = percentiles.map(|one| format!("p99 {}", one.model));
    headers.extend(title.as_deref().map(|title| (title, '>')));
    let gathers = plan.channels.iter().any(|channel| channel.latency_budget_us.is_some());
    headers.extend([("latency budget", '>'), ("batch", '>')].into_iter().filter(|_| gathers));
    let paced = plan.channels.iter().any(|channel| channel.pace_bits_per_s.is_some());
    headers.extend(paced.then_some(("pace", '>')));
    let own = plan.channels.iter().any(|channel| channel.own_queue.is_some());
    headers.extend(own.then_some(("own queue", '>')));
    let row = |channel: &Channel| {
        let delay = channel.mean_us.or(channel.bound_us);
        let time = |us: Option<f64>| us.map_or("-".to_owned(), show_time);
        let used = delay.zip(channel.deadline_us).map(|(delay, deadline)| delay / deadline * 100.0);
        let used = match used {
            Some(percent) if percent > 100.0 => format!("{percent:.0} % LATE"),
            Some(percent) => format!("{percent:.0} %"),
            None if channel.deadline_us.is_some() => "NO LIMIT".to_owned(),
            None => "-".to_owned(),
        };
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
        let mut cells = vec![
            channel.topic.clone(),
            channel.publisher.clone(),
            channel.subscriber.clone(),
            channel.node.clone(),
            format!("{} ({})", channel.class, channel.dscp),
            match (&channel.sched_publisher, &channel.sched) {
                (None, None) => "-".to_owned(),
                (send, receive) => format!("{} → {}", word(send), word(receive)),
            },
            word(&channel.proxy),
            time(delay),
            time(channel.deadline_us),
            used,
        ];
        cells.extend(percentiles.map(|_| time(channel.percentiles.map(|one| one.p99_us))));
        if gathers {
            let batch = channel.batch.map_or("-".to_owned(), |samples| samples.to_string());
            cells.extend([time(channel.latency_budget_us), batch]);
        }
        if paced {
            cells.push(channel.pace_bits_per_s.map_or("-".to_owned(), |rate| show_bit_rate(rate as f64)));
        }
        if own {
            let rate = channel.own_queue.as_ref().map(|own| show_bit_rate(own.rate_bits_per_s as f64));
            cells.push(rate.unwrap_or_else(|| "-".to_owned()));
        }
        cells
    };
    section("channels", &headers, plan.channels.iter().map(row).collect())
}

/// Each chain with its parts, which add up.
fn chains(plan: &Plan) -> String {
    let headers = [("chain", '<'), ("bound", '>'), ("deadline", '>'), ("used", '>'), ("parts", '<')];
    let row = |chain: &Chain| {
        let time = |us: Option<f64>| us.map_or("-".to_owned(), show_time);
        let used = chain.bound_us.zip(chain.deadline_us).map(|(bound, deadline)| bound / deadline * 100.0);
        let used = match used {
            Some(percent) if percent > 100.0 => format!("{percent:.0} % LATE"),
            Some(percent) => format!("{percent:.0} %"),
            None if chain.deadline_us.is_some() && !plan.model.is_mean() => "NO LIMIT".to_owned(),
            None => "-".to_owned(),
        };
        let parts = chain.parts.iter().map(in_chain).collect::<Vec<_>>().join(" + ");
        vec![chain.name.clone(), time(chain.bound_us), time(chain.deadline_us), used, parts]
    };
    section("chains", &headers, plan.chains.iter().map(row).collect())
}

/// A chain's part, after the wait for it.
fn in_chain(part: &ChainPart) -> String {
    let wait = if part.wait_us > 0.0 { format!("wait {} + ", show_time(part.wait_us)) } else { String::new() };
    let bound = part.bound_us.map_or("no limit".to_owned(), show_time);
    format!("{wait}{} {bound}", part.topic)
}

fn links(plan: &Plan) -> String {
    let headers = [
        ("link", '<'),
        ("from", '<'),
        ("to", '<'),
        ("load", '>'),
        ("of", '>'),
        ("background", '>'),
        ("full", '>'),
        ("queue", '<'),
    ];
    let is_used = |link: &&qos::plan::Link| link.load_bits_per_s > 0.0 || link.background_bits_per_s > 0.0;
    let used = plan.links.iter().filter(|link| is_used(link) || link.control.is_some());
    let row = |link: &qos::plan::Link| {
        let background = match link.background_bits_per_s {
            0.0 => "-".to_owned(),
            rate => show_bit_rate(rate),
        };
        let over = if link.utilisation > 1.0 { " OVER" } else { "" };
        let backlog = link.backlog_bytes.map(|bytes| format!(", {bytes:.0} B")).unwrap_or_default();
        let on = link.device.as_ref().map(|device| format!(" on {device}")).unwrap_or_default();
        let control = link.control.as_ref().map(|queue| show_bit_rate(queue.rate_bits_per_s as f64));
        let control = control.map(|rate| format!(", control {rate}")).unwrap_or_default();
        vec![
            link.name.clone(),
            link.from.clone(),
            link.to.clone(),
            show_bit_rate(link.load_bits_per_s),
            show_bit_rate(link.rate_bits_per_s),
            background,
            format!("{:.1} %{over}", link.utilisation * 100.0),
            format!("{}{on}{backlog}{control}", link.scheduler),
        ]
    };
    section("links, headers included", &headers, used.map(row).collect())
}

/// What `thalweg apply` sets on hosts besides queues.
pub(super) fn settings(plan: &Plan) -> String {
    let headers = [("host", '<'), ("device", '<'), ("link", '<'), ("setting", '<'), ("because", '<')];
    let row = |one: &qos::plan::Setting| {
        let packets = if one.gso_max_segs == 1 { "1 packet" } else { &format!("{} packets", one.gso_max_segs) };
        let setting = format!("gso_max_segs {}: super-packets of {packets}", one.gso_max_segs);
        vec![one.node.clone(), one.device.clone(), one.link.clone(), setting, one.because.clone()]
    };
    section("settings of hosts, made by `thalweg apply`", &headers, plan.settings.iter().map(row).collect())
}

/// The ends of tunnels that agents make.
fn tunnels(plan: &Plan) -> String {
    let headers = [("host", '<'), ("device", '<'), ("tunnel", '<'), ("inside", '<'), ("mtu", '>')];
    let row = |end: &qos::plan::TunnelEnd| {
        let port = if !end.kind.has_device() { "" } else { &format!(" port {}", end.port) };
        let way = format!("{} {} from {} to {}{port}", end.kind.name(), end.id, end.local, end.remote);
        let inside = end.inside.map_or("-".to_owned(), |(address, length)| format!("{address}/{length}"));
        vec![end.node.clone(), end.device.clone(), way, inside, end.mtu.to_string()]
    };
    section("tunnels, made by agents and `thalweg apply`", &headers, plan.tunnels.iter().map(row).collect())
}

/// The borders at which packets of no session are kept out.
fn borders(plan: &Plan) -> String {
    let headers =
        [("host", '<'), ("comes in by", '<'), ("from domain", '<'), ("reserved", '<'), ("all others get", '<')];
    let row = |border: &qos::plan::Border| {
        let classes: Vec<&str> = border.classes.iter().map(|class| class.name()).collect();
        let (node, device, neighbour) = (border.node.clone(), border.device.clone(), border.neighbour.clone());
        vec![node, device, neighbour, classes.join(", "), border.instead.to_string()]
    };
    section("borders, where packets of no session are kept out", &headers, plan.borders.iter().map(row).collect())
}

fn proxies(plan: &Plan) -> String {
    let headers =
        [("topic", '<'), ("from", '<'), ("proxy at", '<'), ("for", '<'), ("messages/s", '>'), ("bits/s", '>')];
    let row = |proxy: &qos::plan::Proxy| {
        vec![
            proxy.topic.clone(),
            proxy.publisher.clone(),
            proxy.node.clone(),
            proxy.subscribers.join(", "),
            format!("{:.1}", proxy.cost.messages_per_s),
            show_bit_rate(proxy.cost.bits_per_s),
        ]
    };
    let has = |proxy: &&qos::plan::Proxy| {
        let of = |channel: &&Channel| channel.topic == proxy.topic && proxy.subscribers.contains(&channel.subscriber);
        plan.channels.iter().find(of).is_some_and(|channel| channel.proxy.is_some())
    };
    section("proxies", &headers, plan.placement.iter().filter(has).map(row).collect())
}

fn section(title: &str, headers: &[(&str, char)], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() { String::new() } else { format!("{title}\n{}", table(headers, &rows)) }
}

fn next(plan: &Plan) -> String {
    let placed = match (plan.solver.optimal, plan.solver.gap) {
        (true, _) => "nothing is better".to_owned(),
        (false, Some(gap)) => format!("at most {:.1} % better is possible", gap * 100.0),
        (false, None) => "how much better is possible is not known".to_owned(),
    };
    let ms = plan.solver.ms.map(|ms| format!(", {ms:.1} ms")).unwrap_or_default();
    let objective = plan.show_objective().map(|objective| format!("objective: {objective}; ")).unwrap_or_default();
    format!("{objective}places by {}{ms}: {placed}. --explain shows what each delay is made of.", plan.solver.name)
}
