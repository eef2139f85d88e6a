//! A target inside the test: it keeps what it was sent and says what the test scripted.
//!
//! Every connection is a thread, so a script may block for as long as it likes.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use serde_json::Value;

use crate::server::{PATIENCE, until};

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// How often this `webhook-id` has come, this time included.
    pub(crate) nth: usize,
    /// The status that was sent back whole, as far as the system took it from us.
    pub(crate) answered: Option<u16>,
}

/// What is said back.
pub(crate) enum Say {
    /// A status with further headers and a body.
    Status(u16, &'static str, String),
    /// Any bytes, after which the target hangs up.
    Bytes(&'static [u8]),
    /// Some bytes to begin with, then others for ever.
    Endless(&'static [u8], &'static [u8]),
}

pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    kept: Arc<Mutex<Kept>>,
    is_over: Arc<AtomicBool>,
}

/// What a target remembers.
#[derive(Default)]
struct Kept {
    calls: Vec<Call>,
    /// How often each `webhook-id` came.
    times: BTreeMap<String, usize>,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts, which then goes away.
        let _ = TcpStream::connect(self.address);
    }
}

/// A rule book with one service, `orders`, that takes `orders.*` there and retries quickly; `more` are
/// further lines of the service.
pub(crate) fn book(target: &Target, more: &[&str]) -> String {
    let more = more.iter().fold(String::new(), |lines, line| lines + "    " + line + "\n");
    format!(
        "version: 1
retry_policies:
  quick: {{ initial: 20ms, max: 20ms, retries: 3, jitter: none }}
services:
  orders:
    target: {{ http: \"{}\" }}
    retry: quick
{more}    events: [\"orders.*\"]
",
        target.url()
    )
}

/// A target whose first call waits at a gate.
pub(crate) fn gated() -> (Target, Gate) {
    let gate = Gate::default();
    let waiting = gate.clone();
    let target = Target::start(move |call| {
        if call.nth == 1 {
            waiting.pass();
        }
        status(200)
    });
    (target, gate)
}

/// A status and nothing else.
pub(crate) fn status(status: u16) -> Say {
    Say::Status(status, "", String::new())
}

impl Target {
    /// Answers every call as the script says.
    pub(crate) fn start(script: impl Fn(&Call) -> Say + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the system has a free port");
        let address = listener.local_addr().expect("it is bound");
        let (kept, is_over) = (Arc::<Mutex<Kept>>::default(), Arc::new(AtomicBool::new(false)));
        let target = Self { address, kept: Arc::clone(&kept), is_over: Arc::clone(&is_over) };
        let script = Arc::new(script);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let (script, kept) = (Arc::clone(&script), Arc::clone(&kept));
                // Whoever hangs up is no concern of the target.
                thread::spawn(move || stream.and_then(|stream| talk(stream, script.as_ref(), &kept)));
            }
        });
        target
    }

    /// Takes everything.
    pub(crate) fn willing() -> Self {
        Self::start(|_| status(200))
    }

    /// Says one after the other to each delivery, and the last one ever after.
    pub(crate) fn saying(statuses: &'static [u16]) -> Self {
        Self::start(move |call| status(statuses[(call.nth - 1).min(statuses.len() - 1)]))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        locked(&self.kept).calls.clone()
    }

    pub(crate) fn count(&self) -> usize {
        locked(&self.kept).calls.len()
    }

    /// Waits for so many calls.
    #[track_caller]
    pub(crate) fn until(&self, count: usize) -> Vec<Call> {
        until(&format!("{count} calls"), || (self.count() >= count).then_some(()));
        self.calls()
    }
}

fn locked(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().expect("nobody panics while adding a call")
}

fn talk(stream: TcpStream, script: &dyn Fn(&Call) -> Say, kept: &Mutex<Kept>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(Request { method, path, headers, body }) = request(&mut stream)? {
        let mut all = locked(kept);
        let times = all.times.entry(headers.get("webhook-id").cloned().unwrap_or_default()).or_default();
        *times += 1;
        let call = Call { method, path, headers, body, nth: *times, answered: None };
        let place = all.calls.len();
        all.calls.push(call.clone());
        drop(all);
        match script(&call) {
            Say::Status(status, headers, body) => {
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status} Said\r\n{headers}content-length: {length}\r\n\r\n{body}");
                stream.get_mut().write_all(answer.as_bytes())?;
                locked(kept).calls[place].answered = Some(status);
            }
            Say::Bytes(bytes) => return stream.get_mut().write_all(bytes),
            Say::Endless(first, ever_after) => {
                stream.get_mut().write_all(first)?;
                loop {
                    stream.get_mut().write_all(ever_after)?;
                }
            }
        }
    }
    Ok(())
}

pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some(Request { method, path, headers, body }))
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn webhook_id(&self) -> &str {
        self.header("webhook-id")
    }

    pub(crate) fn event_id(&self) -> &str {
        self.header("ce-id")
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.header("redrive-attempt").parse().expect("every call has a number")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }
}

/// Something that threads wait for.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().expect("nobody panics while opening") = true;
        self.0.1.notify_all();
    }

    /// Waits until it is open, or until no test would wait any longer.
    pub(crate) fn pass(&self) {
        let closed = self.0.0.lock().expect("nobody panics while opening");
        drop(self.0.1.wait_timeout_while(closed, PATIENCE, |is_open| !*is_open));
    }
}
