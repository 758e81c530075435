//! Priority maps: packets get a priority by their code point before they queue, by the program `nft`, in a table of
//! our own. They are for routers and bridges, where other hosts marked the packets, and the kernel derives nothing
//! (IPv6, bridges) or the wrong priority (`pfifo_fast` by the old TOS bits).

use super::QueueError;
use super::leaf::Flow;
use super::tree::Handle;
use super::wanted::class_of;
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
        // "mangle" is no name in the bridge family.
        let priority = if self.hook == Hook::Router { "mangle" } else { "0" };
        format!(
            "table {family} {TABLE} {{\n  chain post {{\n    type filter hook postrouting priority {priority}; policy accept;\n{}{}{flows}  }}\n}}\n",
            rule("ip"),
            rule("ip6")
        )
    }

    /// The rule of one flow: HTB takes a priority that names a class before it asks its filters, so that those do not decide here.
    fn flow_rule(&self, flow: &Flow, handle: Handle) -> String {
        let Flow { source, destination, transport, port } = flow;
        let version = if destination.is_ipv4() { "ip" } else { "ip6" };
        let from = source.map_or_else(String::new, |source| format!("{version} saddr {source} "));
        let (device, major, minor) = (&self.device, handle.major(), handle.minor());
        format!(
            "    oifname \"{device}\" {from}{version} daddr {destination} {transport} dport {port} meta priority set {major:x}:{minor:x}\n"
        )
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

    /// The command that installs it.
    pub fn command(&self) -> String {
        format!("nft -f - <<'END'\n{}END", self.script())
    }
}

/// The tables of these maps: family and input of `nft -f -`.
pub(crate) fn tables(maps: &[PriorityMap]) -> Vec<(String, String)> {
    maps.iter().map(|map| (map.hook.family().to_owned(), map.script())).collect()
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
