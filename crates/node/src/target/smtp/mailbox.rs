//! A mail server for tests, on loopback: it takes mails, or behaves as the test says.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::connectors::ConnectorFuture;
use crate::target::Target;
use crate::target::contract::{Downstream, DownstreamMood};
use crate::target::contract_test::made;

/// As a reply: there is none.
pub(super) const HANGS: &str = "hangs";

pub(super) struct Mailbox {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<MailboxState>>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

struct MailboxState {
    mood: DownstreamMood,
    /// Every command, and the contents of mails as one text.
    heard: Vec<String>,
    mails: Vec<String>,
    connections: usize,
    /// Said once instead of the usual reply to a command that begins so; an empty one hangs up.
    replies: VecDeque<(&'static str, &'static str)>,
}

impl Mailbox {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        let state = MailboxState {
            mood: DownstreamMood::Takes,
            heard: Vec::new(),
            mails: Vec::new(),
            connections: 0,
            replies: VecDeque::new(),
        };
        let mailbox = Self { address, state: Arc::new(Mutex::new(state)), serving: Mutex::default() };
        mailbox.restart().await;
        mailbox
    }

    /// Ends all connections and accepts new ones.
    pub(super) async fn restart(&self) {
        self.stop().await;
        let listener = TcpListener::bind(self.address).await.expect("the port is free again");
        let serving = tokio::spawn(serve(listener, Arc::clone(&self.state)));
        *self.serving.lock().expect("no test panics here") = Some(serving);
    }

    async fn stop(&self) {
        let before = self.serving.lock().expect("no test panics here").take();
        if let Some(before) = before {
            before.abort();
            let _ = before.await;
        }
    }

    pub(super) fn says(&self, replies: &[(&'static str, &'static str)]) {
        self.state.lock().expect("no test panics here").replies.extend(replies);
    }

    /// The commands that begin so.
    pub(super) fn heard(&self, beginning: &str) -> Vec<String> {
        let heard = self.state.lock().expect("no test panics here").heard.clone();
        heard.into_iter().filter(|line| line.starts_with(beginning)).collect()
    }

    pub(super) fn mails(&self) -> Vec<String> {
        self.state.lock().expect("no test panics here").mails.clone()
    }

    pub(super) fn connections(&self) -> usize {
        self.state.lock().expect("no test panics here").connections
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<MailboxState>>) {
    // Dropped with the listener, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        state.lock().expect("no test panics here").connections += 1;
        connections.spawn(talk(BufStream::new(stream), Arc::clone(&state)));
    }
}

async fn talk(mut stream: BufStream<TcpStream>, state: Arc<Mutex<MailboxState>>) -> io::Result<()> {
    let mut said = reply("CONNECT", &state);
    loop {
        let mood = state.lock().expect("no test panics here").mood;
        match (said, mood) {
            (HANGS, _) | (_, DownstreamMood::Hangs | DownstreamMood::Away) => std::future::pending().await,
            ("", _) => return Ok(()),
            (said, DownstreamMood::Takes | DownstreamMood::Fails) => {
                stream.write_all(format!("{said}\r\n").as_bytes()).await?;
                stream.flush().await?;
            }
        }
        let mut line = String::new();
        if said.starts_with("354") {
            while !line.ends_with("\r\n.\r\n") {
                if stream.read_line(&mut line).await? == 0 {
                    return Ok(());
                }
            }
            said = reply("content", &state);
            if said.starts_with("250") {
                state.lock().expect("no test panics here").mails.push(line);
            }
        } else {
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            state.lock().expect("no test panics here").heard.push(line.trim_end().to_owned());
            said = reply(&line, &state);
        }
    }
}

fn reply(line: &str, state: &Mutex<MailboxState>) -> &'static str {
    let mut state = state.lock().expect("no test panics here");
    if let Some(place) = state.replies.iter().position(|(to, _)| line.starts_with(to)) {
        return state.replies.remove(place).expect("it was found").1;
    }
    let fails = state.mood == DownstreamMood::Fails;
    match line.split([' ', '\r']).next().unwrap_or_default() {
        "CONNECT" => "220 mail.test",
        "EHLO" => "250 mail.test",
        "MAIL" if fails => "451 come back later",
        "DATA" => "354 go on",
        "content" => "250 queued as q-1",
        "QUIT" => "221 bye",
        _ => "250 well",
    }
}

impl Downstream for Mailbox {
    fn target(&self) -> Arc<dyn Target> {
        made(&format!(
            "{{ smtp: \"smtp://{}\", from: shop@a.test, to: ann@b.test, subject: \"{{{{ id }}}}\", body: x }}",
            self.address
        ))
    }

    fn set_mood(&self, mood: DownstreamMood) -> ConnectorFuture<'_, bool> {
        Box::pin(async move {
            self.state.lock().expect("no test panics here").mood = mood;
            if mood == DownstreamMood::Away {
                self.stop().await;
            } else {
                self.restart().await;
            }
            true
        })
    }

    fn taken(&self) -> ConnectorFuture<'_, Vec<String>> {
        let subject = |mail: &String| {
            let line = mail.lines().find_map(|line| line.strip_prefix("Subject: "));
            line.expect("it has one").to_owned()
        };
        let taken = self.mails().iter().map(subject).collect();
        Box::pin(async move { taken })
    }
}
