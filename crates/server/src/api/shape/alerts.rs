//! Alerts and receivers as they are shown.

use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All alerts and receivers of the rule book.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AlertsFound {
    /// When the alerts were last held against what there is; never if the book has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated_at: Option<Timestamp>,
    /// In the order of the book.
    pub alerts: Vec<AlertShown>,
    /// By name.
    pub receivers: Vec<ReceiverShown>,
    /// What was said lately, the latest first.
    pub recent: Vec<ToldShown>,
}

/// An alert and where it stands.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AlertShown {
    pub name: String,
    /// The condition as it stands in the rule book.
    pub when: String,
    pub severity: String,
    /// Who is told.
    pub to: Vec<String>,
    /// Who is told next if it is not over in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalate: Vec<String>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The line of the rule book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What it looks at, if that is not everything: `service orders`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    pub state: AlertStateShown,
    /// Since when it is pending or fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The figure as it was last seen; of several the worst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What it is pending or raised for.
    pub subjects: Vec<SubjectShown>,
    /// How many more there are than are listed.
    #[serde(default, skip_serializing_if = "is_nought")]
    pub more: u64,
    /// Messages that went out since it began.
    pub told: u32,
    /// When the last of them did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_told_at: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_nought(number: &u64) -> bool {
    *number == 0
}

/// Where an alert stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AlertStateShown {
    /// Its condition does not hold.
    Quiet,
    /// It holds, and not yet for as long as it must.
    Pending,
    /// It is raised.
    Firing,
}

/// One thing that an alert is raised for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SubjectShown {
    /// Which: `dependency=mail-api`; empty if the alert is about everything.
    pub of: String,
    /// The figure, as people write it.
    pub value: String,
    pub since: Timestamp,
}

/// Somebody who is told.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReceiverShown {
    pub name: String,
    /// How: `ntfy`, `webhook`, `email`, `slack` or `alertmanager`.
    pub kind: String,
    /// Where, without credentials.
    pub address: String,
    /// Only in these hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<String>,
    /// Only from this severity on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Whether it may be told now.
    pub open_now: bool,
    /// Messages that are on their way.
    pub waiting: u64,
    /// Messages that could not be delivered.
    pub dead: u64,
    /// Why the last one failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_trouble: Option<String>,
}

/// Something that was said.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ToldShown {
    pub at: Timestamp,
    pub alert: String,
    /// Whether it had begun, lasted or was over: `firing`, `repeated` or `resolved`.
    pub stage: String,
    pub severity: String,
    /// What was said, in one line.
    pub summary: String,
    /// To whom.
    pub to: Vec<String>,
}

/// What became of a message that somebody sent to try out a receiver.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReceiverTested {
    pub receiver: String,
    /// The id of the event that was sent.
    pub event: String,
    pub outcome: TestOutcome,
    /// The delivery, once there was an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// Why it did not arrive, for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// How long the attempt took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
}

/// What became of a message so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TestOutcome {
    /// It arrived.
    Delivered,
    /// It failed, and is tried again.
    Retrying,
    /// It failed for good.
    Dead,
    /// Nothing yet: it waits for its turn, or the attempt takes long.
    Waiting,
}
