//! Timeouts of a call: each part from the most specific level that sets it.

use std::time::Duration;

use super::{Levels, Resolved, ResolvedValue, RuleLevel, ValueOrigin};
use crate::book::connectors::CallProtocol;
use crate::book::model::{At, TargetEntry, TimeoutParts};
use crate::ids::Attempt;
use crate::policy::category::Category;
use crate::policy::rule::{GrowingTimeout, Timeouts};

const TIME_LIMIT_DEFAULT: Duration = Duration::from_secs(30 * 60);
const CALL_LIMIT_DEFAULT: Duration = Duration::from_secs(10);
const PART_LIMIT_DEFAULT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedTimeouts {
    pub connect: ResolvedValue<Duration>,
    pub tls: ResolvedValue<Duration>,
    pub headers: ResolvedValue<Duration>,
    pub whole: ResolvedValue<GrowingTimeout>,
    pub category: ResolvedValue<Category>,
    pub name: Option<String>,
}

/// What is called, as far as it affects the timeouts.
pub(super) struct CallTarget {
    pub(super) level: RuleLevel,
    pub(super) process: bool,
    pub(super) time_limit: Option<At<Duration>>,
    /// The built-in limit of such calls, if they have their own.
    pub(super) usual: Option<Duration>,
}

impl CallTarget {
    pub(super) fn of(target: &TargetEntry, level: RuleLevel) -> Self {
        let run = target.endpoint.profile.run.as_ref();
        Self {
            level,
            process: run.is_some(),
            time_limit: run.and_then(|run| run.time_limit.clone()),
            usual: target.endpoint.connector.timeout,
        }
    }
}

impl Resolved<'_> {
    /// How long an attempt may go without an answer: the whole timeout, or that of the headers if shorter.
    #[must_use]
    pub fn answer_limit(&self, attempt: Attempt) -> Duration {
        let timeouts = &self.rule.timeouts;
        let whole = timeouts.whole.limit(attempt);
        if self.target.endpoint.connector.speech == CallProtocol::Http {
            whole.min(timeouts.headers)
        } else {
            whole
        }
    }
}

impl ResolvedTimeouts {
    /// Without the origins.
    #[must_use]
    pub const fn limits(&self) -> Timeouts {
        Timeouts {
            connect: self.connect.value,
            tls: self.tls.value,
            headers: self.headers.value,
            whole: self.whole.value,
            category: self.category.value,
        }
    }
}

/// A stated `whole` also limits the headers, unless a level at least as specific sets them; a program's
/// `time_limit` counts as `whole` at the level of its target.
pub(super) fn timeouts(levels: &Levels<'_>, owner: &CallTarget) -> ResolvedTimeouts {
    let CallTarget { level: owner, process, time_limit, usual: own } = owner;
    let (owner, process) = (*owner, *process);
    // Settings above a program's own level are meant for calls; a run may take longer.
    let heard: Vec<_> = levels.0.iter().copied().filter(|(level, _)| !process || *level <= owner).collect();
    let levels = &Levels(heard);
    let part = |pick: fn(&TimeoutParts) -> Option<Duration>| levels.timeout(pick);
    let limit = time_limit.as_ref().map(|at| ResolvedValue {
        value: GrowingTimeout::fixed(at.value),
        origin: ValueOrigin { level: owner, span: Some(at.span) },
    });
    let stated = levels.timeout(|parts| parts.whole);
    let whole = match (stated, limit) {
        (Some(stated), Some(limit)) if stated.origin.level >= limit.origin.level => Some(limit),
        (stated, limit) => stated.or(limit),
    };
    let headers = part(|parts| parts.headers);
    let headers = match (headers, &whole) {
        (Some(headers), Some(whole)) if whole.origin.level < headers.origin.level => None,
        (headers, _) => headers,
    };
    // A run past its time limit is permanent unless the rule says otherwise.
    let usual = if process { Category::Permanent } else { Category::Transient };
    let longest = own.unwrap_or(if process { TIME_LIMIT_DEFAULT } else { CALL_LIMIT_DEFAULT });
    ResolvedTimeouts {
        connect: part(|parts| parts.connect).unwrap_or(ResolvedValue::built_in(PART_LIMIT_DEFAULT)),
        tls: part(|parts| parts.tls).unwrap_or(ResolvedValue::built_in(PART_LIMIT_DEFAULT)),
        headers: headers.unwrap_or_else(|| match &whole {
            Some(whole) => ResolvedValue { value: whole.value.max, origin: whole.origin },
            None if process => ResolvedValue::built_in(TIME_LIMIT_DEFAULT),
            None => ResolvedValue::built_in(own.unwrap_or(PART_LIMIT_DEFAULT)),
        }),
        whole: whole.unwrap_or(ResolvedValue::built_in(GrowingTimeout::fixed(longest))),
        category: levels.timeout(|parts| parts.category).unwrap_or(ResolvedValue::built_in(usual)),
        name: levels.timeout(|parts| parts.whole.map(|_| parts.name.clone())).and_then(|known| known.value),
    }
}

impl Levels<'_> {
    /// The first level whose `timeout` sets this part.
    fn timeout<T>(&self, pick: impl Fn(&TimeoutParts) -> Option<T>) -> Option<ResolvedValue<T>> {
        self.0.iter().find_map(|(level, layer)| {
            let at = layer.timeout.as_ref()?;
            Some(ResolvedValue {
                value: pick(&at.value)?,
                origin: ValueOrigin { level: *level, span: Some(at.span) },
            })
        })
    }
}
