//! Priority maps: packets get a priority by their code point before they queue, by the program `nft`, in a table of
//! our own. They are for routers and bridges, where other hosts marked the packets, and the kernel derives nothing
//! (IPv6, bridges) or the wrong priority (`pfifo_fast` by the old TOS bits). At the boundary of a domain, packets of no known flow lose
//! a mark that asks for priority.

use super::QueueError;
use super::leaf::{Flow, Leaf};
use super::tree::Handle;
use super::wanted::{Wanted, class_of};
use qos::Class;
use qos::priority::Dscp;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The way of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// This host's own and routed packets.
    Router,
    /// Bridged packets.
    Bridge,
}

/// Priorities by code point on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityMap {
    /// The device by which they leave.
    pub device: String,
    /// The way of the packets.
    pub hook: Hook,
    /// The priority of each class ([`super::PerClass`]): a socket priority, or a class's handle.
    pub priorities: [u32; 4],
    /// Flows with a priority of their own: the handle of a class.
    pub flows: Vec<(Flow, Handle)>,
}

/// The table's name.
pub const TABLE: &str = "thalweg";

impl Hook {
    /// The family of the table.
    pub fn family(self) -> &'static str {
        match self {
            Hook::Router => "inet",
            Hook::Bridge => "bridge",
        }
    }

    /// The place among other rules. "mangle" is no name in the bridge family.
    fn priority(self) -> &'static str {
        match self {
            Hook::Router => "mangle",
            Hook::Bridge => "0",
        }
    }
}

impl PriorityMap {
    /// The priority that a packet with this TOS octet gets.
    pub fn priority(&self, tos: u8) -> u32 {
        let class = class_of(Dscp::new(tos >> 2).unwrap_or_default());
        self.priorities[class as usize]
    }

    /// The input of `nft -f -`. Its first lines remove an older table.
    fn script(&self) -> String {
        let elements = self.elements().join(", ");
        let (family, device) = (self.hook.family(), &self.device);
        let rule = |version: &str| {
            format!(
                "    oifname \"{device}\" meta protocol {version} meta priority set {version} dscp map {{ {elements}}}\n"
            )
        };
        let flows: String = self.flows.iter().map(|(flow, handle)| self.flow_rule(flow, *handle)).collect();
        let priority = self.hook.priority();
        format!(
            "table {family} {TABLE} {{\n  chain post {{\n    type filter hook postrouting priority {priority}; policy accept;\n{}{}{flows}  }}\n}}\n",
            rule("ip"),
            rule("ip6")
        )
    }

    /// The rule of one flow: HTB takes a priority that names a class before it asks its filters, so that those do not decide here.
    fn flow_rule(&self, flow: &Flow, handle: Handle) -> String {
        let (device, major, minor) = (&self.device, handle.major(), handle.minor());
        format!("    oifname \"{device}\" {} meta priority set {major:x}:{minor:x}\n", matching(flow))
    }

    /// Ranges of code points with their priority, as `nft` writes them.
    fn elements(&self) -> Vec<String> {
        let of = |dscp: u8| self.priority(dscp << 2);
        let firsts: Vec<u8> = (0..64).filter(|dscp| *dscp == 0 || of(*dscp) != of(dscp - 1)).collect();
        let lasts = firsts.iter().skip(1).map(|next| next - 1).chain([63]);
        let range = |(first, last): (&u8, u8)| {
            let priority = Handle(of(*first));
            let range = if *first == last { first.to_string() } else { format!("{first}-{last}") };
            format!("{range} : {:x}:{:x}", priority.major(), priority.minor())
        };
        firsts.iter().zip(lasts).map(range).collect()
    }
}

/// The packets of a flow, as `nft` says it.
fn matching(flow: &Flow) -> String {
    let Flow { source, destination, transport, port } = flow;
    let version = if destination.is_ipv4() { "ip" } else { "ip6" };
    let from = source.map_or_else(String::new, |source| format!("{version} saddr {source} "));
    format!("{from}{version} daddr {destination} {transport} dport {port}")
}

/// The boundary of a domain at one device: forwarded packets that come in there with a mark of class high or critical, and belong to none
/// of these flows, get CS0 (RFC 2475 §2.3.3.3: marking at a boundary node).
fn boundary(device: &str, hook: Hook, flows: &[Flow]) -> String {
    let known: String =
        flows.iter().map(|flow| format!("    iifname \"{device}\" {} return\n", matching(flow))).collect();
    let asks = (0..64u8).filter(|dscp| Dscp::new(*dscp).is_some_and(|dscp| class_of(dscp) >= Class::High));
    let asks = asks.map(|dscp| dscp.to_string()).collect::<Vec<_>>().join(", ");
    let rule = |version: &str| format!("    iifname \"{device}\" {version} dscp {{ {asks} }} {version} dscp set cs0\n");
    let (family, priority) = (hook.family(), hook.priority());
    format!(
        "table {family} {TABLE} {{\n  chain boundary {{\n    type filter hook forward priority {priority}; policy accept;\n{known}{}{}  }}\n}}\n",
        rule("ip"),
        rule("ip6")
    )
}

/// The tables of these devices: family and input of `nft -f -`.
pub(crate) fn tables(wanted: &[Wanted]) -> Vec<(String, String)> {
    let flows: Vec<Flow> = wanted.iter().flat_map(Wanted::leaves).filter_map(Leaf::flow).collect();
    let maps = wanted.iter().filter_map(Wanted::priority_map);
    let maps = maps.map(|map| (map.hook.family().to_owned(), map.script()));
    let boundaries = wanted.iter().filter(|one| one.boundary).map(|one| {
        let hook = one.map.unwrap_or(Hook::Router);
        (hook.family().to_owned(), boundary(&one.device, hook, &flows))
    });
    maps.chain(boundaries).collect()
}

/// The commands that install the tables of these devices.
pub(crate) fn commands(wanted: &[Wanted]) -> Vec<String> {
    tables(wanted).into_iter().map(|(_, script)| format!("nft -f - <<'END'\n{script}END")).collect()
}

/// Installs tables in place of earlier ones.
pub(crate) fn install(tables: &[(String, String)]) -> Result<(), QueueError> {
    remove(tables)?;
    tables.iter().try_for_each(|(_, script)| nft(script))
}

/// Installs tables in place of earlier ones, each family at once: no packet meets no table.
pub(crate) fn replace(earlier: &[(String, String)], tables: &[(String, String)]) -> Result<(), QueueError> {
    let of = |family: &str| {
        tables.iter().filter(|(of, _)| of == family).map(|(_, script)| script.as_str()).collect::<String>()
    };
    let mut families: Vec<&str> = earlier.iter().chain(tables).map(|(family, _)| family.as_str()).collect();
    families.sort_unstable();
    families.dedup();
    families.into_iter().try_for_each(|family| nft(&format!("{}{}", removal(family), of(family))))
}

/// Removes our table from these families, whether it is there or not.
pub(crate) fn remove(tables: &[(String, String)]) -> Result<(), QueueError> {
    tables.iter().try_for_each(|(family, _)| nft(&removal(family)))
}

fn removal(family: &str) -> String {
    format!("table {family} {TABLE} {{ }}\ndelete table {family} {TABLE}\n")
}

fn nft(script: &str) -> Result<(), QueueError> {
    let told = tell(script).map_err(|error| {
        let remedy = "install nftables (the program nft), or leave out the priority map".to_owned();
        QueueError { what: "nft -f -".to_owned(), reason: super::Reason::Other(error), remedy }
    })?;
    match told {
        Ok(()) => Ok(()),
        Err(said) => Err(QueueError::from_nft(&said)),
    }
}

fn tell(script: &str) -> io::Result<Result<(), String>> {
    let piped = || Stdio::piped();
    let mut child = Command::new("nft")
        .process_group(0)
        .args(["-f", "-"])
        .stdin(piped())
        .stdout(Stdio::null())
        .stderr(piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(if output.status.success() { Ok(()) } else { Err(said) })
}
