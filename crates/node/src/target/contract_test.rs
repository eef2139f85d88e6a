//! The contract against every target: a loopback server, a real program, a pipe.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};

use redrive::process::Supervisor;
use redrive_core::book::connectors::container::ContainerSettings;
use redrive_core::engine::QueueName;
use redrive_core::ids::ServiceName;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::Target;
use super::call_test::book_of;
use super::contract::{Downstream, DownstreamMood, keeps};
use super::exec::{Launch, WorkerTarget};
use super::http::Pool;
use super::log::LogTarget;
use super::registry::Targets;
use crate::connectors::{ConnectorFuture, Drivers, Site};
use crate::secret::Secrets;
use crate::tls::Roots;

/// The target that stands like that in a book.
pub(super) fn made(target: &str) -> Arc<dyn Target> {
    let book = book_of(&format!(
        "version: 1\nservices: {{ shop: {{ target: {target}, events: [orders.placed] }} }}\n"
    ));
    let targets = Targets::new(&book, &Secrets::default(), None).expect("it can be made");
    let queue = QueueName { service: ServiceName::new("shop").expect("a name"), channel: None };
    targets.get(&queue).expect("it is there")
}

struct Loopback {
    address: SocketAddr,
    mood: Arc<Mutex<DownstreamMood>>,
    taken: Arc<Mutex<Vec<String>>>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

impl Loopback {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        Self {
            address,
            mood: Arc::new(Mutex::new(DownstreamMood::Takes)),
            taken: Arc::default(),
            serving: Mutex::default(),
        }
    }
}

async fn serve(listener: TcpListener, mood: Arc<Mutex<DownstreamMood>>, taken: Arc<Mutex<Vec<String>>>) {
    // Dropped with the listener, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(answer(stream, Arc::clone(&mood), Arc::clone(&taken)));
    }
}

async fn answer(mut stream: TcpStream, mood: Arc<Mutex<DownstreamMood>>, taken: Arc<Mutex<Vec<String>>>) {
    let mut buffer = [0; 4_096];
    // Small requests come in one piece.
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let now = *mood.lock().expect("no test panics here");
        let status = match now {
            DownstreamMood::Takes => {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let id =
                    text.lines().find_map(|line| line.strip_prefix("ce-id: ")).expect("an id").to_owned();
                taken.lock().expect("no test panics here").push(id);
                "200 OK"
            }
            DownstreamMood::Fails => "503 Service Unavailable",
            DownstreamMood::Hangs | DownstreamMood::Away => std::future::pending().await,
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

impl Downstream for Loopback {
    fn target(&self) -> Arc<dyn Target> {
        made(&format!("{{ http: \"http://{}/\" }}", self.address))
    }

    fn set_mood(&self, mood: DownstreamMood) -> ConnectorFuture<'_, bool> {
        Box::pin(async move {
            *self.mood.lock().expect("no test panics here") = mood;
            let before = self.serving.lock().expect("no test panics here").take();
            if let Some(before) = before {
                before.abort();
                let _ = before.await;
            }
            if mood != DownstreamMood::Away {
                let listener = TcpListener::bind(self.address).await.expect("the port is free again");
                let serving = serve(listener, Arc::clone(&self.mood), Arc::clone(&self.taken));
                *self.serving.lock().expect("no test panics here") = Some(tokio::spawn(serving));
            }
            true
        })
    }

    fn taken(&self) -> ConnectorFuture<'_, Vec<String>> {
        let taken = self.taken.lock().expect("no test panics here").clone();
        Box::pin(async move { taken })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_keeps_the_contract() {
    keeps(&Loopback::start().await).await;
}

/// A script that does as a file beside it says.
struct Script(TempDir);

const SCRIPT: &str = "#!/bin/sh
cd \"$(dirname \"$0\")\" || exit 1
case $(cat mood) in
  takes) cat > taken/$$ ;;
  fails) exit 75 ;;
  *) sleep 1000 ;;
esac
";

impl Script {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("taken")).expect("made");
        let work = folder.path().join("work");
        fs::write(&work, SCRIPT).expect("written");
        fs::set_permissions(&work, fs::Permissions::from_mode(0o755)).expect("it may run");
        Self(folder)
    }
}

impl Downstream for Script {
    fn target(&self) -> Arc<dyn Target> {
        made(&format!("{{ exec: [\"{}\"], grace: 100ms }}", self.0.path().join("work").display()))
    }

    fn set_mood(&self, mood: DownstreamMood) -> ConnectorFuture<'_, bool> {
        let (work, away) = (self.0.path().join("work"), self.0.path().join("away"));
        let stated = match mood {
            DownstreamMood::Takes => "takes",
            DownstreamMood::Fails => "fails",
            DownstreamMood::Hangs | DownstreamMood::Away => "hangs",
        };
        fs::write(self.0.path().join("mood"), stated).expect("written");
        if mood == DownstreamMood::Away {
            fs::rename(&work, &away).expect("renamed");
        } else if away.exists() {
            fs::rename(&away, &work).expect("renamed");
        }
        Box::pin(async { true })
    }

    fn taken(&self) -> ConnectorFuture<'_, Vec<String>> {
        let files = fs::read_dir(self.0.path().join("taken")).expect("it is there");
        let ids = files.map(|file| {
            let text = fs::read(file.expect("a file").path()).expect("it is read");
            let event: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            event["id"].as_str().expect("an id").to_owned()
        });
        let ids = ids.collect();
        Box::pin(async move { ids })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_keeps_the_contract() {
    keeps(&Script::new()).await;
}

/// The same script, run by the scripted docker.
struct Container(Script);

const SCRIPTED: &str = include_str!("../../../server/tests/all/containers/scripted-docker");

impl Container {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let script = Script::new();
        let docker = script.0.path().join("docker");
        fs::create_dir(script.0.path().join("state")).expect("made");
        fs::write(&docker, SCRIPTED).expect("written");
        fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).expect("it may run");
        Self(script)
    }
}

impl Downstream for Container {
    fn target(&self) -> Arc<dyn Target> {
        let folder = self.0.0.path().display();
        let book = book_of(&format!(
            "version: 1\nservices: {{ shop: {{ target: {{ container: worker, command: [\"{folder}/work\"], grace: 100ms }}, events: [orders.placed] }} }}\n"
        ));
        let settings: &ContainerSettings =
            book.sections().services[0].target.endpoint.settings().expect("its own");
        let runtime = format!("{folder}/docker");
        let launch = Launch::Container { runtime, settings: Box::new(settings.clone()) };
        let (supervisor, pool) = (Supervisor::new(), Arc::new(Pool::new(Roots::System)));
        let site = Site {
            drivers: Drivers::built_in(),
            sections: book.sections(),
            secrets: &Secrets::default(),
            pool: &pool,
            supervisor: &supervisor,
            permits: 1,
            place: "service shop".to_owned(),
        };
        Arc::new(WorkerTarget::new(launch, &settings.run, &site).expect("it can be made"))
    }

    fn set_mood(&self, mood: DownstreamMood) -> ConnectorFuture<'_, bool> {
        let down = self.0.0.path().join("state/down");
        if mood == DownstreamMood::Away {
            fs::write(&down, "").expect("written");
            return Box::pin(async { true });
        }
        if down.exists() {
            fs::remove_file(&down).expect("removed");
        }
        self.0.set_mood(mood)
    }

    fn taken(&self) -> ConnectorFuture<'_, Vec<String>> {
        self.0.taken()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn container_keeps_the_contract() {
    keeps(&Container::new()).await;
}

/// A pipe whose reader has moods.
#[derive(Clone)]
struct Pipe(Arc<Shared>);

type Shared = (Mutex<(DownstreamMood, Vec<u8>)>, Condvar);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (state, changed) = &*self.0;
        let mut state = state.lock().expect("no test panics here");
        let was = state.0;
        match was {
            DownstreamMood::Takes => {
                state.1.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            DownstreamMood::Fails | DownstreamMood::Away => Err(io::ErrorKind::BrokenPipe.into()),
            DownstreamMood::Hangs => {
                let ended = changed.wait_while(state, |state| state.0 == DownstreamMood::Hangs);
                drop(ended.expect("no test panics here"));
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Downstream for Pipe {
    fn target(&self) -> Arc<dyn Target> {
        Arc::new(LogTarget::new(self.clone()))
    }

    fn set_mood(&self, mood: DownstreamMood) -> ConnectorFuture<'_, bool> {
        let (state, changed) = &*self.0;
        state.lock().expect("no test panics here").0 = mood;
        changed.notify_all();
        Box::pin(async { true })
    }

    fn taken(&self) -> ConnectorFuture<'_, Vec<String>> {
        let text = String::from_utf8(self.0.0.lock().expect("no test panics here").1.clone()).expect("text");
        let ids = text.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
        Box::pin(async move { ids })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_keeps_the_contract() {
    keeps(&Pipe(Arc::new((Mutex::new((DownstreamMood::Takes, Vec::new())), Condvar::new())))).await;
}
