//! Relays for the tests: real ones in processes of their own, and a scripted one that answers as it is told.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use pkarr_verifier::lookup::{Network, Place};
use tokio::net::TcpListener;

/// A relay in a process of its own.
pub struct RelayProcess {
    child: Child,
    pub place: Place,
}

impl RelayProcess {
    pub fn start(bootstrap: &[String]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_relay"))
            .arg("127.0.0.1:0")
            .args(bootstrap)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the relay is built with the tests");
        let mut address = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut address).expect("it prints where it listens");
        let place = Place::Relay(address.trim().parse().expect("an address"));
        Self { child, place }
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it was running");
    }

    /// It takes connections and answers nobody, as if the machine were overloaded.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// It goes on.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.expect("there is a `kill`").success());
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        // A stopped process cannot be ended by anything but this.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Answer = Arc<dyn Fn() -> Response + Send + Sync>;

/// A relay that answers as it is told.
#[derive(Clone)]
pub struct Puppet {
    answer: Arc<Mutex<Answer>>,
    pub place: Place,
}

impl Puppet {
    pub async fn start(answer: impl Fn() -> Response + Send + Sync + 'static) -> Self {
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(Arc::new(answer)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let told = Arc::clone(&answer);
        let router = Router::new().fallback(async move || {
            let answer = Arc::clone(&told.lock().expect("no panic"));
            answer()
        });
        tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { answer, place: Place::Relay(format!("http://{address}/").parse().expect("an address")) }
    }

    /// One that answers with that status and nothing else.
    pub async fn with_status(status: u16) -> Self {
        Self::start(move || plain(status)).await
    }

    pub fn answers(&self, answer: impl Fn() -> Response + Send + Sync + 'static) {
        *self.answer.lock().expect("no panic") = Arc::new(answer);
    }

    pub fn network(&self) -> Arc<Network> {
        Arc::new(Network::new(vec![self.place.clone()]))
    }
}

pub fn plain(status: u16) -> Response {
    Response::builder().status(status).body(Body::empty()).expect("a plain answer")
}

pub fn bytes(payload: impl Into<Body>) -> Response {
    Response::new(payload.into())
}
