//! The broker of a domain, as a user's commands reach it; and `thalweg hosts`: what its hosts have.

use crate::failure::{Failure, Result};
use crate::keys;
use crate::output::{Output, bytes, table};
use agent::client::{Client, ClientError};
use agent::identity::Kind;
use agent::message::{Exceeded, Host, HostState, KeptOut, MOST_OF_QUEUES, MOST_QUEUES, Owner, Queue};
use clap::Args;
use qos::{Class, show_bit_rate};
use std::path::PathBuf;
use thalweg::config::Configuration;

/// The broker, and the keys of the user who asks it.
#[derive(Args, Clone, Debug)]
pub(crate) struct BrokerArguments {
    /// Address of the broker; of several that share an etcd all, with commas
    #[arg(long, value_name = "HOST:PORT", global = true)]
    broker: Option<String>,
    /// Directory with realm.pem, user-NAME.pem and user-NAME.key
    #[arg(long, value_name = "DIR", global = true)]
    keys: Option<PathBuf>,
    /// Your name in the realm [default: the name of the user who is logged in]
    #[arg(long, value_name = "NAME", global = true)]
    user: Option<String>,
}

impl BrokerArguments {
    /// `true` if a broker was named.
    #[cfg(feature = "dashboard")]
    pub(crate) fn is_stated(&self) -> bool {
        self.broker.is_some()
    }

    /// The directory of keys, if one was named.
    pub(crate) fn keys(&self) -> Result<Option<PathBuf>> {
        Ok(self.keys.clone().or(self.setting("keys")?.map(PathBuf::from)))
    }

    /// A client of the broker.
    pub(crate) fn client(&self) -> Result<Client> {
        let missing = || Failure::Usage("needs --broker HOST:PORT and --keys DIR".to_owned());
        let (broker, keys) = (self.setting("broker")?.ok_or_else(missing)?, self.keys()?.ok_or_else(missing)?);
        let user = self.setting("user")?.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "root".to_owned());
        Ok(Client::new(&broker, &keys::read(&keys, Kind::User, &user)?))
    }

    /// The values that its flags state, as they would stand in the environment.
    pub(crate) fn stated(&self) -> Vec<(&'static str, String)> {
        let keys = self.keys.as_ref().map(|keys| keys.display().to_string());
        let stated = [("broker", self.broker.clone()), ("keys", keys), ("user", self.user.clone())];
        stated.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The value of a setting: the flag's, else that of the environment or the configuration file.
    fn setting(&self, name: &str) -> Result<Option<String>> {
        let stated = self.stated().into_iter().find(|(setting, _)| *setting == name);
        match stated {
            Some((_, value)) => Ok(Some(value)),
            None => Ok(Configuration::read()?.get(name).map(|given| given.text.clone())),
        }
    }
}

/// A broker that does not answer is the system's fault; a wrong plan the user's.
pub(crate) fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Unreachable(text) => Failure::System(text),
        ClientError::Refused(422, text) => Failure::Usage(text),
        ClientError::Refused(_, text) | ClientError::Unfit(text, _) => Failure::No(text),
    }
}

/// Show the hosts of a domain: what their agents have installed, and what they changed back
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg hosts --broker 10.0.0.1:7450 --keys keys")]
pub(crate) struct Arguments {
    #[command(flatten)]
    broker: BrokerArguments,
    /// Show what the queues of their devices have sent and dropped, by class, of control traffic and by channel where these have queues of
    /// their own, and what was kept out at borders or dropped there beyond what sessions reserved, as their kernels count it
    #[arg(long)]
    queues: bool,
    /// Print JSON, always with the queues
    #[arg(long)]
    json: bool,
}

/// Shows them; exit 1 if one of the plan is not as it has to be.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let hosts = arguments.broker.client()?.hosts().map_err(failure)?;
    Output { json: arguments.json }
        .result(&hosts, || if arguments.queues { queues_text(&hosts) } else { hosts_text(&hosts) })?;
    match hosts.iter().find(|host| host.planned && host.state != HostState::Applied) {
        Some(_) => Err(Failure::No(String::new())),
        None => Ok(()),
    }
}

/// For people: one line per host.
pub(crate) fn hosts_text(hosts: &[Host]) -> String {
    if hosts.is_empty() {
        return "no agent was heard, and there is no plan: `thalweg apply PLAN --all` gives one".to_owned();
    }
    let headers = [
        ("host", '<'),
        ("state", '<'),
        ("revision", '>'),
        ("devices", '<'),
        ("changed back", '>'),
        ("ends set", '>'),
        ("heard", '>'),
    ];
    table(&headers, &hosts.iter().map(row).collect::<Vec<_>>())
}

fn row(host: &Host) -> Vec<String> {
    let state = match (host.state, &host.because) {
        (HostState::Waiting, None) => "waiting".to_owned(),
        (HostState::Waiting, Some(because)) => format!("waiting: {because}"),
        (HostState::Silent, _) => "silent: is `thalweg agent` running there?".to_owned(),
        (HostState::Refused, because) => format!("refused: {}", because.as_deref().unwrap_or("no reason was given")),
        (HostState::Applied, _) if host.devices.is_empty() => "as before".to_owned(),
        (HostState::Applied, _) => "installed".to_owned(),
    };
    let revision = host.actual.map_or("-".to_owned(), |revision| revision.to_string());
    let heard = host.heard_ms.map_or("never".to_owned(), |ms| format!("{:.1} s ago", ms as f64 / 1000.0));
    let (devices, repairs) = (host.devices.join(", "), host.repairs.to_string());
    vec![host.host.clone(), state, revision, devices, repairs, ends(host), heard]
}

/// For people: one line per class and device, and for control traffic where it has a queue, then one per queue of a channel's own.
fn queues_text(hosts: &[Host]) -> String {
    let all = || hosts.iter().flat_map(|host| host.queues.iter().map(move |queue| (host.host.as_str(), queue)));
    let of_classes = all().filter(|(_, queue)| queue.own.is_none());
    let rows: Vec<_> = of_classes.map(|(host, queue)| queue_row(host, queue)).collect();
    let parts = [own_text(all()), left_out_text(hosts), kept_out_text(hosts), exceeded_text(hosts)];
    if rows.is_empty() && parts.iter().all(Option::is_none) {
        return "no host has reported queues yet: their agents look at them every 10 s".to_owned();
    }
    let headers = [("host", '<'), ("device", '<'), ("class", '<')].into_iter().chain(COUNTS).collect::<Vec<_>>();
    [Some(table(&headers, &rows))].into_iter().chain(parts).flatten().collect::<Vec<_>>().join("\n\n")
}

/// The columns of a queue's counters.
const COUNTS: [(&str, char); 4] = [("packets", '>'), ("sent", '>'), ("dropped", '>'), ("waiting", '>')];

/// The queues of channels' own.
fn own_text<'a>(all: impl Iterator<Item = (&'a str, &'a Queue)>) -> Option<String> {
    let row = |(host, queue): (&str, &Queue)| {
        let Owner { topic, subscriber, rate_bits_per_s } = queue.own.as_ref()?;
        let names = [host, &queue.device, topic, subscriber, queue.class.map_or("all", Class::name)];
        let rate = show_bit_rate(*rate_bits_per_s as f64);
        Some(names.map(str::to_owned).into_iter().chain([rate]).chain(counts(queue)).collect())
    };
    let rows: Vec<Vec<String>> = all.filter_map(row).collect();
    let names = [("host", '<'), ("device", '<'), ("topic", '<'), ("to", '<'), ("class", '<'), ("rate", '>')];
    let headers: Vec<_> = names.into_iter().chain(COUNTS).collect();
    (!rows.is_empty()).then(|| format!("of channels' own\n{}", table(&headers, &rows)))
}

/// The number of queues that are in no table, because a report has no room for them.
fn left_out_text(hosts: &[Host]) -> Option<String> {
    let line = |host: &Host| {
        let (host, count, most) = (&host.host, host.queues_left_out, MOST_OF_QUEUES >> 10);
        format!("{host} has {count} queues more: a report has at most {MOST_QUEUES}, in {most} KiB")
    };
    let lines: Vec<String> = hosts.iter().filter(|host| host.queues_left_out > 0).map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// What came in at borders in a reserved class, and belonged to no session.
fn kept_out_text(hosts: &[Host]) -> Option<String> {
    let row = |host: &Host, kept: &KeptOut| {
        let counts = [kept.packets.to_string(), bytes(kept.bytes as f64)];
        [host.host.as_str(), &kept.device, kept.class.name()].map(str::to_owned).into_iter().chain(counts).collect()
    };
    let rows: Vec<Vec<String>> =
        hosts.iter().flat_map(|host| host.kept_out.iter().map(move |kept| row(host, kept))).collect();
    let headers = [("host", '<'), ("comes in by", '<'), ("kept out of", '<'), ("packets", '>'), ("bytes", '>')];
    (!rows.is_empty()).then(|| format!("of no session\n{}", table(&headers, &rows)))
}

/// What was dropped at borders of sessions that sent more than they reserved.
fn exceeded_text(hosts: &[Host]) -> Option<String> {
    let row = |host: &Host, one: &Exceeded| {
        let counts = [one.packets.to_string(), bytes(one.bytes as f64)];
        let names = [host.host.as_str(), &one.device, &one.session, one.class.name()];
        names.map(str::to_owned).into_iter().chain(counts).collect()
    };
    let rows: Vec<Vec<String>> =
        hosts.iter().flat_map(|host| host.exceeded.iter().map(move |one| row(host, one))).collect();
    let names = [("host", '<'), ("comes in by", '<'), ("session", '<'), ("class", '<')];
    let headers: Vec<_> = names.into_iter().chain([("dropped", '>'), ("bytes", '>')]).collect();
    (!rows.is_empty()).then(|| format!("beyond what was reserved\n{}", table(&headers, &rows)))
}

/// The queue of control traffic is of class high, beside that of all others of the class.
fn queue_row(host: &str, queue: &Queue) -> Vec<String> {
    let class = if queue.control { "control" } else { queue.class.map_or("all", Class::name) };
    [host, &queue.device, class].map(str::to_owned).into_iter().chain(counts(queue)).collect()
}

fn counts(queue: &Queue) -> [String; 4] {
    [queue.packets.to_string(), bytes(queue.bytes as f64), queue.dropped.to_string(), queue.waiting.to_string()]
}

/// The number of ends of channels that have the plan's settings, and of those that cannot have them.
fn ends(host: &Host) -> String {
    let refused = host.ends.iter().filter(|end| end.because.is_some()).count();
    match (host.ends.len() - refused, refused) {
        (set, 0) => set.to_string(),
        (set, refused) => format!("{set}, {refused} refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_shown_by_class() {
        let queue = |class, packets, dropped| Queue {
            device: "eth0".into(),
            class,
            own: None,
            control: false,
            packets,
            bytes: 1500 * packets,
            dropped,
            waiting: 1,
        };
        let host = |name: &str, queues| Host {
            host: name.into(),
            planned: true,
            desired: 1,
            actual: Some(1),
            state: HostState::Applied,
            because: None,
            devices: vec!["eth0".into()],
            repairs: 0,
            repaired: Vec::new(),
            ends: Vec::new(),
            queues,
            queues_left_out: 0,
            kept_out: Vec::new(),
            exceeded: Vec::new(),
            heard_ms: Some(0),
        };
        assert!(queues_text(&[host("a", Vec::new())]).contains("every 10 s"));
        let hosts = [host("a", vec![queue(Some(Class::High), 2000, 0)]), host("b", vec![queue(None, 7, 20)])];
        let expected = "\
host  device  class  packets     sent  dropped  waiting
a     eth0    high      2000   3.0 MB        0        1
b     eth0    all          7  10.5 kB       20        1";
        assert_eq!(queues_text(&hosts), expected);
        let [mut border, other] = hosts;
        let mut with_control = border.clone();
        with_control.queues.push(Queue { control: true, ..queue(Some(Class::High), 4, 2) });
        let control = "\
host  device  class    packets    sent  dropped  waiting
a     eth0    high        2000  3.0 MB        0        1
a     eth0    control        4  6.0 kB        2        1";
        assert_eq!(queues_text(&[with_control]), control);
        let owner = Owner { topic: "bulk".into(), subscriber: "/bulk-in".into(), rate_bits_per_s: 300_000 };
        let mut with_own = other.clone();
        with_own.queues.push(Queue { own: Some(owner), ..queue(Some(Class::High), 5, 3) });
        let own = "\
of channels' own
host  device  topic  to        class        rate  packets    sent  dropped  waiting
b     eth0    bulk   /bulk-in  high   300 kbit/s        5  7.5 kB        3        1";
        let text = queues_text(&[border.clone(), with_own]);
        assert_eq!(text, format!("{expected}\n\n{own}"));
        border.kept_out = vec![KeptOut { device: "eth1".into(), class: Class::Critical, packets: 3, bytes: 400 }];
        let more = "

of no session
host  comes in by  kept out of  packets  bytes
a     eth1         critical           3  400 B";
        assert_eq!(queues_text(&[border.clone(), other.clone()]), expected.to_owned() + more);
        border.kept_out.clear();
        let device = "eth1".into();
        border.exceeded =
            vec![Exceeded { session: "robot/video".into(), device, class: Class::High, packets: 7, bytes: 900 }];
        let more = "

beyond what was reserved
host  comes in by  session      class  dropped  bytes
a     eth1         robot/video  high         7  900 B";
        assert_eq!(queues_text(&[border.clone(), other.clone()]), expected.to_owned() + more);
        border.exceeded.clear();
        border.queues_left_out = 12;
        let more = "\n\na has 12 queues more: a report has at most 256, in 110 KiB";
        assert_eq!(queues_text(&[border, other]), expected.to_owned() + more);
    }
}
