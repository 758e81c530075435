//! The programs of an engine: where each listens, and whom it connects to. Two ports of loopback are known to both ends.

use crate::bench::{Carrier, EngineName, Error};
use engines::Engine;
use std::net::{Ipv4Addr, TcpListener};

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It measures.
    Active,
    Passive,
}

/// The place of an end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) end: End,
    /// The ports of the active end and of the passive one.
    pub(super) ports: [u16; 2],
}

/// A port that nobody uses now.
pub(super) fn free_port() -> Result<u16, Error> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The name in results.
pub(super) fn name(engine: EngineName) -> &'static str {
    match engine {
        EngineName::Raw => "raw",
        EngineName::Thalweg => "thalweg",
        EngineName::Cpp => "cpp",
        EngineName::Python => "python",
        #[cfg(feature = "mqtt")]
        EngineName::Mqtt => engines::mqtt::Mqtt::NAME,
        #[cfg(feature = "zenoh")]
        EngineName::Ros2 => engines::ros2::Ros2::NAME,
        #[cfg(feature = "yarp")]
        EngineName::Yarp => engines::yarp::Yarp::NAME,
        #[cfg(feature = "zenoh")]
        EngineName::Zenoh => engines::zenoh::Zenoh::NAME,
        #[cfg(feature = "rtps")]
        EngineName::Dds => engines::dds::Dds::NAME,
        #[cfg(feature = "zeromq")]
        EngineName::Zeromq => engines::zeromq::ZeroMq::NAME,
    }
}

/// The transport of an engine's samples.
pub(super) fn transport(engine: EngineName) -> Carrier {
    match engine {
        #[cfg(feature = "rtps")]
        EngineName::Dds => Carrier::Udp,
        _ => Carrier::Tcp,
    }
}

impl Place {
    /// Opens the end's program. The active one is there first: others connect to it.
    pub(super) fn open(&self, engine: EngineName) -> engines::Result<Box<dyn Engine>> {
        match engine {
            EngineName::Raw | EngineName::Thalweg | EngineName::Cpp | EngineName::Python => {
                Err(engines::Error::Usage(format!("\"{}\" is no engine of others", name(engine))))
            }
            #[cfg(feature = "mqtt")]
            EngineName::Mqtt => {
                use engines::mqtt::{Mqtt, Settings};
                Ok(Box::new(Mqtt::open(Settings::default(), None)?))
            }
            #[cfg(feature = "zenoh")]
            EngineName::Zenoh => {
                use engines::zenoh::{Settings, Zenoh};
                let [listen, connect] = self.links();
                Ok(Box::new(Zenoh::open(Settings { connect, listen, ..Settings::default() }, None)?))
            }
            #[cfg(feature = "zenoh")]
            EngineName::Ros2 => {
                use engines::ros2::{Ros2, Settings};
                let ([listen, connect], node) = (self.links(), format!("bench_{:?}", self.end).to_lowercase());
                Ok(Box::new(Ros2::open(Settings { connect, listen, node, ..Settings::default() }, None)?))
            }
            #[cfg(feature = "yarp")]
            EngineName::Yarp => self.yarp(),
            #[cfg(feature = "rtps")]
            EngineName::Dds => {
                use engines::dds::{Dds, Settings};
                let loopback = vec![Ipv4Addr::LOCALHOST.into()];
                let (interfaces, peers) = (loopback.clone(), loopback);
                // Two measurements at once are in two domains, as a rule: their ports differ.
                let domain = 1 + u32::from(self.ports[0]) % 200;
                let settings = Settings { domain, interfaces, peers, multicast: false, ..Settings::default() };
                Ok(Box::new(Dds::open(settings, None)?))
            }
            #[cfg(feature = "zeromq")]
            EngineName::Zeromq => {
                use engines::zeromq::{Settings, ZeroMq};
                let [bind, connect] = self.own_and_other().map(|port| vec![format!("tcp://127.0.0.1:{port}")]);
                Ok(Box::new(ZeroMq::open(&Settings { bind, connect, ..Settings::default() })?))
            }
        }
    }

    /// The name server is one of the two programs.
    #[cfg(feature = "yarp")]
    fn yarp(&self) -> engines::Result<Box<dyn Engine>> {
        use engines::yarp::{Settings, Yarp};
        let server = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[0]));
        let (prefix, others, serve) = match self.end {
            End::Active => ("/active", "/passive", Some(server)),
            End::Passive => ("/passive", "/active", None),
        };
        let (prefix, from) = (prefix.to_owned(), vec![others.to_owned()]);
        let settings = Settings { server: server.to_string(), serve, prefix, from, ..Settings::default() };
        Ok(Box::new(Yarp::open(settings, None)?))
    }

    /// Endpoints to listen on and to connect to: one link between the two.
    #[cfg(feature = "zenoh")]
    fn links(&self) -> [Vec<String>; 2] {
        let endpoint = vec![format!("tcp/127.0.0.1:{}", self.ports[0])];
        match self.end {
            End::Active => [endpoint, Vec::new()],
            End::Passive => [Vec::new(), endpoint],
        }
    }

    #[cfg(feature = "zeromq")]
    fn own_and_other(&self) -> [u16; 2] {
        let [active, passive] = self.ports;
        if self.end == End::Active { [active, passive] } else { [passive, active] }
    }
}
