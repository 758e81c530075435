//! A way to a port of this host that can be cut: what is sent then waits, and comes late.

use super::TICK;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub struct Way {
    /// The port at which it begins.
    pub port: u16,
    is_cut: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Way {
    /// To this port.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Self { port: listener.local_addr().unwrap().port(), is_cut: Arc::default(), is_over: Arc::default() };
        let (is_cut, is_over) = (way.is_cut.clone(), way.is_over.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // Where nobody listens, the near end is closed.
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (near, far) = (Arc::new(near), Arc::new(far));
                pass(near.clone(), far.clone(), is_cut.clone());
                pass(far, near, is_cut.clone());
            }
        });
        way
    }

    pub fn cut(&self, cut: bool) {
        self.is_cut.store(cut, Ordering::Relaxed);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.cut(false);
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port)); // the listener looks
    }
}

/// Passes on what comes, until one end is closed.
fn pass(from: Arc<TcpStream>, to: Arc<TcpStream>, is_cut: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let (_, mut chunk) = (to.set_nodelay(true), [0; 4096]);
        while let Ok(read @ 1..) = (&*from).read(&mut chunk) {
            while is_cut.load(Ordering::Relaxed) {
                std::thread::sleep(TICK);
            }
            if (&*to).write_all(&chunk[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
