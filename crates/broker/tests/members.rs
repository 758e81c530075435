//! Three members of a real etcd on this machine.
#![allow(dead_code)] // each test uses a part of it

use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const COUNT: usize = 3;

/// One cluster at a time: a machine with two processors keeps no lease of four seconds beside fifteen members that write.
static TURN: Mutex<()> = Mutex::new(());

/// The members; they end with this.
pub struct Members {
    _turn: MutexGuard<'static, ()>,
    dir: PathBuf,
    /// For clients and for each other.
    ports: [[u16; 2]; COUNT],
    running: [Mutex<Option<Child>>; COUNT],
    /// Clients need TLS, with certificates at both ends: those of the directory.
    tls: bool,
}

impl Members {
    /// Starts them; `None`: there is no etcd here, and the test says so.
    pub fn start(test: &str) -> Option<Self> {
        let members = Self::new(test)?;
        (0..COUNT).for_each(|member| members.begin(member));
        members.until_served();
        Some(members)
    }

    /// The same with TLS. `make` puts `ca.pem`, `own.pem` and `own.key` into a directory.
    pub fn start_with_tls(test: &str, make: impl FnOnce(&Path)) -> Option<Self> {
        let mut members = Self::new(test)?;
        make(&members.dir);
        members.tls = true;
        (0..COUNT).for_each(|member| members.begin(member));
        Some(members)
    }

    /// Their directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn new(test: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            println!("skipped: {test} because there is no etcd (Debian: etcd-server)");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("thalweg-etcd-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let held: Vec<TcpListener> = (0..2 * COUNT).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |at: usize| held[at].local_addr().unwrap().port();
        let ports = [0, 1, 2].map(|member| [port(2 * member), port(2 * member + 1)]);
        drop(held);
        Some(Self { _turn: turn, dir, ports, running: Default::default(), tls: false })
    }

    /// Starts one, with what it had before.
    pub fn begin(&self, member: usize) {
        let own = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<String> = (0..COUNT).map(|at| format!("m{at}={}", own(self.ports[at][1]))).collect();
        let [client, peer] = [self.urls()[member].clone(), own(self.ports[member][1])];
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{member}"), "--initial-cluster", &all.join(",")]);
        command.arg("--data-dir").arg(self.dir.join(format!("m{member}")));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        if self.tls {
            let file = |name: &str| self.dir.join(name);
            command.arg("--cert-file").arg(file("own.pem")).arg("--key-file").arg(file("own.key"));
            command.arg("--trusted-ca-file").arg(file("ca.pem")).arg("--client-cert-auth");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        *self.running(member) = Some(command.spawn().unwrap());
    }

    /// Kills one, as a machine that loses power does.
    pub fn kill(&self, member: usize) {
        if let Some(mut child) = self.running(member).take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn running(&self, member: usize) -> MutexGuard<'_, Option<Child>> {
        self.running[member].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Their URLs.
    pub fn urls(&self) -> Vec<String> {
        let scheme = if self.tls { "https" } else { "http" };
        self.ports.iter().map(|[client, _]| format!("{scheme}://127.0.0.1:{client}")).collect()
    }

    /// Asks any of them; `None`: none answers.
    pub fn ask(&self, path: &str, body: &Value) -> Option<Value> {
        (0..COUNT).find_map(|member| self.ask_one(member, path, body))
    }

    fn ask_one(&self, member: usize, path: &str, body: &Value) -> Option<Value> {
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(2))).build();
        let url = format!("{}{path}", self.urls()[member]);
        let answer = ureq::Agent::new_with_config(config).post(url).send(body.to_string()).ok()?;
        serde_json::from_slice(&answer.into_body().read_to_vec().ok()?).ok()
    }

    /// The member that leads the others, once one does.
    pub fn leader(&self) -> usize {
        let leads = |member: &usize| {
            let status = self.ask_one(*member, "/v3/maintenance/status", &json!({}));
            status.is_some_and(|status| status["header"]["member_id"] == status["leader"])
        };
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(found) = (0..COUNT).find(leads) {
                return found;
            }
            assert!(Instant::now() < until, "no member of etcd leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a majority answers.
    pub fn until_served(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        while self.ask("/v3/kv/range", &json!({"key": "Lw=="})).is_none() {
            assert!(Instant::now() < until, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..COUNT).for_each(|member| self.kill(member));
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
