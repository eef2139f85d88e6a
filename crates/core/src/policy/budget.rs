//! The retry budget of a dependency: limits how many calls may be retries, so that retries cannot make an
//! outage worse.
//!
//! A policy bounds the retries of one call. When everything fails, all calls are retried at once: three
//! retries each are four times the load. A budget bounds the retries of all calls together: to a share of the
//! calls of the last ten seconds, and to so many a second where there are few.
//!
//! Invariants:
//! - within any ten seconds, no more retries are granted than the share of the calls counted within them and
//!   what `at_least` gives for them;
//! - a caller that keeps asking is admitted, for `at_least` is not 0;
//! - memory is one window of fixed size, whatever the number of calls.

use std::time::Duration;

use crate::limits;
use crate::policy::window::CallWindow;
use crate::text::{Rate, Share};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetSettings {
    pub share: Share,
    /// Retries allowed in any case, however few the calls.
    pub at_least: Rate,
}

impl BudgetSettings {
    /// The default for the calls of a program: a fifth of the calls, or ten a second.
    #[must_use]
    pub fn of_guards() -> Self {
        Self {
            share: Share::new(0.2).expect("a share"),
            at_least: Rate::per_second(10.0).expect("more than 0"),
        }
    }

    /// The floor where the book states only a share: one a second.
    #[must_use]
    pub fn with_share(share: Share) -> Self {
        Self { share, at_least: Rate::per_second(1.0).expect("more than 0") }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// A retry is counted as a failed call.
    recent: Option<CallWindow>,
}

impl Budget {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub fn count_calls(&mut self, calls: u32, now: Timestamp) {
        if calls > 0 {
            self.window(now).count_calls(calls, now);
        }
    }

    /// Until when calls are counted alike, whenever exactly they were made; `None` if none was counted yet.
    #[must_use]
    pub fn counts_alike_until(&self) -> Option<Timestamp> {
        self.recent.as_ref().map(CallWindow::counts_alike_until)
    }

    pub fn count_retry(&mut self, now: Timestamp) {
        self.window(now).count_failure(now);
    }

    #[must_use]
    pub fn refuses_until(&self, settings: &BudgetSettings, now: Timestamp) -> Option<Timestamp> {
        let calls = self.recent.as_ref()?.calls(now);
        let first = f64::from(calls.made.saturating_sub(calls.failed));
        let floor = settings.at_least.as_per_second() * limits::RETRY_BUDGET_OVER.as_secs_f64();
        // Even the smallest floor allows one retry within the time.
        let allowed = (settings.share.get() * first + floor).max(1.0);
        // A share such as 7 % is no exact f64.
        let fits = f64::from(calls.failed) + 1.0 <= allowed + 1e-6;
        (!fits).then(|| now + ASK_AGAIN_AFTER)
    }

    fn window(&mut self, now: Timestamp) -> &mut CallWindow {
        self.recent.get_or_insert_with(|| CallWindow::new(limits::RETRY_BUDGET_OVER, now))
    }
}

/// A part of the window: by then something has expired.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(625);
const _: () = assert!(ASK_AGAIN_AFTER.as_millis() * 16 == limits::RETRY_BUDGET_OVER.as_millis());

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000_000_000);

    fn settings(percent: u32, per_second: f64) -> BudgetSettings {
        let share = Share::new(f64::from(percent) / 100.0).expect("a share");
        BudgetSettings { share, at_least: Rate::per_second(per_second).expect("a rate") }
    }

    fn granted(budget: &mut Budget, settings: &BudgetSettings, now: Timestamp) -> u32 {
        let mut count = 0;
        while budget.refuses_until(settings, now).is_none() && count < 1_000 {
            budget.count_retry(now);
            count += 1;
        }
        count
    }

    #[test]
    fn retries_are_a_share_of_the_calls_and_never_none() {
        #[rustfmt::skip]
        let cases = [
            ("a fifth of the calls",        settings(20, 0.1), 100,   21),
            ("seven in a hundred",          settings(7, 0.1),  100,   8),
            ("few calls have the floor",    settings(20, 1.0), 5,     11),
            ("no calls have the floor",     settings(20, 1.0), 0,     10),
            ("however small it is",         settings(0, 0.01), 0,     1),
            ("what guards have",            BudgetSettings::of_guards(), 1_000, 300),
        ];
        for (name, settings, calls, expected) in cases {
            let mut budget = Budget::new();
            budget.count_calls(calls, START);
            assert_eq!(granted(&mut budget, &settings, START), expected, "{name}");
            let later = START + limits::RETRY_BUDGET_OVER * 2;
            assert!(granted(&mut budget, &settings, later) > 0, "{name}: it comes back");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn no_ten_seconds_hold_more_retries_than_they_may(
            percent in 0_u32..100,
            per_second in 0.1_f64..5.0,
            acts in prop::collection::vec((prop::bool::ANY, 0_u64..700), 1..300),
        ) {
            let settings = settings(percent, per_second);
            let mut budget = Budget::new();
            let (mut now, mut calls, mut retries) = (START, Vec::new(), Vec::new());
            for (is_call, ms) in acts {
                now = now + Duration::from_millis(ms);
                if is_call {
                    budget.count_calls(1, now);
                    calls.push(now);
                } else {
                    match budget.refuses_until(&settings, now) {
                        None => {
                            budget.count_retry(now);
                            retries.push(now);
                        }
                        Some(again) => prop_assert!(again > now),
                    }
                }
                let within = |times: &[Timestamp], span: Duration| {
                    times.iter().filter(|at| now.since(**at) < span).count() as f64
                };
                // The window has sixteen parts, so fifteen of them are always counted.
                let surely = limits::RETRY_BUDGET_OVER / 16 * 15;
                let floor = per_second * limits::RETRY_BUDGET_OVER.as_secs_f64();
                let most = f64::from(percent) / 100.0 * within(&calls, limits::RETRY_BUDGET_OVER * 2) + floor;
                prop_assert!(within(&retries, surely) <= most.max(1.0) + 1e-6);
            }
            let mut patience = 0;
            while let Some(again) = budget.refuses_until(&settings, now) {
                now = again;
                patience += 1;
                prop_assert!(patience <= 32, "who keeps asking is let through");
            }
        }
    }
}
