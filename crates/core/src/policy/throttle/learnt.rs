//! The rate learnt from a dependency's refusals: found by climbing, kept below the limit that was met.
//!
//! ```text
//!  rate        met │ hold       trusted             │ tries for more
//!   limit ─────────╱│      ╭───────────────────────╱─ …
//!                 ╱ │     ╱  just below what was met
//!                ╱  │  ╱╱   quick recovery
//!               ╱   │╱  half
//! ```
//!
//! - **Refused**: the rate halves. If it had been growing before, that shows the dependency's limit: the
//!   *ceiling* is a little below the rate at which it was met. A deep token bucket makes a limit look higher
//!   than it is, so a ceiling that is met while it is trusted was too high by what had been saved up
//!   ([`SAVED_UP`]), spread over the time it lasted: the sooner it is met, the lower the next one. Where no
//!   wait is asked for, the average rate shows it better.
//! - **Met again** near a ceiling that held: the limit has not moved, and the next ceiling is half way
//!   between.
//! - **Recovery**: within a second or two to just below the ceiling, and closer to it for as long as it is
//!   trusted.
//! - **More**: then the rate grows by `growth` a second (slowly at first: most limits have not moved), as
//!   long as calls have to wait for it, until it is refused again. The limit is never lifted: a backlog would
//!   arrive all at once.
//!
//! A try for more costs the wait that the dependency asks for, so a ceiling is trusted for twenty times that
//! (5 % of the time at most), at least for [`TRUSTED_AT_LEAST`] and at most for `memory`. One far below the
//! best earlier rate is likely to rise again: it is trusted for less, by the square of its ratio to the best.
//! The best moves half way down with each ceiling that is met, so that a limit that stays low is believed in
//! the end. If no limit was met by climbing, the climb to the best is quick.
//!
//! Growth is counted by calls that had to wait, not by the clock: unused rate proves nothing.
//! `docs/decisions/0015-remember-the-rate-limit-that-was-met.md` has figures, and why an earlier rule failed.

use std::time::Duration;

use super::{ThrottleSettings, floor};
use crate::time::Timestamp;

/// A limit is a little below the rate at which it was met,
const BELOW_MET: f64 = 0.94;
/// and lower where the dependency asks for a wait, since meeting it again costs more.
const BELOW_MET_HELD: f64 = 0.925;
/// Assumed burst capacity of the dependency, in seconds of calls at the limit.
const SAVED_UP: f64 = 0.85;
/// A ceiling that is met is lowered at least and at most to these parts of it.
const LOWERED_LEAST: f64 = 0.97;
const LOWERED_MOST: f64 = 0.84;
/// A limit that is met below so many times a ceiling that held is still the same.
const SAME_LIMIT: f64 = 1.5;
/// A limit met after calls were admitted for this long is certain, in seconds.
const SURE_AFTER: f64 = 15.0;
/// Earlier, it is located if calls had been admitted for so long, in seconds,
const NEAR_AFTER: f64 = 5.0;
/// or at a rate that had grown by so much since the last cut.
const NEAR_GROWN: f64 = 1.3;
/// An uncertain limit is trusted for so many times the time in which it was found,
const UNSURE_TRUSTED: f64 = 2.0;
/// and for less where the dependency asks for a wait, during which it may have risen.
const UNSURE_TRUSTED_HELD: f64 = 1.25;
/// The least time for which a limit is trusted, in seconds.
const TRUSTED_AT_LEAST: f64 = 30.0;
/// So many times the wait that the dependency asks for.
const TRUSTED_PER_HOLD: f64 = 20.0;
/// The rate recovers quickly to this part of the ceiling,
const NEAR: f64 = 0.97;
/// by this part of it in a second.
const BACK_PER_SECOND: f64 = 0.4;
/// How much closer it comes to the ceiling while that is trusted: to a twentieth of the distance.
const APPROACH: f64 = 3.0;
/// Without a ceiling, below the best earlier rate, the rate grows so many times as quickly.
const QUICK: f64 = 5.0;
/// Up to so many times the ceiling,
const SLOW_UNTIL: f64 = 1.05;
/// it grows at this part of the speed.
const SLOW: f64 = 0.15;
/// Calls must have waited for so long before the rate grows beyond what is known.
const PRESSED_FOR: Duration = Duration::from_secs(1);
/// The time constant of the average, in seconds.
const MEAN_OVER: f64 = 5.0;
/// Refused within so many calls after a cut, the dependency has not opened again.
const SHUT_WITHIN: u32 = 2;
/// After so many of these in a row, the ceiling is taken to have fallen.
const SHUT_MAX: u32 = 3;
/// The wait where the dependency does not state one; four times as long each time it stays shut.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// Timers are not exact: a call that is late by at most this does not delay the next ones.
const LATE_MAX: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct LearntRate {
    rate: f64,
    low: f64,
    ceiling: Option<Ceiling>,
    /// The last ceiling that was not met for as long as it was trusted.
    held: Option<f64>,
    /// The best rate that worked, as far as it is still believed.
    best: f64,
    mean: f64,
    /// Seconds since the cut in which calls had to wait for this rate.
    used: f64,
    calls: u32,
    /// Cuts in a row with hardly a call admitted between them.
    shut: u32,
    pause: Duration,
    last_call_at: Timestamp,
    held_until: Timestamp,
    resumes_at: Timestamp,
    /// Since when every call has had to wait.
    pressed_since: Option<Timestamp>,
    is_awaited: bool,
    needed_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ceiling {
    rate: f64,
    /// For so many seconds of use nothing higher is tried.
    trusted_for: f64,
}

impl LearntRate {
    pub(super) fn new(rate: f64, measured: f64, now: Timestamp) -> Self {
        let best = measured.min(rate);
        let low = halved(rate);
        Self {
            rate: low,
            low,
            ceiling: None,
            held: None,
            best,
            mean: best,
            used: 0.0,
            calls: 0,
            shut: 0,
            pause: PAUSE,
            last_call_at: now,
            held_until: now,
            resumes_at: now,
            pressed_since: None,
            is_awaited: false,
            needed_at: now,
        }
    }

    pub(super) fn rate(&self, settings: &ThrottleSettings) -> f64 {
        settings.rate.map_or(self.rate, |configured| self.rate.min(configured.as_per_second()))
    }

    /// Whether it was unused for so long that it is no longer valid.
    pub(super) fn is_forgotten(&self, settings: &ThrottleSettings, now: Timestamp) -> bool {
        now.since(self.needed_at) >= settings.memory
    }

    /// Whether a refusal now is of a call that was made since the last one.
    pub(super) fn is_news(&self, now: Timestamp) -> bool {
        self.calls > 0 && now >= self.resumes_at
    }

    pub(super) fn wait(&mut self, now: Timestamp) {
        self.is_awaited = true;
        self.needed_at = now;
        self.pressed_since.get_or_insert(now);
    }

    /// Admits a call that was due at `due_at`; returns the time from which the next one is reckoned.
    pub(super) fn call(
        &mut self,
        settings: &ThrottleSettings,
        due_at: Timestamp,
        now: Timestamp,
    ) -> Timestamp {
        let pressed_since = self.pressed_since.filter(|_| self.is_awaited);
        let from = match pressed_since {
            Some(since) => {
                self.grow(settings, now.since(since));
                due_at.max(now - LATE_MAX)
            }
            None => now,
        };
        self.pressed_since = pressed_since;
        self.is_awaited = false;
        self.calls = self.calls.saturating_add(1);
        let apart = now.since(self.last_call_at.max(self.held_until)).as_secs_f64();
        self.mean = (self.mean * MEAN_OVER + 1.0) / (MEAN_OVER + apart);
        self.last_call_at = now;
        from
    }

    /// By one call that had to wait, as all have for `pressed_for`.
    fn grow(&mut self, settings: &ThrottleSettings, pressed_for: Duration) {
        let seconds = 1.0 / self.rate(settings);
        self.used += seconds;
        let growth = settings.growth.get() * seconds;
        self.rate = match self.ceiling {
            Some(Ceiling { rate, .. }) if self.rate < NEAR * rate => {
                (self.rate + BACK_PER_SECOND * rate * seconds).min(NEAR * rate)
            }
            Some(Ceiling { rate, trusted_for }) if self.used < trusted_for => {
                let closer = (APPROACH * seconds / trusted_for).min(1.0);
                self.rate + (rate - self.rate).max(0.0) * closer
            }
            _ if self.rate < NEAR * self.best => (self.rate * (1.0 + QUICK * growth)).min(self.best),
            Some(Ceiling { rate, .. }) if pressed_for >= PRESSED_FOR && self.rate < SLOW_UNTIL * rate => {
                self.rate * (1.0 + SLOW * growth)
            }
            _ if pressed_for >= PRESSED_FOR => self.rate * (1.0 + growth),
            _ => self.rate,
        };
        if let Some(configured) = settings.rate {
            self.rate = self.rate.min(configured.as_per_second());
        }
    }

    pub(super) fn cut(&mut self, settings: &ThrottleSettings, hold: Duration) {
        self.rate = self.rate(settings);
        if self.calls <= SHUT_WITHIN {
            self.shut += 1;
            self.pause = (self.pause * 4).min(PAUSE_MAX);
            self.ceiling = self.ceiling.filter(|_| self.shut <= SHUT_MAX);
        } else {
            (self.shut, self.pause) = (0, PAUSE);
            self.meet(settings, hold);
        }
        self.rate = halved(self.rate);
        (self.low, self.used, self.calls) = (self.rate, 0.0, 0);
    }

    pub(super) const fn pauses_for(&self) -> Duration {
        self.pause
    }

    fn meet(&mut self, settings: &ThrottleSettings, hold: Duration) {
        if self.pressed_since.is_none() {
            self.rate = self.rate.min(self.mean.max(floor()));
        }
        let is_near = self.used >= NEAR_AFTER || self.rate >= NEAR_GROWN * self.low;
        let (known, outlived) = match self.ceiling.take() {
            Some(ceiling) if self.used < ceiling.trusted_for => (Some(ceiling), None),
            outlived => (None, outlived),
        };
        self.held = outlived.map(|ceiling| ceiling.rate).or(self.held);
        if !is_near {
            return;
        }
        let rate = self.below_met(known, hold);
        // Where no wait is asked for, another try costs little.
        let lasted = self.held.filter(|lasted| *lasted < rate && !hold.is_zero());
        let same = lasted.filter(|lasted| rate < SAME_LIMIT * lasted);
        let rate = same.map_or(rate, |lasted| f64::midpoint(lasted, rate));
        if known.is_some() {
            self.held = lasted;
        }
        self.best = self.best.max(rate);
        let of_best = rate / self.best;
        let worth =
            (TRUSTED_PER_HOLD * hold.as_secs_f64()).max(TRUSTED_AT_LEAST).min(settings.memory.as_secs_f64())
                * of_best
                * of_best;
        let unsure = if hold.is_zero() { UNSURE_TRUSTED } else { UNSURE_TRUSTED_HELD };
        let found_in = if self.used >= SURE_AFTER { worth } else { unsure * self.used };
        let trusted_for = found_in.max(known.map_or(0.0, |known| known.trusted_for)).min(worth);
        self.best = f64::midpoint(self.best, rate);
        self.ceiling = Some(Ceiling { rate, trusted_for });
    }

    /// The limit that was just met, maybe at a ceiling that was trusted.
    fn below_met(&self, known: Option<Ceiling>, hold: Duration) -> f64 {
        match known {
            // No wait was asked for, so the average includes the time in which the dependency was shut.
            Some(_) if hold.is_zero() => self.rate.min(self.mean).max(self.rate / 2.0) * BELOW_MET,
            Some(_) => self.rate * (1.0 - SAVED_UP / self.used).clamp(LOWERED_MOST, LOWERED_LEAST),
            None if hold.is_zero() => self.rate * BELOW_MET,
            None => self.rate * BELOW_MET_HELD,
        }
    }

    pub(super) fn hold(&mut self, until: Timestamp) {
        self.held_until = self.held_until.max(until);
        self.pause(until);
    }

    pub(super) fn pause(&mut self, at: Timestamp) {
        self.resumes_at = self.resumes_at.max(at);
        self.needed_at = self.needed_at.max(at);
        (self.pressed_since, self.is_awaited) = (None, false);
    }
}

fn halved(rate: f64) -> f64 {
    (rate / 2.0).max(floor().min(rate))
}
