//! `redrive serve`: accepts events and delivers them until it is stopped.

mod alarms;
pub(crate) mod args;
pub(crate) mod otlp;
mod tls;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use redrive::process::Supervisor;
use redrive_core::book::problem::{Problem, ProblemSeverity};
use redrive_core::book::{BUILTIN_BOOK, RuleBook};
use redrive_core::engine::EngineBounds;
use redrive_core::text::counted;
use redrive_lab::lint;
use redrive_node::archive::archivist::Archivist;
use redrive_node::runtime::{BookSwitchAt, ChangeError, Config, Node, SubmitError};
use redrive_node::secret::Secrets;
use redrive_node::source::Sources;
use redrive_node::store::{self, LossPolicy, Options, Store};
use redrive_node::target::http::Pool;
use redrive_node::target::registry::Targets;
use redrive_node::tls::Roots;
use redrive_node::webhook::WebhookSource;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::access::{AccessControl, AccessParts};
use crate::api::body::BodyBudget;
use crate::api::limits::loopback_only::LoopbackPolicy;
use crate::api::limits::rate::Limiter;
use crate::api::listen::{ApiLimits, start_listening};
use crate::api::transport::TransportScheme;
use crate::api::{App, AppState, Routers};
use crate::cli::{CommandRefusal, wait_for_many};
use crate::demo::{self, Demo};
use crate::lab::doctor::handlers::DoctorReports;
use crate::lab::simulate::handlers::Simulations;
use crate::rules::file::read_book;
use crate::rules::handlers::BookJsonCache;
use crate::serve::args::ServeArgs;
use crate::serve::otlp::settings::OtlpSettings;
use crate::serve::otlp::{SpanCounts, SpanExporter};
use crate::serve::tls::CertificateFiles;
use crate::status::health::HealthMemo;
use crate::status::live::LiveHub;
use crate::status::metrics::gather::Metrics;
use crate::terminal::{self, problem, shell_word, style};
use crate::webhooks::handlers::Webhooks;
use crate::{connectors, logging};

const WATCH_EVERY: Duration = Duration::from_secs(1);

const REQUESTS_END_WITHIN: Duration = Duration::from_secs(5);

const HOOKS_SHOWN_MAX: usize = 5;

const BUILT_IN: &str = "the built-in rule book";

/// Exit code after a failure of the node.
const CODE_FAILED: i32 = 70;

/// Record of running workers in the data folder.
const WORKERS: &str = "workers";

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    logging::start(args.log_level, args.log_format);
    let book = open(args.rules.as_deref())?;
    refuse_open_access(args, &book.book)?;
    wait_for_many(async { serve(args, book, bind(args.listen).await?, None).await })
}

pub(crate) async fn run_demo(args: &ServeArgs, listener: TcpListener, demo: Demo) -> anyhow::Result<()> {
    logging::start(args.log_level, args.log_format);
    let book = open(args.rules.as_deref())?;
    refuse_open_access(args, &book.book)?;
    serve(args, book, listener, Some(demo)).await
}

/// Refuses a public address unless callers must authenticate.
fn refuse_open_access(args: &ServeArgs, book: &RuleBook) -> anyhow::Result<()> {
    if args.listen.ip().is_loopback() || args.insecure || book.sections().access.jwt.is_some() {
        return Ok(());
    }
    // An unreadable folder is reported when it is opened.
    let keys = store::open_reader(&args.data).and_then(|reader| reader.keys()).unwrap_or_default();
    if !keys.is_empty() {
        return Ok(());
    }
    let (listen, port) = (args.listen, args.listen.port());
    let data = shell_word(&args.data.to_string_lossy());
    let refusal = format!(
        "{listen} is a public address, and authentication is off\n  \
         create a key:             redrive keys create NAME --role admin --data {data}\n  \
         or listen locally:        --listen 127.0.0.1:{port}\n  \
         or allow everyone access: --insecure",
    );
    Err(CommandRefusal(refusal).into())
}

struct LoadedBook {
    book: Arc<RuleBook>,
    text: Arc<str>,
    /// State of the file before it was read, so that later writes are noticed.
    stamp: FileStamp,
}

/// Distinguishes versions of a file; `None` if there is no file.
type FileStamp = Option<(SystemTime, u64)>;

fn stamp(path: &Path) -> FileStamp {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Refuses what cannot be read twice. Opening a pipe may block forever, and shutdown signals with it.
fn refuse_other_than_file(path: &Path) -> Result<(), CommandRefusal> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(CommandRefusal(format!("{shown} is not a file"))),
        Err(error) => Err(CommandRefusal(format!("could not read {shown}: {error}"))),
    }
}

fn open(path: Option<&Path>) -> anyhow::Result<LoadedBook> {
    let stamp = path.and_then(stamp);
    let (book, text) = match path {
        Some(path) => read_book(path)?,
        None => (built_in_book(), BUILTIN_BOOK.to_owned()),
    };
    let shown = path.unwrap_or(Path::new(BUILT_IN));
    show_and_refuse(&book.missing(), shown, &text, "uses connectors that this build does not have")?;
    Ok(LoadedBook { book: Arc::new(book), text: text.into(), stamp })
}

fn built_in_book() -> RuleBook {
    redrive_core::book::read(BUILTIN_BOOK, connectors::table()).book.expect("the built-in book is tested")
}

const CANNOT_BE_SERVED: &str = "cannot be served";

fn show_and_refuse(problems: &[Problem], path: &Path, text: &str, verdict: &str) -> anyhow::Result<()> {
    if problems.is_empty() {
        return Ok(());
    }
    for problem in problems {
        problem::say(problem, path, text);
    }
    Err(CommandRefusal(format!("{} {verdict}", path.display())).into())
}

fn targets(
    opened: &LoadedBook,
    path: &Path,
    secrets: &Secrets,
    previous: Option<&Targets>,
) -> anyhow::Result<Targets> {
    show_and_refuse(
        &Secrets::check(&opened.book, connectors::drivers()),
        path,
        &opened.text,
        CANNOT_BE_SERVED,
    )?;
    match Targets::new(&opened.book, secrets, previous) {
        Ok(targets) => Ok(targets),
        Err(problems) => {
            show_and_refuse(&problems, path, &opened.text, CANNOT_BE_SERVED)?;
            unreachable!("a book without problems has its targets")
        }
    }
}

fn traces(args: &ServeArgs) -> anyhow::Result<Option<(OtlpSettings, Roots)>> {
    let settings = OtlpSettings::read(args.otlp.as_deref(), |name| std::env::var(name).ok());
    let settings = settings.map_err(CommandRefusal::of)?;
    settings.map(|settings| Ok((settings, tls::roots(args)?))).transpose()
}

/// Binds the address before anything is written, so that a failure leaves nothing behind.
async fn serve(
    args: &ServeArgs,
    opened: LoadedBook,
    listener: TcpListener,
    demo: Option<Demo>,
) -> anyhow::Result<()> {
    let path = args.rules.clone().unwrap_or_else(|| PathBuf::from(BUILT_IN));
    let certificate = CertificateFiles::open(args)?;
    let transport = CertificateFiles::transport(certificate.as_ref());
    let secrets = Secrets::new(&opened.book, connectors::drivers());
    logging::leave_out(&secrets);
    let (pool, traces) = (Pool::new(tls::roots(args)?), traces(args)?);
    if let Some((settings, _)) = &traces {
        pool.export_traces(settings.sampler());
    }
    let mut signals = ProcessSignals::new()?;
    let (store, targets) = open_data(args, &opened, &path, &secrets, pool)?;
    let config = Config {
        book: Arc::clone(&opened.book),
        book_text: Arc::clone(&opened.text),
        targets: targets.clone(),
        store,
        bounds: EngineBounds::SERVER,
    };
    let node = Node::start(config).map_err(CommandRefusal::of)?;
    tokio::spawn(exit_on_failure(node.clone()));
    let exporter = traces.map(|(settings, roots)| SpanExporter::start(&node, settings, roots));
    let mut edges = match ServerParts::open(&node, &opened.book, secrets, &targets).await {
        Ok(edges) => edges,
        Err(error) => {
            node.stop(Duration::ZERO).await;
            return Err(CommandRefusal(error).into());
        }
    };
    edges.spans = exporter.as_ref().map(SpanExporter::counts);
    let limits = ApiLimits::with_body(usize::try_from(args.body_max).unwrap_or(usize::MAX));
    let loopback = if args.insecure { LoopbackPolicy::AnyClient } else { LoopbackPolicy::ThisMachine };
    let parts = |closing| edges.parts(&node, limits, args.rules.clone(), demo.clone(), closing);
    let routes = |closing| Routers::new(&App::new(parts(closing)), loopback);
    let listening = match start_listening(transport.clone(), listener, routes, limits) {
        Ok(listening) => listening,
        Err(error) => {
            node.stop(Duration::ZERO).await;
            return Err(not_listening(args.listen, &error).into());
        }
    };
    if edges.access.is_shut(node.now()) {
        warn_no_valid_key(args);
    }
    match &demo {
        Some(demo) => {
            let server = format!("{}{}", transport.scheme().prefix(), listening.address);
            terminal::print(&demo::command::greeting(demo, &server, &path))?;
            demo.begin(&node, move |step| demo::command::print_step(step, &server));
        }
        None => greet(args, listening.address, transport.scheme(), &opened, &edges.access)?,
    }
    let (archivist, sources) = (edges.archivist.clone(), edges.sources.clone());
    let mut serving = RunningServer {
        path: args.rules.clone(),
        stamp: opened.stamp,
        putting_off: false,
        certificate,
        targets,
        node: node.clone(),
        edges,
    };
    serving.until_stopped(&mut signals).await;
    report_shutdown();
    listening.close(REQUESTS_END_WITHIN).await;
    sources.stop().await;
    archivist.stop().await;
    end(&node, exporter, args.drain).await;
    Ok(())
}

/// After a failure of the node only a restart helps, from what is durable: exits at once.
async fn exit_on_failure(node: Node) {
    let fatal = node.failed().await;
    tracing::error!(part = fatal.part, "node failed; exiting, restart required");
    std::process::exit(CODE_FAILED);
}

/// Opens the store and the targets. Problems of the book are reported before anything is written.
fn open_data(
    args: &ServeArgs,
    opened: &LoadedBook,
    path: &Path,
    secrets: &Secrets,
    pool: Pool,
) -> anyhow::Result<(Box<dyn Store>, Targets)> {
    let pool = Arc::new(pool);
    let connections = |supervisor| Targets::none(connectors::drivers(), Arc::clone(&pool), supervisor);
    targets(opened, path, secrets, Some(&connections(Supervisor::new())))?;
    let loss = if args.accept_loss { LossPolicy::Accepted } else { LossPolicy::Refused };
    let options = Options { loss, ..Options::default() };
    let store = store::open(&args.data, options).map_err(CommandRefusal::of)?;
    let targets = targets(opened, path, secrets, Some(&connections(supervisor(&args.data)?)))?;
    Ok((store, targets))
}

/// Ends workers that an earlier run left behind: the folder is locked and nothing has started yet.
fn supervisor(data: &Path) -> anyhow::Result<Supervisor> {
    let folder = data.join(WORKERS);
    let (supervisor, survived) = Supervisor::recording(&folder)
        .with_context(|| format!("could not end the workers of an earlier run in {}", folder.display()))?;
    if survived > 0 {
        let ended = format!(
            "{} of an earlier run {} still running and had to be ended",
            counted(survived as u64, "worker"),
            if survived == 1 { "was" } else { "were" }
        );
        logging::say(style::dim(ended), || tracing::warn!(survived, "ended workers of an earlier run"));
    }
    Ok(supervisor)
}

fn report_shutdown() {
    let stopping = "shutting down: no new events, finishing calls";
    logging::say(style::dim(stopping), || tracing::info!("{stopping}"));
}

async fn end(node: &Node, exporter: Option<SpanExporter>, drain: Duration) {
    let stopped = node.stop(drain).await;
    if let Some(exporter) = exporter {
        exporter.stop().await;
    }
    if stopped.interrupted > 0 {
        let count = stopped.interrupted;
        let cut = style::dim(format!("{} cut short, without using a retry", counted(count as u64, "call")));
        logging::say(cut, || tracing::info!(count, "calls cut short, without using a retry"));
    }
}

/// Warns that no caller can authenticate; only a stopped server can be repaired.
fn warn_no_valid_key(args: &ServeArgs) {
    let data = shell_word(&args.data.to_string_lossy());
    let said = format!(
        "{}: authentication is required but no valid API key exists: stop the server and create one with `redrive keys create NAME --role admin --data {data}`",
        style::warning("warning")
    );
    logging::say(said, || tracing::warn!("authentication is required but no valid API key exists"));
}

fn greet(
    args: &ServeArgs,
    at: SocketAddr,
    scheme: TransportScheme,
    opened: &LoadedBook,
    access: &AccessControl,
) -> anyhow::Result<()> {
    let book = &opened.book;
    let address = format!("{}{at}", scheme.prefix());
    let services = book.sections().services.len();
    let rules = args.rules.as_ref().map_or_else(
        || "built in, prints every event (write your own with `redrive init`)".to_owned(),
        |path| format!("{} ({})", path.display(), counted(services as u64, "service")),
    );
    let remarks = args.rules.as_ref().map_or_else(String::new, |path| remarks(path, &opened.text));
    let hooks = hook_lines(book, &address);
    // A subscribed type, so that the first try shows something.
    let wanted = book.sections().rows().map(|(_, _, row)| row.pattern.value.as_str()).next();
    let event_type =
        wanted.filter(|pattern| *pattern != "*").unwrap_or("greeting.sent").replace('*', "tried");
    let key = if access.is_on() { " -H \"Authorization: Bearer $REDRIVE_KEY\"" } else { "" };
    let command = format!("curl{key} -d '{{\"hello\":\"world\"}}' {address}/v1/events/{event_type}");
    let (is_asked, is_near) = (access.is_on(), at.ip().is_loopback());
    let open_to = match (is_asked, is_near) {
        (true, _) => style::dim("authentication required; stop with Ctrl-C"),
        (false, true) => style::dim("open to all programs on this machine; stop with Ctrl-C"),
        (false, false) => style::dim("stop with Ctrl-C"),
    };
    if !is_asked && !is_near {
        let warning = style::warning("insecure");
        let said = format!(
            "{warning}: {address} is public without authentication; create a key with `redrive keys create`"
        );
        logging::say(said, || tracing::warn!(address, "public address without authentication"));
    }
    terminal::print(&format!(
        "{} on {}\n  page    {}\n  rules   {rules}\n{remarks}  data    {}\n{hooks}  {}\n\nTry: {command}\n",
        style::bold("redrive serves"),
        style::bold(&address),
        page_address(&address, at),
        args.data.display(),
        open_to,
    ))
}

/// The page's URL; browsers do not open the unspecified address.
fn page_address(address: &str, at: SocketAddr) -> String {
    let named = if at.ip().is_unspecified() {
        address.replace(&at.ip().to_string(), "localhost")
    } else {
        address.to_owned()
    };
    format!("{}/", named.replace("[localhost]", "localhost"))
}

fn remarks(path: &Path, text: &str) -> String {
    let problems = lint::check(text.as_bytes(), connectors::table()).problems;
    let warnings = problems.iter().filter(|problem| problem.severity == ProblemSeverity::Warning).count();
    if warnings == 0 {
        return String::new();
    }
    let check = style::bold(format!("redrive check {}", shell_word(&path.to_string_lossy())));
    format!("          {}: run {check}\n", style::warning(counted(warnings as u64, "warning")))
}

fn hook_lines(book: &RuleBook, address: &str) -> String {
    let sources = &book.sections().sources;
    let hooks = sources.iter().filter(|(name, source)| WebhookSource::new(name, &source.value).is_some());
    let mut lines: Vec<String> =
        hooks.map(|(name, _)| format!("  hooks   POST {address}/v1/hooks/{name}\n")).collect();
    let more = lines.len().saturating_sub(HOOKS_SHOWN_MAX);
    lines.truncate(HOOKS_SHOWN_MAX);
    if more > 0 {
        lines.push(format!("          and {more} more\n"));
    }
    lines.concat()
}

struct ProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl ProcessSignals {
    fn new() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("could not listen for signals");
        // With the signal handled, a file-size limit is an error like a full disk. Listening once installs
        // the handler for good.
        drop(on(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hang_up: on(SignalKind::hangup())?,
        })
    }
}

struct RunningServer {
    path: Option<PathBuf>,
    stamp: FileStamp,
    /// Whether a deferred book was reported.
    putting_off: bool,
    certificate: Option<CertificateFiles>,
    targets: Targets,
    node: Node,
    edges: ServerParts,
}

/// Parts of the server beside the node that follow the rule book.
struct ServerParts {
    secrets: Secrets,
    hooks: Webhooks,
    access: AccessControl,
    archivist: Archivist,
    sources: Sources,
    spans: Option<Arc<SpanCounts>>,
}

impl ServerParts {
    async fn open(
        node: &Node,
        book: &Arc<RuleBook>,
        secrets: Secrets,
        targets: &Targets,
    ) -> Result<Self, String> {
        let limiter = Arc::new(Limiter::default());
        let with = AccessParts {
            limiter: Arc::clone(&limiter),
            secrets: secrets.clone(),
            pool: targets.pool(),
            alarm: alarms::of_issuer(node),
        };
        let keys = node.keys().await.map_err(|error| error.to_string())?;
        let access = AccessControl::new(keys, book, with);
        secrets.listen(alarms::of_secrets(node));
        secrets.warm(book);
        alarms::ask_again(secrets.clone(), access.clone());
        // Before any event arrives: a new archive begins here.
        let archivist = Archivist::start(node, connectors::drivers()).await;
        let hooks = Webhooks::new(book, secrets.clone(), limiter);
        follow_book(node, &secrets, &hooks, &access, &archivist);
        // After the secrets, which sources connect with.
        let sources = Sources::start(node, connectors::drivers(), &secrets)?;
        Ok(Self { secrets, hooks, access, archivist, sources, spans: None })
    }

    fn parts(
        &self,
        node: &Node,
        limits: ApiLimits,
        book_path: Option<PathBuf>,
        demo: Option<Demo>,
        closing: watch::Receiver<bool>,
    ) -> AppState {
        AppState {
            demo,
            node: node.clone(),
            archivist: self.archivist.clone(),
            limits,
            reading: BodyBudget::default(),
            hooks: self.hooks.clone(),
            access: self.access.clone(),
            health: HealthMemo::default(),
            reports: DoctorReports::default(),
            simulations: Simulations::default(),
            book_path,
            book_shown: BookJsonCache::default(),
            live: LiveHub::default(),
            metrics: Metrics::new(node, self.spans.clone()),
            closing,
        }
    }
}

fn follow_book(
    node: &Node,
    secrets: &Secrets,
    hooks: &Webhooks,
    access: &AccessControl,
    archivist: &Archivist,
) {
    let secrets = secrets.clone();
    // New targets use the new book's secrets from their first call on.
    node.follow_book("secrets", BookSwitchAt::BeforeNode, move |book| {
        let (secrets, book) = (secrets.clone(), Arc::clone(book));
        Ok(Box::new(move || {
            secrets.change(&book);
            secrets.warm(&book);
        }))
    });
    // Events of a new source are routed by the book that has it.
    let (access, hooks, archivist) = (access.clone(), hooks.clone(), archivist.clone());
    node.follow_book("access", BookSwitchAt::AfterNode, move |book| access.prepare(book));
    node.follow_book("webhooks", BookSwitchAt::AfterNode, move |book| Ok(hooks.prepare(book)));
    node.follow_book("archive", BookSwitchAt::AfterNode, move |book| {
        let (archivist, book) = (archivist.clone(), Arc::clone(book));
        Ok(Box::new(move || archivist.change(&book)))
    });
}

impl RunningServer {
    async fn until_stopped(&mut self, signals: &mut ProcessSignals) {
        let mut watch = tokio::time::interval(WATCH_EVERY);
        loop {
            let is_due = tokio::select! {
                biased;
                _ = signals.terminate.recv() => return,
                _ = signals.interrupt.recv() => return,
                _ = signals.hang_up.recv() => {
                    self.certificate.iter_mut().for_each(|watched| watched.reload(&self.node));
                    true
                }
                _ = watch.tick() => {
                    self.certificate.iter_mut().for_each(|watched| watched.look(&self.node));
                    let now = self.path.as_deref().and_then(stamp);
                    // A file that is being replaced may be missing for a moment.
                    now.is_some() && now != self.stamp
                }
            };
            if is_due {
                // A new book waits for the store, which may be unable to write; shutdown does not.
                tokio::select! {
                    biased;
                    _ = signals.terminate.recv() => return,
                    _ = signals.interrupt.recv() => return,
                    () = self.reload() => {}
                }
            }
        }
    }

    /// Reads the book again; an invalid one is refused and the old one stays.
    async fn reload(&mut self) {
        let Some(path) = self.path.clone() else { return };
        self.stamp = stamp(&path);
        let opened = refuse_other_than_file(&path).map_err(anyhow::Error::from);
        let opened = opened.and_then(|()| open(Some(&path))).and_then(|opened| {
            let targets = targets(&opened, &path, &self.edges.secrets, Some(&self.targets))?;
            Ok((opened, targets))
        });
        match opened {
            Ok((opened, targets)) => {
                // The same book may have a changed secret.
                let is_new = opened.book.hash() != self.node.book().hash();
                let changed = self.node.change_book(opened.book, opened.text, targets.clone()).await;
                if changed.is_ok() {
                    self.putting_off = false;
                    self.targets = targets;
                }
                match changed {
                    Ok(()) if is_new => {
                        let read = style::good("rule book reloaded:");
                        // The node has logged it.
                        logging::say(format_args!("{read} {}", path.display()), || {});
                    }
                    Ok(()) => {}
                    Err(ChangeError::NotWritten(error)) => self.put_off(&error),
                    Err(error @ ChangeError::NotBuilt { .. }) => self.refuse(&error.into()),
                }
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn refuse(&self, error: &anyhow::Error) {
        let refused = style::error("rule book rejected");
        logging::say(format_args!("{refused}: {error:#}; the old one stays active"), || {});
        self.node.book_refused(error.to_string());
    }

    /// The store cannot write: the old book stays until it can, which is reported once.
    fn put_off(&mut self, error: &SubmitError) {
        self.stamp = None;
        if std::mem::replace(&mut self.putting_off, true) {
            return;
        }
        self.node.book_refused(format!("the old one stays active until the store can be written: {error}"));
        let put_off = style::error("rule book reload deferred");
        logging::say(format_args!("{put_off}: {error}; the old one stays active until then"), || {});
    }
}

pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, CommandRefusal> {
    TcpListener::bind(address).await.map_err(|error| not_listening(address, &error))
}

fn not_listening(address: SocketAddr, error: &io::Error) -> CommandRefusal {
    let why = match error.kind() {
        ErrorKind::AddrInUse => {
            let other = SocketAddr::new(address.ip(), address.port().wrapping_add(1).max(1));
            format!(
                "the address is in use, perhaps by another redrive\n  stop it, or choose another port, such as --listen {other}"
            )
        }
        _ => terminal::io_words(error),
    };
    CommandRefusal(format!("could not listen on {address}: {why}"))
}
