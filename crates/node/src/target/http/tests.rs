//! Calls over real sockets, to servers that behave in every way there is.

mod behaviour;
mod connections;
mod forms;
mod guard;
mod http2;
mod identity;
mod oauth;
mod secure;
mod server;

use std::sync::Arc;
use std::time::Duration;

use redrive_core::book::connectors::http::HttpMethod;
use redrive_core::book::connectors::http::request::RequestTemplates;
use redrive_core::book::model::Network;
use redrive_core::engine::{Ending, PendingDelivery};
use redrive_core::policy::answer::{ReplyKind, TargetReply};
use redrive_core::text::show_duration;

use super::{HttpFormat, HttpOptions, HttpTarget, Pool, RequestShape, Signing};
use crate::target::Target;
use crate::target::call_test::{call, call_retried, delivery, order};
use crate::tls::Roots;

/// Long enough for any machine; nothing here waits for it.
const PATIENT: &str = "{ connect: 30s, tls: 30s, headers: 30s, whole: 60s }";

fn target(address: &str, form: HttpFormat) -> HttpTarget {
    target_of(address, form, &Arc::new(Pool::new(Roots::Only(Vec::new()))))
}

fn target_of(address: &str, form: HttpFormat, pool: &Arc<Pool>) -> HttpTarget {
    HttpTarget::new(address, options(form, None, 64), Arc::clone(pool)).expect("an address")
}

fn options(form: HttpFormat, signing: Option<Signing>, permits: u32) -> HttpOptions {
    let shape = RequestShape::new(form, HttpMethod::Post, &RequestTemplates::default());
    let place = "service shop, line 4".to_owned();
    HttpOptions {
        shape,
        auth: None,
        secret_path: None,
        expect: None,
        signing,
        permits,
        network: Network::Public,
        place,
    }
}

/// Posts one small event, with limits that nothing here reaches.
async fn post(target: &HttpTarget) -> Ending {
    target.call(call(PATIENT, vec![order(7, "e-1")])).await
}

/// An ending in one line, with `PORT` for the port of the server.
fn told(ending: &Ending, port: u16) -> String {
    let text = match ending {
        Ending::Reply(reply) | Ending::Ran { reply, .. } => reply_told(reply),
        Ending::Partly { reply, failed } => format!("{failed:?} {}", reply_told(reply)),
        Ending::Interrupted => "interrupted".to_owned(),
    };
    text.replace(&format!(":{port}"), ":PORT")
}

fn reply_told(reply: &TargetReply) -> String {
    let seen = match &reply.seen {
        ReplyKind::Http { status, body, .. } if body.len() > 100 => {
            format!("{status} with {} bytes", body.len())
        }
        ReplyKind::Http { status, body, .. } => format!("{status} {body:?}"),
        other => format!("{other:?}"),
    };
    let message: String = reply.message.chars().take(200).collect();
    match reply.retry_after {
        Some(wait) => format!("{seen}, {message}, wait {}", show_duration(wait)),
        None => format!("{seen}, {message}"),
    }
}

/// Waits for what must come about by itself, and for no longer than a test may take.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what} did not come about");
}

/// Moves the clock, with no call under way.
async fn later(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}
