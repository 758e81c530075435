//! Connections to a broker: TLS 1.3 with certificates at both ends, HTTP/1.1 or HTTP/2, each bounded.

mod refusal;

use crate::api::{Broker, PATIENCE, router};
use agent::identity::Identity;
use agent::keys::{Keys, identity_of};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use refusal::Refusals;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Most connections.
const CONNECTIONS: usize = 4096;
/// Most connections from one address.
const PER_ADDRESS: usize = 64;
/// Longest time of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Most requests at once on one HTTP/2 connection.
const STREAMS: u32 = 32;
/// Time between two looks at the request to end.
const TICK: Duration = Duration::from_millis(50);

/// Times after which a connection is closed, whatever its peer does or leaves out.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until the header of an HTTP/1.1 request is complete, from the end of the one before.
    pub header: Duration,
    /// Until a connection takes no more requests: also one over HTTP/2 that says nothing, or whose answers nobody reads.
    pub age: Duration,
    /// For answers that are under way then.
    pub rest: Duration,
}

impl Default for Limits {
    /// 15 s, 5 min, and as long as a request may take.
    fn default() -> Self {
        Self { header: Duration::from_secs(15), age: Duration::from_secs(300), rest: PATIENCE }
    }
}

/// News of a broker's connections, for its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It listens to this address.
    Listening(SocketAddr),
    /// A caller was refused before its first request. At most one a second is told.
    Refused {
        /// Its address.
        from: SocketAddr,
        /// The reason.
        because: String,
        /// Those before it that were not told.
        untold: u64,
    },
}

/// The configuration of a broker's connections: callers need a certificate of its realm.
///
/// # Errors
/// The keys do not fit.
pub fn tls(keys: &Keys) -> io::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(keys.realm.clone()).map_err(io::Error::other)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = verifier.build().map_err(io::Error::other)?;
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let builder = builder.map_err(io::Error::other)?.with_client_cert_verifier(verifier);
    let chain = vec![keys.certificate.clone()];
    let key = keys.private_key().map_err(io::Error::other)?;
    let mut config = builder.with_single_cert(chain, key).map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Who resumes an earlier connection shows no certificate again: it would go on when that has expired.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Serves until `ended`.
///
/// # Errors
/// The address cannot be listened to, or the keys do not fit.
pub fn run(
    listen: SocketAddr,
    keys: &Keys,
    mut broker: Broker,
    limits: Limits,
    ended: &(dyn Fn() -> bool + Sync),
    tell: impl Fn(News) + Send + Sync + 'static,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(Arc::new(tls(keys)?));
    broker.sign_with(keys).map_err(io::Error::other)?;
    let server = Server {
        acceptor,
        broker: Arc::new(broker),
        realm: keys.identity.realm().to_owned(),
        limits,
        open: Arc::new(Mutex::new(HashMap::new())),
        log: Arc::new(Log { tell: Box::new(tell), started: Instant::now(), refusals: Mutex::default() }),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let served = runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        (server.log.tell)(News::Listening(listener.local_addr()?));
        tokio::select! {
            () = server.accept(listener) => {}
            () = server.broker.end_leases() => {}
            () = server.broker.follow_links() => {}
            () = server.broker.follow_offers() => {}
            () = server.broker.serve_crossings() => {}
            () = server.broker.account() => {}
            () = until(ended) => {}
        }
        Ok(())
    });
    runtime.shutdown_timeout(TICK);
    server.broker.account_last();
    served
}

async fn until(ended: &(dyn Fn() -> bool + Sync)) {
    while !ended() {
        tokio::time::sleep(TICK).await;
    }
}

/// What every connection shares.
#[derive(Clone)]
struct Server {
    acceptor: TlsAcceptor,
    broker: Arc<Broker>,
    realm: String,
    limits: Limits,
    /// Open connections by address.
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
    log: Arc<Log>,
}

/// Who is told news.
struct Log {
    tell: Box<dyn Fn(News) + Send + Sync>,
    started: Instant,
    refusals: Mutex<Refusals>,
}

impl Log {
    fn refused(&self, from: SocketAddr, because: impl fmt::Display) {
        let next = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).next(self.started.elapsed());
        if let Some(untold) = next {
            (self.tell)(News::Refused { from, because: because.to_string(), untold });
        }
    }
}

impl Server {
    async fn accept(&self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let Some(place) = Place::take(&self.open, from.ip()) else { continue };
                    let server = self.clone();
                    tokio::spawn(async move {
                        server.serve(stream, from).await;
                        drop(place);
                    });
                }
                // Too many open files, or a connection that its peer gave up.
                Err(_) => tokio::time::sleep(TICK).await,
            }
        }
    }

    /// Serves one connection. Who shows no certificate of the realm is not heard.
    async fn serve(&self, stream: TcpStream, from: SocketAddr) {
        let _ = stream.set_nodelay(true);
        let accepted = self.acceptor.accept(stream).into_fallible();
        let stream = match tokio::time::timeout(HANDSHAKE, accepted).await {
            Ok(Ok(stream)) => stream,
            Ok(Err((error, stream))) => {
                refusal::reason(&error).into_iter().for_each(|because| self.log.refused(from, because));
                return refusal::let_go(stream).await;
            }
            Err(_) => return,
        };
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let caller = match shown.map(identity_of) {
            Some(Ok(caller)) if caller.realm() == self.realm => caller,
            Some(Ok(other)) => return self.log.refused(from, format_args!("{other} is of another realm")),
            Some(Err(why)) => return self.log.refused(from, format_args!("its certificate: {why}")),
            None => return,
        };
        // What was negotiated, and not what the first bytes look like: they may never come.
        let builder = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Builder::new(TokioExecutor::new()).http2_only(),
            _ => Builder::new(TokioExecutor::new()).http1_only(),
        };
        self.requests(builder, stream, caller).await;
    }

    /// Answers the requests of one connection, until it is too old.
    async fn requests(&self, mut builder: Builder<TokioExecutor>, stream: TlsStream<TcpStream>, caller: Identity) {
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.limits.header);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
        let service = TowerToHyperService::new(router(self.broker.clone(), caller));
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        // A connection that breaks is its peer's matter.
        if tokio::time::timeout(self.limits.age, connection.as_mut()).await.is_err() {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(self.limits.rest, connection).await;
        }
    }
}

/// A connection among those that are allowed.
struct Place {
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Place {
    /// `None`: there are as many as may be, of all or of this address.
    fn take(open: &Arc<Mutex<HashMap<IpAddr, usize>>>, address: IpAddr) -> Option<Self> {
        let mut counts = open.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = counts.values().sum();
        let own = counts.get(&address).copied().unwrap_or(0);
        if all >= CONNECTIONS || own >= PER_ADDRESS {
            return None;
        }
        counts.insert(address, own + 1);
        Some(Self { open: open.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(&self.address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_some_of_the_connections() {
        let (open, one) = (Arc::new(Mutex::new(HashMap::new())), IpAddr::from([10, 0, 0, 1]));
        let mut places: Vec<_> = (0..PER_ADDRESS).map_while(|_| Place::take(&open, one)).collect();
        assert_eq!((places.len(), Place::take(&open, one).is_none()), (PER_ADDRESS, true));
        assert!(Place::take(&open, IpAddr::from([10, 0, 0, 2])).is_some());
        places.pop();
        assert!(Place::take(&open, one).is_some());
        drop(places);
        assert!(open.lock().unwrap().is_empty());
    }
}
