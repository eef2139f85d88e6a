//! What `redrive try` says of the schema of an event, and of the condition of a row.

use redrive_core::book::RuleBook;
use redrive_core::book::event_condition;
use redrive_core::book::model::ViolationAction;
use redrive_core::book::resolve::Resolved;

use super::request::TrialEvent;
use crate::terminal::style;

/// What a row's condition does with the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConditionResult {
    /// There is none, or it is met, or no event is stated; with a line about it.
    Delivered(String),
    NotDelivered(String),
}

/// Why the event is not accepted or delivered to any service, if its schema says so.
pub(super) fn violation(book: &RuleBook, trial: &TrialEvent) -> Option<String> {
    let event = trial.stated()?;
    let entry = book.sections().event_types.get(event.event_type.as_str())?;
    let violation = entry.schema.check(event).err()?;
    let effect = match entry.on_violation {
        ViolationAction::Refuse => "refused with 400",
        ViolationAction::DeadLetter => "a poison dead letter of each service that wants it",
    };
    Some(format!("{}: {violation}", style::error(effect)))
}

pub(super) fn result(taker: &Resolved<'_>, trial: &TrialEvent) -> ConditionResult {
    let Some(condition) = taker.row.condition.as_ref().map(|at| &at.value) else {
        return ConditionResult::Delivered(String::new());
    };
    let line = |what: &str| format!("  {}\n", style::dim(format!("where `{}`: {what}", condition.as_str())));
    let Some(event) = trial.stated() else {
        return ConditionResult::Delivered(line("give --data to evaluate it"));
    };
    match condition.holds(&event_condition::values(event)) {
        Ok(true) => ConditionResult::Delivered(line("met")),
        Ok(false) => ConditionResult::NotDelivered(line("not met, so no delivery is made")),
        Err(error) => {
            ConditionResult::NotDelivered(line(&format!("not met, since {error}, so no delivery is made")))
        }
    }
}
