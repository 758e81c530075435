//! Requests to a broker: HTTP over TLS 1.3 with certificates at both ends (RFC 8446, RFC 9112).
//!
//! The broker is found by its address, and checked by its certificate: any broker of the same realm. Of several brokers of a domain, each with
//! its address, the one that leads answers.

use crate::accounts::claim::Claim;
use crate::connection::Marked;
use crate::identity::{Identity, Kind};
use crate::keys::Keys;
use crate::message::{
    Accepted, Actual, Admission, Carrier, Desired, Host, LARGEST, LARGEST_PLAN, Links, Pipe, Rate, Refusal, Session,
};
use crate::peer::Message;
use crate::signature::Signed;
use qos::plan;
use rustls::AlertDescription;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use ureq::config::Config;
use ureq::http::{Response, StatusCode, Uri};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Connector, DefaultConnector, NextTimeout, RustlsConnector};
use ureq::{Agent, Body};

/// Longest time for a request, beyond the time that the broker was asked to wait.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time for a request that makes the broker plan.
const ADMISSION: Duration = Duration::from_secs(25);

/// Longest time for which a connection is kept without a request, shorter than a broker waits for the next one: a request on a connection that the
/// broker closes at that moment is lost.
const IDLE: Duration = Duration::from_secs(10);

/// Largest body of a host's request that is control traffic, bytes: small by itself, so that it delays nobody.
const SMALL: usize = 4096;

/// Longest time for a message between brokers: it is repeated then.
const PEER: Duration = Duration::from_secs(1);

/// A connection to a broker, opened when it is needed.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    /// The same for small requests of hosts: their packets are marked as control traffic.
    control: Agent,
    /// The URL of the broker, without a path.
    base: String,
    address: String,
    /// Who asks.
    own: Identity,
    /// The address that is tried first, counted on.
    first: Arc<AtomicUsize>,
}

/// Why the broker refuses the own certificate, if that is what it says.
fn refusal(error: &ureq::Error) -> Option<&'static str> {
    let ureq::Error::Io(error) = error else { return None };
    let rustls::Error::AlertReceived(alert) = error.get_ref()?.downcast_ref::<rustls::Error>()? else { return None };
    match alert {
        AlertDescription::CertificateExpired => Some("it has expired, or the clocks differ"),
        AlertDescription::UnknownCA | AlertDescription::DecryptError => Some("another authority has issued it"),
        _ => None,
    }
}

/// The reason why a request was not answered as asked.
#[derive(Debug)]
pub enum ClientError {
    /// The broker does not answer, or is no broker of the realm.
    Unreachable(String),
    /// The broker refused, with its reason.
    Refused(u16, String),
    /// A session does not fit: the limits that it would exceed, and offers.
    Unfit(String, Vec<plan::Refusal>),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unreachable(text) | Self::Refused(_, text) | Self::Unfit(text, _)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for ClientError {}

/// Most addresses of all brokers together: ureq has room for so many.
const MOST: usize = 16;

/// Gives the addresses of the brokers for any name: a certificate says who each is. One that takes no connection is passed over.
#[derive(Clone, Debug)]
struct Fixed {
    addresses: Vec<String>,
    first: Arc<AtomicUsize>,
}

impl Resolver for Fixed {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (count, first) = (self.addresses.len(), self.first.load(Ordering::Relaxed));
        let mut all = self.empty();
        for address in (0..count).map(|next| &self.addresses[(first + next) % count]) {
            let found: Vec<SocketAddr> = address.to_socket_addrs().into_iter().flatten().take(MOST / count).collect();
            found.into_iter().for_each(|address| all.push(address));
        }
        if all.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(all) }
    }
}

impl Client {
    /// A client of the broker at `address` (`HOST:PORT`, with or without `https://`; of several brokers of a domain up to 16, with commas)
    /// that shows these keys.
    pub fn new(address: &str, keys: &Keys) -> Self {
        let plain = |one: &str| one.trim().trim_start_matches("https://").trim_end_matches('/').to_owned();
        let addresses: Vec<String> = address.split(',').map(plain).take(MOST).collect();
        let (address, first) = (addresses.join(","), Arc::<AtomicUsize>::default());
        let own = Certificate::from_der(&keys.certificate).to_owned();
        let key = PrivateKey::from_pem(keys.key.as_bytes());
        let shown = key.ok().map(|key| ClientCert::new_with_certs(&[own], key));
        let tls = TlsConfig::builder()
            .client_cert(shown)
            .root_certs(RootCerts::new_with_certs(&[Certificate::from_der(&keys.realm).to_owned()]))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .https_only(true)
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .max_idle_age(IDLE)
            .timeout_connect(Some(PATIENCE))
            .timeout_global(Some(PATIENCE))
            .build();
        let resolver = Fixed { addresses, first: first.clone() };
        let marked = Marked.chain(RustlsConnector::default());
        let control = Agent::with_parts(config.clone(), marked, resolver.clone());
        let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
        let (base, own) = (format!("https://{}", Identity::any_broker(keys.identity.realm())), keys.identity.clone());
        Self { agent, control, base, address, own, first }
    }

    /// The broker's address, or the addresses of several.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The state that `host` has to have, if it is newer than `since` or becomes newer within `wait`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn desired(&self, host: &str, since: (u64, u64), wait: Duration) -> Result<Option<Desired>, ClientError> {
        let (epoch, revision) = since;
        let query = format!("epoch={epoch}&since={revision}&wait={}", wait.as_secs());
        let request = self.agent.get(self.url(&format!("/v1/hosts/{host}/desired?{query}")));
        let request = request.config().timeout_global(Some(PATIENCE + wait)).build();
        self.answer(request.call(), LARGEST_PLAN * 2)
    }

    /// Reports the state of `host`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn report(&self, host: &str, actual: &Actual) -> Result<(), ClientError> {
        let body = json(actual)?;
        let request = self.of_host(body.len()).post(self.url(&format!("/v1/hosts/{host}/actual")));
        self.answer::<()>(request.content_type("application/json").send(&body), LARGEST).map(drop)
    }

    /// Reports the carriers of the devices of `host`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn report_carriers(&self, host: &str, carriers: &[Carrier]) -> Result<(), ClientError> {
        let body = json(&carriers)?;
        let request = self.of_host(body.len()).post(self.url(&format!("/v1/hosts/{host}/links")));
        self.answer::<()>(request.content_type("application/json").send(&body), LARGEST).map(drop)
    }

    /// The links of the broker's domain, with what each carries now.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn links(&self) -> Result<Links, ClientError> {
        self.expect(self.answer(self.agent.get(self.url("/v1/links")).call(), LARGEST_PLAN)?)
    }

    /// States that a link carries this rate now, bit/s, or what the contract says.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn state_link(&self, link: &str, rate: Option<u64>) -> Result<Links, ClientError> {
        let url = self.url(&format!("/v1/links/{link}"));
        let answered = match rate {
            Some(rate_bits_per_s) => {
                let request = self.agent.put(url).config().timeout_global(Some(ADMISSION)).build();
                request.content_type("application/json").send(&json(&Rate { rate_bits_per_s })?)
            }
            None => self.agent.delete(url).config().timeout_global(Some(ADMISSION)).build().call(),
        };
        self.expect(self.answer(answered, LARGEST_PLAN)?)
    }

    /// Asks for a program of `host` whether a topic is part of a session that is active.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn admitted(&self, host: &str, session: &str, topic: &str) -> Result<Admission, ClientError> {
        let request = self.of_host(0).get(self.url(&format!("/v1/hosts/{host}/admitted")));
        let answered = request.query("session", session).query("topic", topic).call();
        self.expect(self.answer(answered, LARGEST)?)
    }

    /// Makes the plan of this text the one that all hosts have to have, or takes the plan away: all hosts have to be as they were
    /// before. Only if nobody changed it since revision `after`; a broker that plans by itself refuses as long as a session is admitted instead.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn change_plan(&self, plan: Option<&str>, after: u64) -> Result<Accepted, ClientError> {
        let url = self.url(&format!("/v1/plan?after={after}"));
        let answered = match plan {
            Some(text) => self.agent.put(url).content_type("application/toml").send(text),
            None => self.agent.delete(url).call(),
        };
        self.expect(self.answer(answered, LARGEST)?)
    }

    /// The plan's text, if there is one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn plan(&self) -> Result<Desired, ClientError> {
        self.expect(self.answer(self.agent.get(self.url("/v1/plan")).call(), LARGEST_PLAN * 2)?)
    }

    /// The hosts, as the broker knows them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn hosts(&self) -> Result<Vec<Host>, ClientError> {
        self.expect(self.answer(self.agent.get(self.url("/v1/hosts")).call(), LARGEST_PLAN)?)
    }

    /// Asks for the session of this file, or for a change of it: admitted as a whole, or refused. The same file again renews its lease.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn request_session(&self, name: &str, text: &str) -> Result<Session, ClientError> {
        self.put_session(&format!("/v1/sessions/{name}"), text)
    }

    /// Asks whether the session of this file would be admitted.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn try_session(&self, name: &str, text: &str) -> Result<Session, ClientError> {
        self.put_session(&format!("/v1/sessions/{name}?dry_run=true"), text)
    }

    fn put_session(&self, path: &str, text: &str) -> Result<Session, ClientError> {
        let request = self.agent.put(self.url(path));
        let request = request.config().timeout_global(Some(ADMISSION)).build();
        self.expect(self.answer(request.content_type("application/toml").send(text), LARGEST_PLAN)?)
    }

    /// Stops a session.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn stop_session(&self, name: &str) -> Result<Accepted, ClientError> {
        let request = self.agent.delete(self.url(&format!("/v1/sessions/{name}")));
        let request = request.config().timeout_global(Some(ADMISSION)).build();
        self.expect(self.answer(request.call(), LARGEST)?)
    }

    /// A session, with its text.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn session(&self, name: &str) -> Result<Session, ClientError> {
        self.expect(self.answer(self.agent.get(self.url(&format!("/v1/sessions/{name}"))).call(), LARGEST_PLAN)?)
    }

    /// All sessions.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn sessions(&self) -> Result<Vec<Session>, ClientError> {
        self.expect(self.answer(self.agent.get(self.url("/v1/sessions")).call(), LARGEST_PLAN)?)
    }

    /// The pipes of the broker's domain, with what is sold of each.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn pipes(&self) -> Result<Vec<Pipe>, ClientError> {
        self.expect(self.answer(self.agent.get(self.url("/v1/pipes")).call(), LARGEST_PLAN)?)
    }

    /// Lines of the accounts behind the record of this number, at most [`MOST_RECORDS`](crate::accounts::MOST_RECORDS).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn accounts(&self, after: u64) -> Result<Vec<String>, ClientError> {
        let answered = self.agent.get(self.url(&format!("/v1/accounts?after={after}"))).call();
        self.expect(self.answer(answered, LARGEST_PLAN)?)
    }

    /// Says something to the broker of a neighbouring domain.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn tell_peer(&self, message: &Message) -> Result<(), ClientError> {
        let request = self.agent.post(self.url("/v1/peer"));
        let request = request.config().timeout_global(Some(PEER)).build();
        self.answer::<()>(request.content_type("application/json").send(&json(message)?), LARGEST).map(drop)
    }

    /// Asks the broker of a neighbouring domain to sign lines of the own accounts that name it as owner.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn claim(&self, claim: &Claim) -> Result<Signed, ClientError> {
        let request = self.agent.post(self.url("/v1/peer/claim"));
        let request = request.config().timeout_global(Some(ADMISSION)).build();
        self.expect(self.answer(request.content_type("application/json").send(&json(claim)?), LARGEST_PLAN)?)
    }

    /// For a request with a body of so many bytes, and a small answer: what a host's agent says goes before samples of class normal as long as it
    /// is small. A plan is no small answer: that it has come is said in as many packets as half of it has.
    fn of_host(&self, body: usize) -> &Agent {
        if self.own.kind() == Kind::Host && body <= SMALL { &self.control } else { &self.agent }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn expect<T>(&self, answer: Option<T>) -> Result<T, ClientError> {
        answer.ok_or_else(|| ClientError::Unreachable(format!("the broker at {} gave an empty answer", self.address)))
    }

    /// The body of an answer; `None` if it has none. After none at all the next address is tried first: a broker that was stopped takes connections, but
    /// does not answer.
    fn answer<T: DeserializeOwned>(
        &self,
        response: Result<Response<Body>, ureq::Error>,
        most: usize,
    ) -> Result<Option<T>, ClientError> {
        let lost = |what: &dyn fmt::Display| {
            ClientError::Unreachable(format!("the broker at {} does not answer: {what}", self.address))
        };
        let mut response = response.map_err(|e| {
            self.first.fetch_add(1, Ordering::Relaxed);
            let Self { address, own, .. } = self;
            refusal(&e).map_or_else(
                || lost(&e),
                |why| {
                    ClientError::Unreachable(format!(
                        "the broker at {address} refuses the certificate of {own}: {why}; `thalweg keys issue` makes another one"
                    ))
                },
            )
        })?;
        let status = response.status();
        let limited = response.body_mut().with_config().limit(most as u64);
        let body = limited.read_to_vec().map_err(|e| lost(&e))?;
        match status {
            StatusCode::NO_CONTENT => Ok(None),
            status if status.is_success() => serde_json::from_slice(&body).map(Some).map_err(|e| lost(&e)),
            status => {
                let said: Refusal = serde_json::from_slice(&body).unwrap_or_default();
                let reason = if said.error.is_empty() { status.to_string() } else { said.error };
                let text = format!("the broker at {} refused: {reason}", self.address);
                match said.refusals.is_empty() {
                    true => Err(ClientError::Refused(status.as_u16(), text)),
                    false => Err(ClientError::Unfit(text, said.refusals)),
                }
            }
        }
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(value).map_err(|e| ClientError::Unreachable(e.to_string()))
}
