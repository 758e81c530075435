//! Priority maps: packets get a priority by their code point before they queue, by the program `nft`, in a table of
//! our own. They are for routers and bridges, where other hosts marked the packets, and the kernel derives nothing
//! (IPv6, bridges) or the wrong priority (`pfifo_fast` by the old TOS bits). The rules of boundaries (`boundary`) stand in the same
//! tables.

use super::boundary::{self, Boundary};
use super::leaf::{Flow, Leaf};
use super::tree::Handle;
use super::wanted::{Wanted, class_of};
use super::{QueueError, nft};
use qos::Class;
use qos::priority::{CONTROL, Dscp};

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
    /// The handle of the class for control traffic, if there is one.
    pub control: Option<Handle>,
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
    pub(super) fn priority(self) -> &'static str {
        match self {
            Hook::Router => "mangle",
            Hook::Bridge => "0",
        }
    }
}

impl PriorityMap {
    /// The priority that a packet with this TOS octet gets.
    pub fn priority(&self, tos: u8) -> u32 {
        let dscp = Dscp::new(tos >> 2).unwrap_or_default();
        match self.control {
            Some(handle) if dscp == CONTROL => handle.0,
            _ => self.priorities[class_of(dscp) as usize],
        }
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
        format!("    oifname \"{device}\" {} meta priority set {major:x}:{minor:x}\n", flow.matching())
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

impl Flow {
    /// Its packets, as `nft` says it.
    pub(super) fn matching(&self) -> String {
        let Flow { source, destination, transport, port } = self;
        let version = if destination.is_ipv4() { "ip" } else { "ip6" };
        let from = source.map_or_else(String::new, |source| format!("{version} saddr {source} "));
        format!("{from}{version} daddr {destination} {transport} dport {port}")
    }
}

/// The tables of these devices and boundaries: family and input of `nft -f -`.
pub(crate) fn tables(wanted: &[Wanted], boundaries: &[Boundary]) -> Vec<(String, String)> {
    let flows: Vec<Flow> = wanted.iter().flat_map(Wanted::leaves).filter_map(Leaf::flow).collect();
    let maps = wanted.iter().filter_map(Wanted::priority_map);
    let maps = maps.map(|map| (map.hook.family().to_owned(), map.script()));
    let own = wanted.iter().filter(|one| one.boundary).map(|one| Boundary {
        device: one.device.clone(),
        hook: one.map.unwrap_or(Hook::Router),
        classes: vec![Class::High, Class::Critical],
        instead: Class::Normal,
        flows: flows.clone(),
        pairs: Vec::new(),
    });
    let boundaries = own.chain(boundaries.iter().cloned()).map(|one| (one.hook.family().to_owned(), one.script()));
    maps.chain(boundaries).collect()
}

/// The commands that install the tables of these devices and boundaries.
pub(crate) fn commands(wanted: &[Wanted], boundaries: &[Boundary]) -> Vec<String> {
    let tables = tables(wanted, boundaries);
    tables.into_iter().map(|(_, script)| format!("nft -f - <<'END'\n{script}END")).collect()
}

/// Installs tables in place of earlier ones.
pub(crate) fn install(tables: &[(String, String)]) -> Result<(), QueueError> {
    remove(tables)?;
    tables.iter().try_for_each(|(_, script)| nft::load(script))
}

/// What `nft` shows of our tables, by family, without their counters.
pub(crate) type Listed = Vec<(String, String)>;

/// Installs tables in place of earlier ones, each family at once: no packet meets no table, and counters go on from where they were (but for what
/// is counted meanwhile). A table that is shown as it was listed before is left alone.
pub(crate) fn replace(
    earlier: &[(String, String)],
    listed: &Listed,
    tables: &[(String, String)],
) -> Result<Listed, QueueError> {
    let of = |family: &str, tables: &[(String, String)]| {
        tables.iter().filter(|(of, _)| of == family).map(|(_, script)| script.as_str()).collect::<String>()
    };
    let mut families: Vec<&String> = earlier.iter().chain(tables).map(|(family, _)| family).collect();
    families.sort_unstable();
    families.dedup();
    let mut shown = Vec::new();
    for family in families {
        let script = of(family, tables);
        let before = listed.iter().find(|(of, _)| of == family).map(|(_, text)| text);
        if script == of(family, earlier) && before.is_some() && list(family)?.as_ref() == before {
            shown.extend(before.map(|text| (family.clone(), text.clone())));
            continue;
        }
        let script = boundary::counted_on(&script, &boundary::counts_of(family)?);
        nft::load(&format!("{}{script}", nft::removal(family, TABLE)))?;
        shown.extend(list(family)?.map(|text| (family.clone(), text)));
    }
    Ok(shown)
}

/// Our table of a family as `nft` shows it, without counters; `None`: there is none.
fn list(family: &str) -> Result<Option<String>, QueueError> {
    nft::listed(family, TABLE)
}

/// Removes our table from these families, whether it is there or not.
pub(crate) fn remove(tables: &[(String, String)]) -> Result<(), QueueError> {
    tables.iter().try_for_each(|(family, _)| nft::load(&nft::removal(family, TABLE)))
}
