//! Starts servers, sinks, baselines and loads, each in its own folder.

use std::cell::{Cell, RefCell};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use redrive_server::terminal::style;
use serde::Deserialize;

use super::ask;
use super::book::{self, Hook, Keep, Service};
use super::latency::Latency;
use super::plan::Plan;
use super::process::{Listener, Usage, Worker};
use super::role::load::{Door, LoadPlan, LoadResult, OnFailure, Pace, Sessions, Until};
use super::role::sink::{Counts, Seen};

pub(super) const CONNECTIONS: u32 = 64;

/// A sink without events for this long is complete.
const SILENCE_MAX: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_millis(20);

pub(super) struct Stage {
    pub plan: Plan,
    program: PathBuf,
    redrive: PathBuf,
    folder: PathBuf,
    started: Cell<u32>,
    /// CPU per request of the bare handler, each time measured.
    bare_micros: RefCell<Vec<f64>>,
}

pub(super) struct Server {
    listener: Listener,
    program: PathBuf,
    redrive: PathBuf,
    folder: PathBuf,
}

/// The part of `/v1/status` that scenarios read.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    pub services: Vec<ServiceStatus>,
    pub calls_in_flight: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct ServiceStatus {
    pub dead: u64,
}

pub(super) struct Sink(Listener);

pub(super) struct Load(Worker);

#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub result: LoadResult,
    pub cpu_micros: f64,
}

/// Latency at a fixed rate, and the machine's share of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub latency: Latency,
    /// Milliseconds per second that threads waited for a core, added up.
    pub queued_ms: f64,
}

impl Stage {
    pub(super) fn new(plan: Plan, redrive: PathBuf, folder: PathBuf) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("could not find the program itself")?;
        Ok(Self { plan, program, redrive, folder, started: Cell::new(0), bare_micros: RefCell::default() })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn sink(&self) -> anyhow::Result<Sink> {
        self.role(&["sink"]).map(Sink)
    }

    pub(super) fn server(&self, sink: &Sink, services: &[Service]) -> anyhow::Result<Server> {
        self.server_with(&book::text(sink.address(), services, None))
    }

    /// With that retention.
    pub(super) fn forgetful_server(
        &self,
        sink: &Sink,
        services: &[Service],
        keep: Keep,
    ) -> anyhow::Result<Server> {
        self.server_with(&book::text(sink.address(), services, Some(keep)))
    }

    /// With a token in a file, and requests made from templates.
    pub(super) fn templates_server(&self, sink: &Sink, service: &Service) -> anyhow::Result<Server> {
        let file = self.folder.join(format!("token-{}", self.number()));
        fs::write(&file, "a-token-of-the-benchmark").context("could not write a secret")?;
        self.server_with(&book::templates(sink.address(), service, &file))
    }

    /// With a webhook, whose secret is in a file, and an archive in that folder.
    pub(super) fn hooked_server(
        &self,
        sink: &Sink,
        services: &[Service],
        hook: &Hook,
        archive: &Path,
    ) -> anyhow::Result<Server> {
        let file = self.folder.join(format!("secret-{}", self.number()));
        fs::write(&file, &hook.secret).context("could not write a secret")?;
        let edges = book::edges(hook, &file, archive);
        self.server_with(&(book::text(sink.address(), services, None) + &edges))
    }

    fn server_with(&self, book: &str) -> anyhow::Result<Server> {
        let folder = self.folder.join(format!("server-{}", self.number()));
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        fs::write(folder.join("redrive.yaml"), book).context("could not write a rule book")?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (program, redrive) = (self.program.clone(), self.redrive.clone());
        let listener = serve(&program, &redrive, &folder, any)?;
        Ok(Server { listener, program, redrive, folder })
    }

    fn role(&self, words: &[&str]) -> anyhow::Result<Listener> {
        let mut command = Command::new(&self.program);
        command.arg("role").args(words);
        Listener::start(command, &self.log(words[0]))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}-{}", self.number()))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}-{}.log", self.number()))
    }

    fn number(&self) -> u32 {
        self.started.replace(self.started.get() + 1)
    }

    pub(super) fn start(&self, plan: &LoadPlan) -> anyhow::Result<Load> {
        let mut command = Command::new(&self.program);
        let plan = serde_json::to_string(plan).context("the plan is no JSON")?;
        command.args(["role", "load", &plan]);
        Worker::start(command, self.log("load")).map(Load)
    }

    pub(super) fn load(&self, plan: &LoadPlan) -> anyhow::Result<LoadResult> {
        self.start(plan)?.finish()
    }

    pub(super) fn bare_handler(&self) -> anyhow::Result<Burst> {
        let handler = self.role(&["handler"])?;
        let burst = self.burst(&handler, &closed(handler.address, Until::Over(self.plan.burst)))?;
        self.bare_micros.borrow_mut().push(burst.cpu_micros);
        Ok(burst)
    }

    pub(super) fn bare_handler_at(&self, rate: f64, over: Duration) -> anyhow::Result<Timed> {
        let handler = self.role(&["handler"])?;
        self.timed(&handler, rate, over)
    }

    pub(super) fn timed(&self, listener: &Listener, rate: f64, over: Duration) -> anyhow::Result<Timed> {
        let before = listener.usage()?;
        let plan = LoadPlan { pace: Pace::PerSecond(rate), ..closed(listener.address, Until::Over(over)) };
        let result = self.load(&plan)?;
        Ok(Timed {
            latency: result.latency,
            queued_ms: queued_ms_each_second(before, listener.usage()?, over),
        })
    }

    pub(super) fn bare_micros(&self) -> Vec<f64> {
        self.bare_micros.borrow().clone()
    }

    pub(super) fn bare_relay(&self, sink: &Sink) -> anyhow::Result<Listener> {
        self.role(&["relay", &sink.address().to_string()])
    }

    pub(super) fn burst(&self, listener: &Listener, plan: &LoadPlan) -> anyhow::Result<Burst> {
        let before = listener.usage()?;
        let result = self.load(plan)?;
        Ok(Burst { result, cpu_micros: micros_each(before, listener.usage()?, result.accepted) })
    }
}

pub(super) fn say(text: impl std::fmt::Display) {
    anstream::eprintln!("{}", style::dim(text));
}

/// Events of one type without a session, in a closed loop.
pub(super) fn closed(to: SocketAddr, until: Until) -> LoadPlan {
    LoadPlan {
        to,
        connections: CONNECTIONS,
        first: 0,
        until,
        pace: Pace::Closed,
        types: 1,
        sessions: Sessions::None,
        door: Door::Events,
        on_failure: OnFailure::GiveUp,
    }
}

/// CPU per event, in microseconds.
pub(super) fn micros_each(before: Usage, after: Usage, events: u64) -> f64 {
    after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / events.max(1) as f64
}

pub(super) fn queued_ms_each_second(before: Usage, after: Usage, over: Duration) -> f64 {
    let queued = after.queued.saturating_sub(before.queued).as_secs_f64();
    queued * 1e3 / over.as_secs_f64().max(f64::EPSILON)
}

impl Load {
    pub(super) fn is_running(&mut self) -> bool {
        self.0.is_running()
    }

    pub(super) fn finish(self) -> anyhow::Result<LoadResult> {
        serde_json::from_slice(&self.0.finish()?).context("unexpected output of the load process")
    }
}

impl Sink {
    pub(super) fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub(super) fn seen(&self) -> anyhow::Result<Seen> {
        ask::get(self.address(), "/seen")
    }

    pub(super) fn mark(&self) -> anyhow::Result<()> {
        ask::post(self.address(), "/mark")
    }

    pub(super) fn wait_for(&self, events: u64) -> anyhow::Result<Counts> {
        Ok(self.wait_until(events, |seen| seen.counts.distinct)?.counts)
    }

    pub(super) fn wait_for_service(&self, service: &Service, events: u64) -> anyhow::Result<Latency> {
        let of = |seen: &Seen| seen.names.get(&service.name).copied().unwrap_or_default();
        Ok(of(&self.wait_until(events, |seen| of(seen).count)?))
    }

    fn wait_until(&self, events: u64, count: impl Fn(&Seen) -> u64) -> anyhow::Result<Seen> {
        let (mut highest, mut since) = (0, Instant::now());
        loop {
            let seen = self.seen()?;
            let now = count(&seen);
            if now > highest {
                (highest, since) = (now, Instant::now());
            }
            if now >= events || since.elapsed() > SILENCE_MAX {
                return Ok(seen);
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
}

fn serve(program: &Path, redrive: &Path, folder: &Path, listen: SocketAddr) -> anyhow::Result<Listener> {
    let mut command = Command::new(program);
    command.env("REDRIVE_LOG", "error").args(["role", "serve"]).arg(redrive);
    command.args(["serve", "--listen", &listen.to_string()]);
    command.arg("--rules").arg(folder.join("redrive.yaml")).arg("--data").arg(folder.join("data"));
    Listener::start(command, &folder.join("server.log"))
}

impl Server {
    pub(super) fn address(&self) -> SocketAddr {
        self.listener.address
    }

    pub(super) fn listener(&self) -> &Listener {
        &self.listener
    }

    pub(super) fn usage(&self) -> anyhow::Result<Usage> {
        self.listener.usage()
    }

    pub(super) fn pause(&self, service: &Service) -> anyhow::Result<()> {
        ask::post(self.address(), &format!("/v1/services/{}/pause", service.name))
    }

    pub(super) fn resume(&self, service: &Service) -> anyhow::Result<()> {
        ask::post(self.address(), &format!("/v1/services/{}/resume", service.name))
    }

    pub(super) fn status(&self) -> anyhow::Result<Status> {
        ask::get(self.address(), "/v1/status")
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(super) fn kill(&mut self) {
        self.listener.kill();
    }

    /// Restarts it at the same address after a kill; returns the time until it answered.
    pub(super) fn restart(&mut self) -> anyhow::Result<Duration> {
        let address = self.address();
        self.listener = serve(&self.program, &self.redrive, &self.folder, address)?;
        let listening = self.listener.ready_after;
        let asked = Instant::now();
        self.status()?;
        Ok(listening + asked.elapsed())
    }

    /// Ends it and removes its folder, since stores are large.
    pub(super) fn remove(self) {
        let folder = self.folder.clone();
        drop(self);
        // The folder of the whole run is removed later.
        let _ = fs::remove_dir_all(folder);
    }
}
