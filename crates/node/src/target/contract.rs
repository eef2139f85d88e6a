//! The contract of every target: scenarios with the real other side.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::{Ending, TargetCall};
use redrive_core::policy::answer::TargetReply;
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};

use super::Target;
use super::call_test::{call, order};
use crate::connectors::ConnectorFuture;

const BUSY: Duration = Duration::from_secs(10);
const CALLS: u64 = 20;

/// The behaviour of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownstreamMood {
    Takes,
    Fails,
    Hangs,
    Away,
}

pub trait Downstream: Send + Sync {
    fn target(&self) -> Arc<dyn Target>;
    /// Returns false if it cannot behave so.
    fn set_mood(&self, mood: DownstreamMood) -> ConnectorFuture<'_, bool>;
    fn taken(&self) -> ConnectorFuture<'_, Vec<String>>;
}

/// Runs every scenario.
///
/// # Panics
///
/// If the target breaks its contract.
pub async fn keeps(other: &dyn Downstream) {
    let target = other.target();
    what_is_taken_is_there(other, &*target).await;
    for mood in [DownstreamMood::Fails, DownstreamMood::Hangs, DownstreamMood::Away] {
        what_is_not_taken_is_a_failure(other, &*target, mood).await;
    }
    many_at_once_all_end(other, &target).await;
}

async fn what_is_taken_is_there(other: &dyn Downstream, target: &dyn Target) {
    assert!(other.set_mood(DownstreamMood::Takes).await, "every other side can take something");
    assert_eq!(outcome(target, 1, "first", "30s").await, Ok(()));
    assert_eq!(other.taken().await, ["first"]);
}

/// The call ends within its limit as a failure, and the next one succeeds after recovery.
async fn what_is_not_taken_is_a_failure(other: &dyn Downstream, target: &dyn Target, mood: DownstreamMood) {
    if !other.set_mood(mood).await {
        return;
    }
    let limit = Duration::from_secs(1);
    let ending = tokio::time::timeout(target.ends_within(limit) + BUSY, outcome(target, 2, "lost", "1s"));
    let failed = ending.await.unwrap_or_else(|_| panic!("{mood:?}: the call exceeds its limit"));
    let category = failed.expect_err("the other side has not taken it");
    assert_ne!(category, Category::Invalid, "{mood:?}: nothing is wrong with the event");
    assert!(other.set_mood(DownstreamMood::Takes).await, "it was well before");
    let id = format!("after-{mood:?}");
    assert_eq!(outcome(target, 3, &id, "30s").await, Ok(()), "{mood:?} is over");
    assert!(other.taken().await.contains(&id), "{mood:?}: what is delivered is there");
}

async fn many_at_once_all_end(other: &dyn Downstream, target: &Arc<dyn Target>) {
    let calls = (0..CALLS).map(|number| {
        let target = Arc::clone(target);
        tokio::spawn(async move { outcome(&*target, 10 + number, &format!("many-{number}"), "30s").await })
    });
    for one in calls.collect::<Vec<_>>() {
        assert_eq!(one.await.expect("no call panics"), Ok(()));
    }
    let taken = other.taken().await;
    for number in 0..CALLS {
        assert!(taken.contains(&format!("many-{number}")), "{number} is missing: {taken:?}");
    }
}

async fn outcome(target: &dyn Target, seq: u64, id: &str, limit: &str) -> Result<(), Category> {
    let call: Arc<TargetCall> = call(limit, vec![order(seq, id)]);
    let reply: TargetReply = match target.call(Arc::clone(&call)).await {
        Ending::Reply(reply) | Ending::Ran { reply, .. } => reply,
        other => panic!("a call of one event has one answer: {other:?}"),
    };
    match classify(&reply.as_answer(), &call.rule.classify, call.rule.timeouts.category) {
        Outcome::Delivered { .. } => Ok(()),
        Outcome::Failed(failure) => Err(failure.category),
    }
}
