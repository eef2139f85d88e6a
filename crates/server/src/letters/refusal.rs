//! Errors of dead-letter operations.

use std::collections::BTreeMap;

use redrive_core::letters::replay::{ReplayId, ReplayState};
use redrive_core::text::counted;
use redrive_node::runtime::{LetterCommandError, SelectError};
use redrive_node::store::letter::{CommandRefusal, ReplayAct};

use crate::api::code::ApiCode;
use crate::api::error::ApiError;
use crate::api::request::WrongField;
use crate::letters::find::{LetterLookup, not_dead};

impl From<WrongField> for ApiError {
    fn from(WrongField { field, reason }: WrongField) -> Self {
        Self::invalid(&field, reason)
    }
}

impl From<LetterCommandError> for ApiError {
    fn from(error: LetterCommandError) -> Self {
        match error {
            LetterCommandError::Refused(refusal) => refused(&refusal),
            LetterCommandError::Unwanted(error) => unwanted(&error),
            LetterCommandError::NotWritten(error) => error.into(),
            LetterCommandError::NotRead(error) => error.into(),
        }
    }
}

fn not_found(message: impl Into<String>) -> ApiError {
    ApiError::new(ApiCode::DeadLetterNotFound, message)
}

fn refused(refusal: &CommandRefusal) -> ApiError {
    let message = refusal.to_string();
    match refusal {
        CommandRefusal::NoSuchLetter(id) => not_found(message).with("letter", id.to_string()),
        CommandRefusal::Claimed { letter, replay } => {
            let cure = go_on_or_cancel(&replay.to_string());
            ApiError::new(ApiCode::ReplayConflict, format!("{message}: {cure}"))
                .with("letter", letter.to_string())
                .with("replay", replay.0)
        }
        CommandRefusal::NothingMatches { claimed, poison } if !claimed.is_empty() => {
            let replays: Vec<u64> = claimed.keys().map(|replay| replay.0).collect();
            ApiError::new(ApiCode::ReplayConflict, all_claimed(claimed))
                .with("replays", replays)
                .with("poison", *poison)
        }
        CommandRefusal::NothingMatches { poison: 0, .. } => not_found(message),
        CommandRefusal::NothingMatches { poison, .. } => {
            let message = "only poison letters match, which failed a replay before or do not parse: include them with `--include-poison` (`include_poison`) and a note";
            ApiError::new(ApiCode::OnlyPoison, message).with("poison", *poison)
        }
        CommandRefusal::NoSuchReplay(id) => {
            ApiError::new(ApiCode::ReplayNotFound, message).with("replay", id.0)
        }
        CommandRefusal::NotPossible { replay, state } => ApiError::new(ApiCode::ReplayState, message)
            .with("replay", replay.0)
            .with("state", state.as_str()),
        CommandRefusal::HoldsNothing(_) => ApiError::new(ApiCode::Conflict, message),
        CommandRefusal::EventExists(first) => {
            ApiError::new(ApiCode::Conflict, message).with("first_receipt", first.to_string())
        }
        CommandRefusal::Damaged(id) => {
            ApiError::new(ApiCode::Conflict, message).with("letter", id.to_string())
        }
    }
}

fn all_claimed(claimed: &BTreeMap<ReplayId, u64>) -> String {
    let letters = match claimed.values().sum() {
        1 => "1 dead letter matches, but it is claimed by".to_owned(),
        count => format!("{} match, but all are claimed by", counted(count, "dead letter")),
    };
    let whose: Vec<String> = claimed.keys().map(ReplayId::to_string).collect();
    match whose.as_slice() {
        [one] => format!("{letters} replay {one}: {}", go_on_or_cancel(one)),
        several => {
            let cure = "resume the stopped ones, wait for the running ones, or cancel them";
            format!("{letters} the replays {}: {cure} (`redrive replays`)", several.join(", "))
        }
    }
}

fn go_on_or_cancel(replay: &str) -> String {
    format!("resume it if stopped, wait if running, or cancel it (`redrive replays {replay}`)")
}

pub(crate) fn unwanted(error: &SelectError) -> ApiError {
    let message = error.to_string();
    match error {
        SelectError::NoService { queue, letters } => ApiError::new(ApiCode::ServiceGone, message)
            .with("service", queue.to_string())
            .with("letters", *letters),
        SelectError::NoRow { queue, event_type, letters } => ApiError::new(ApiCode::EventNotWanted, message)
            .with("service", queue.to_string())
            .with("type", event_type.as_str())
            .with("letters", *letters),
        SelectError::InBook { queue } => {
            ApiError::new(ApiCode::ServiceInBook, message).with("service", queue.to_string())
        }
        SelectError::NoDestination { queue } => {
            ApiError::new(ApiCode::ServiceGone, message).with("service", queue.to_string())
        }
        SelectError::NoNote => ApiError::new(ApiCode::Validation, message)
            .with("field", "note")
            .with("reason", "is required to include poison letters"),
    }
}

pub(crate) fn unchanged(error: LetterCommandError, act: ReplayAct) -> ApiError {
    let LetterCommandError::Refused(CommandRefusal::NotPossible { replay, state }) = error else {
        return error.into();
    };
    let message = match (state, act) {
        (ReplayState::Cancelled, ReplayAct::Cancel) => format!("replay {replay} is cancelled already"),
        (ReplayState::Cancelled, _) => {
            format!("replay {replay} was cancelled and cannot resume; start a new one")
        }
        (ReplayState::Done, _) => format!("replay {replay} is done"),
        (ReplayState::Paused, ReplayAct::Pause) => format!("replay {replay} is paused already"),
        (ReplayState::Stopped, ReplayAct::Pause) => {
            format!("replay {replay} has stopped already; resume or cancel it")
        }
        (ReplayState::Gathering | ReplayState::Running, ReplayAct::Resume) => {
            format!("replay {replay} is {state} already")
        }
        (
            ReplayState::Gathering | ReplayState::Running | ReplayState::Paused | ReplayState::Stopped,
            ReplayAct::Pause | ReplayAct::Resume | ReplayAct::Cancel,
        ) => format!("replay {replay} is {state}"),
    };
    ApiError::new(ApiCode::ReplayState, message).with("replay", replay.0).with("state", state.as_str())
}

pub(crate) fn missing(found: LetterLookup, name: &str) -> ApiError {
    match found {
        LetterLookup::NotDead { id, state } => not_found(not_dead(id, &state)),
        LetterLookup::Several(candidates) => {
            let message = format!("{} dead letters match `{name}`: use a full id", candidates.len());
            ApiError::new(ApiCode::AmbiguousId, message).with("candidates", candidates)
        }
        LetterLookup::Letter(_) | LetterLookup::Nothing => {
            not_found(format!("no dead letter with the id or id prefix `{name}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_other_replays_are_told_in_words_that_agree() {
        #[rustfmt::skip]
        let cases: [(&[(u64, u64)], &str); 3] = [
            (&[(1, 1)],         "1 dead letter matches, but it is claimed by replay 1: resume it if stopped, wait if running, or cancel it (`redrive replays 1`)"),
            (&[(1, 2000)],      "2,000 dead letters match, but all are claimed by replay 1: resume it if stopped, wait if running, or cancel it (`redrive replays 1`)"),
            (&[(1, 2), (4, 1)], "3 dead letters match, but all are claimed by the replays 1, 4: resume the stopped ones, wait for the running ones, or cancel them (`redrive replays`)"),
        ];
        for (claimed, expected) in cases {
            let claimed = claimed.iter().map(|(replay, count)| (ReplayId(*replay), *count)).collect();
            assert_eq!(all_claimed(&claimed), expected);
        }
    }
}
