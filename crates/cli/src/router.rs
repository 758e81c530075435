//! `thalweg router`: a meeting point for nodes that name it.

use crate::failure::Result;
use crate::quantity;
use clap::Args;
use std::net::SocketAddr;

/// Run a control-plane router, for routed networks and many nodes
///
/// Nodes name it with --peer. It carries no samples: only who is there and what they have.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg router --listen 10.0.0.1:7447")]
pub(crate) struct Arguments {
    /// Listen on this address (repeatable) [default: 127.0.0.1:7447]
    #[arg(long, value_name = "ADDR", value_parser = quantity::listen)]
    listen: Vec<SocketAddr>,
    /// Another router (repeatable)
    #[arg(long, value_name = "ADDR", value_parser = quantity::peer)]
    peer: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs until told to stop.
#[cfg(feature = "zenoh")]
pub(crate) fn run(arguments: &Arguments) -> Result {
    use crate::failure::Failure;
    use crate::output::{Output, tell};
    use std::time::{Duration, Instant};

    let stop = crate::signals::Stop::on_signals()?;
    let listen = arguments.addresses();
    if arguments.listen.iter().any(|a| !a.ip().is_loopback()) {
        tell("warning: this router has no security: whoever reaches it can see and administer every node");
    }
    check(&listen)?;
    let opened = thalweg::control::zenoh::router(&listen, &arguments.peer, |text| tell(&format!("warning: {text}")));
    let _router = opened.map_err(|e| Failure::System(without_sources(&e.to_string())))?;
    let listening = serde_json::json!({ "listening": listen });
    Output { json: arguments.json }.result(&listening, || format!("listening on {}", listen.join(", ")))?;
    while stop.sleep_until(Instant::now() + Duration::from_secs(3600)) {}
    Ok(())
}

/// Binds the addresses first: the system's errors, unlike the router's, lead to a remedy.
#[cfg(any(feature = "zenoh", test))]
pub(crate) fn check(listen: &[String]) -> Result {
    use std::io::ErrorKind;
    let mut held = Vec::new(); // all at once, as the router does
    for address in listen {
        let listener = std::net::TcpListener::bind(address).map_err(|source| {
            let remedy = match source.kind() {
                ErrorKind::AddrInUse => "choose another port with --listen IP:PORT",
                ErrorKind::AddrNotAvailable => "listen on an address that this host has (`ip address`)",
                ErrorKind::PermissionDenied => "use a port this user may use (from 1024 up)",
                ErrorKind::InvalidInput => "choose an address and port of this host with --listen IP:PORT",
                _ => "`thalweg doctor` says what this host lacks",
            };
            let what = format!("cannot listen on {address}");
            thalweg::Error::System { what, source, remedy: remedy.to_owned() }
        })?;
        held.push(listener);
    }
    Ok(())
}

/// The text without the places in source files (" at /a/b.rs:12.") that the router's errors contain.
#[cfg(any(feature = "zenoh", test))]
fn without_sources(text: &str) -> String {
    let place =
        |word: &str| word.rsplit_once(".rs:").is_some_and(|(_, line)| line.starts_with(|c: char| c.is_ascii_digit()));
    let mut words: Vec<&str> = Vec::new();
    for word in text.split(' ') {
        if !place(word) {
            words.push(word);
        } else if words.last() == Some(&"at") {
            words.pop();
        }
    }
    words.join(" ")
}

/// Reports that this build has no router.
#[cfg(not(feature = "zenoh"))]
pub fn run(arguments: &Arguments) -> Result {
    let wanted = arguments.addresses().join(", ");
    let _ = (&arguments.peer, arguments.json);
    Err(crate::failure::Failure::System(format!(
        "no router on {wanted}: this build has no control plane across hosts; build with the feature zenoh (a default one)"
    )))
}

impl Arguments {
    fn addresses(&self) -> Vec<String> {
        let with_port = |a: &SocketAddr| if a.port() == 0 { SocketAddr::new(a.ip(), 7447) } else { *a };
        let given: Vec<String> = self.listen.iter().map(|a| with_port(a).to_string()).collect();
        if given.is_empty() { vec!["127.0.0.1:7447".to_owned()] } else { given }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_taken_or_foreign_is_refused_with_a_remedy() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        for (address, remedy) in [(address.as_str(), "choose another port"), ("192.0.2.1:7447", "`ip address`")] {
            let failure = check(&[address.to_owned()]).unwrap_err();
            assert_eq!(failure.code(), 3);
            assert!(failure.text().starts_with(&format!("cannot listen on {address}: ")), "{}", failure.text());
            assert!(failure.text().contains(remedy), "{}", failure.text());
        }
        drop(taken);
        assert!(check(&[address]).is_ok());
    }

    #[test]
    fn places_in_source_files_are_left_out() {
        let text = "router on 10.0.0.1:1: no listener at /home/a/zenoh/src/net/orchestrator.rs:412. - refused";
        assert_eq!(without_sources(text), "router on 10.0.0.1:1: no listener - refused");
    }
}
