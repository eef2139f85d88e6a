//! Reads the policies of a Dapr file.

use std::time::Duration;

use super::DaprReader;
use crate::dapr::duration::show;
use crate::dapr::model::{
    CONSTANT_DEFAULT, CircuitBreaker, MAX_INTERVAL_DEFAULT, OPEN_DEFAULT, Resiliency, Retry, RetryPace,
    TripOn, UNLIMITED,
};
use crate::dapr::{matching, trip};
use redrive_core::book::yaml::{YamlNode, YamlValue};
use redrive_core::limits;
use redrive_core::policy::rule::StatusRange;

const DEFAULT: &str = "Default";
const BUILT_IN: &str = "DaprBuiltIn";
const PROTECTED: &str = "DaprBuiltInActorNotFoundRetries";
const BUILT_IN_RETRIES_MIN: u32 = 3;

pub(in crate::dapr) fn is_reserved(name: &str) -> bool {
    name.starts_with(BUILT_IN) || name.starts_with(DEFAULT) && name.ends_with("Policy")
}

impl DaprReader {
    pub(super) fn policies(&mut self, policies: &YamlNode, resiliency: &mut Resiliency) {
        self.known_keys(policies, "policies", &["timeouts", "retries", "circuitBreakers"]);
        if let Some(timeouts) = self.section(policies, "timeouts") {
            for (name, value) in timeouts.entries() {
                let Some(name) = name.text() else { continue };
                let path = format!("timeouts.{name}");
                if let Some(limit) = self.timeout(value, &path) {
                    resiliency.timeouts.push((name.to_owned(), limit));
                }
                self.remark_on_name(name, &path);
            }
        }
        for (name, node) in self.named_maps(policies, "retries") {
            let path = format!("retries.{name}");
            if let Some(retry) = self.retry(node, name, &path) {
                resiliency.retries.push((name.to_owned(), retry));
            }
            self.remark_on_name(name, &path);
        }
        for (name, node) in self.named_maps(policies, "circuitBreakers") {
            let path = format!("circuitBreakers.{name}");
            if let Some(breaker) = self.breaker(node, &path) {
                resiliency.breakers.push((name.to_owned(), breaker));
            }
            self.remark_on_name(name, &path);
        }
    }

    fn remark_on_name(&mut self, name: &str, path: &str) {
        if name == PROTECTED {
            self.notes.add(path, "Dapr protects this built-in policy and ignores the file");
        } else if name.starts_with(BUILT_IN) {
            self.notes
                .add(path, "the name replaces a built-in policy of Dapr; in a book it is an ordinary policy");
        } else if is_reserved(name) {
            let why = "Dapr applies it to targets without an entry; in a book it is an ordinary policy: name it \
                       under `defaults` to apply it";
            self.notes.add(path, why);
        }
    }

    fn timeout(&mut self, value: &YamlNode, path: &str) -> Option<Duration> {
        let YamlValue::Scalar { text, .. } = &value.value else {
            self.wrong_shape(value, "a timeout takes a duration");
            return None;
        };
        let limit = self.duration_in(value, text, path)?;
        if limit.is_zero() {
            let meant = if text.starts_with('-') {
                "Dapr treats a negative timeout as none"
            } else {
                "Dapr treats 0 as no limit"
            };
            self.notes.add(path, format!("{meant}; the book has `{UNLIMITED}` instead"));
        }
        Some(limit)
    }

    fn retry(&mut self, node: &YamlNode, name: &str, path: &str) -> Option<Retry> {
        self.known_keys(node, path, &["policy", "duration", "maxInterval", "maxRetries", "matching"]);
        let pace = self.pace(node, path)?;
        let retries = match self.whole_number(node, "maxRetries") {
            Some(given) => u32::try_from(given).ok().or(if given < 0 { None } else { Some(u32::MAX) }),
            None if node.get("maxRetries").is_some_and(|value| !matches!(value.value, YamlValue::Null)) => {
                return None;
            }
            None => {
                self.notes.add(path, "no `maxRetries`: Dapr assumes -1, unlimited retries");
                None
            }
        };
        let retries = self.bounded_retries(retries, name, path);
        match (retries, pace) {
            (None, RetryPace::Constant(_)) => {
                let why = "a delivery that always fails is retried forever and never becomes a dead letter";
                self.notes.add(path, why);
            }
            (_, RetryPace::Exponential { .. }) => {
                let why = "Dapr's exponential delays are fixed: from 500ms, times 1.5, with 50 % jitter";
                self.notes.add(path, why);
                let why = "Dapr ends exponential retries after 15 minutes whatever `maxRetries` says, so the \
                           book has `window: 15m`";
                self.notes.add(path, why);
            }
            (Some(_), RetryPace::Constant(_)) => {}
        }
        Some(Retry { pace, retries, statuses: self.statuses(node, path) })
    }

    fn pace(&mut self, node: &YamlNode, path: &str) -> Option<RetryPace> {
        let policy = self.text(node, "policy").unwrap_or_else(|| {
            self.notes.add(path, "no `policy`: Dapr assumes `constant`");
            "constant"
        });
        let given = |key| node.get(key).is_some();
        if policy.eq_ignore_ascii_case("constant") {
            if given("maxInterval") {
                self.notes.add(
                    format!("{path}.maxInterval"),
                    "it belongs to `exponential`; with `constant` Dapr ignores it",
                );
            }
            let delay = self.duration(node, path, "duration").unwrap_or_else(|| {
                self.notes
                    .add(path, format!("no `duration`: Dapr waits {} each time", show(CONSTANT_DEFAULT)));
                CONSTANT_DEFAULT
            });
            return Some(RetryPace::Constant(delay));
        }
        if policy.eq_ignore_ascii_case("exponential") {
            if given("duration") {
                self.notes.add(
                    format!("{path}.duration"),
                    "it belongs to `constant`; with `exponential` Dapr ignores it",
                );
            }
            let max = self.duration(node, path, "maxInterval").unwrap_or_else(|| {
                self.notes
                    .add(path, format!("no `maxInterval`: Dapr assumes {}", show(MAX_INTERVAL_DEFAULT)));
                MAX_INTERVAL_DEFAULT
            });
            return Some(RetryPace::Exponential { max });
        }
        let span = node.get("policy").map_or(node.span, |value| value.span);
        let message = "Dapr only has the policies `constant` and `exponential` and refuses the resource";
        self.problems.error("unknown-word", span, message, "write one of the two");
        None
    }

    fn bounded_retries(&mut self, retries: Option<u32>, name: &str, path: &str) -> Option<u32> {
        if name.starts_with(BUILT_IN) && retries.is_none_or(|retries| retries < BUILT_IN_RETRIES_MIN) {
            let why = "Dapr raises fewer than 3 retries of a built-in policy, and -1, to 3";
            self.notes.add(format!("{path}.maxRetries"), why);
            return Some(BUILT_IN_RETRIES_MIN);
        }
        let bounded = retries?.min(limits::RETRIES_MAX);
        if Some(bounded) < retries {
            let why =
                format!("the maximum in a book is {} retries, which is used instead", limits::RETRIES_MAX);
            self.notes.add(format!("{path}.maxRetries"), why);
        }
        Some(bounded)
    }

    fn statuses(&mut self, node: &YamlNode, path: &str) -> Option<Vec<StatusRange>> {
        let matching = self.section(node, "matching")?;
        let path = format!("{path}.matching");
        self.known_keys(matching, &path, &["httpStatusCodes", "gRPCStatusCodes"]);
        let grpc = self.codes(matching, "gRPCStatusCodes", StatusRange { first: 0, last: 16 });
        if grpc.is_some() {
            let why = "a book has no gRPC statuses: their category decides about retries";
            self.notes.add(format!("{path}.gRPCStatusCodes"), why);
        }
        let http = self.codes(matching, "httpStatusCodes", StatusRange { first: 100, last: 599 })?;
        if http.iter().any(|range| range.first < matching::FAILURES.first) {
            let why = "Dapr does not treat statuses below 400 as failures, so they are left out";
            self.notes.add(format!("{path}.httpStatusCodes"), why);
        }
        Some(matching::failures(&http))
    }

    fn codes(&mut self, node: &YamlNode, key: &str, within: StatusRange) -> Option<Vec<StatusRange>> {
        let text = self.text(node, key)?;
        match matching::parse(text, within) {
            Ok(ranges) => Some(ranges).filter(|ranges| !ranges.is_empty()),
            Err(error) => {
                let span = node.get(key).map_or(node.span, |value| value.span);
                let help = match error {
                    matching::InvalidCodes::Space => "write the codes without spaces, such as 429,500-599",
                    matching::InvalidCodes::Item { .. } if key == "httpStatusCodes" => {
                        "write HTTP statuses such as 429,500-599; gRPC codes belong under `gRPCStatusCodes`"
                    }
                    matching::InvalidCodes::Item { .. } => "write codes such as 1,8-14",
                };
                self.problems.error("bad-codes", span, error.to_string(), help);
                None
            }
        }
    }

    fn breaker(&mut self, node: &YamlNode, path: &str) -> Option<CircuitBreaker> {
        self.known_keys(node, path, &["maxRequests", "interval", "timeout", "trip"]);
        let max_requests = self.max_requests(node, path);
        let interval = self.duration(node, path, "interval").filter(|interval| !interval.is_zero());
        let timeout = self.duration(node, path, "timeout").filter(|timeout| !timeout.is_zero());
        let timeout = timeout.unwrap_or_else(|| {
            self.notes.add(
                path,
                format!("no `timeout` above 0: Dapr keeps the breaker open for {}", show(OPEN_DEFAULT)),
            );
            OPEN_DEFAULT
        });
        let trip = self.trip(node, path)?;
        match (interval, trip) {
            (None, TripOn::Consecutive(_)) => {
                self.notes.add(path, "no `interval`: Dapr resets failures only when a call succeeds");
            }
            (None, TripOn::Failures(_) | TripOn::FailureRate { .. }) => {
                let why = "no `interval`: Dapr never resets the counts while the breaker is closed, so the book \
                           counts over ten years; set a real `within`";
                self.notes.add(path, why);
            }
            (Some(_), TripOn::Consecutive(_)) => {
                let why = "Dapr resets failures after every `interval`, even within a run of failures; the \
                           book's `reset` does so after that long without a failure";
                self.notes.add(path, why);
            }
            (Some(_), TripOn::Failures(_) | TripOn::FailureRate { .. }) => {
                let why = "Dapr restarts at 0 in every `interval`; the book's `within` slides, so it may open \
                           earlier";
                self.notes.add(path, why);
            }
        }
        Some(CircuitBreaker { max_requests, interval, timeout, trip })
    }

    fn max_requests(&mut self, node: &YamlNode, path: &str) -> u32 {
        let stated = self.whole_number(node, "maxRequests");
        match stated {
            Some(given @ 1..) => {
                let given = u32::try_from(given).unwrap_or(u32::MAX);
                if given > limits::PROBES_MAX {
                    let why = format!(
                        "the maximum in a book is {} probes, which is used instead",
                        limits::PROBES_MAX
                    );
                    self.notes.add(format!("{path}.maxRequests"), why);
                }
                given.min(limits::PROBES_MAX)
            }
            Some(..0) => {
                let span = node.get("maxRequests").map_or(node.span, |value| value.span);
                self.problems.error(
                    "out-of-range",
                    span,
                    "`maxRequests` must not be negative",
                    "write 1 or more",
                );
                1
            }
            Some(0) | None => {
                self.notes.add(path, "no `maxRequests` above 0: Dapr assumes 1");
                1
            }
        }
    }

    fn trip(&mut self, node: &YamlNode, path: &str) -> Option<TripOn> {
        let Some(text) = self.text(node, "trip") else {
            self.notes
                .add(path, "no `trip`: Dapr assumes `consecutiveFailures > 5`, the 6th failure in a row");
            return Some(TripOn::Consecutive(6));
        };
        let path = format!("{path}.trip");
        match trip::read(text) {
            Ok(trip::TripMeaning { trip, share }) => {
                if text.contains("consecutiveSuccesses") {
                    let why = "`consecutiveSuccesses` is always 0 when Dapr evaluates the condition, after a \
                               failure: the book leaves it out";
                    self.notes.add(&path, why);
                }
                if let TripOn::Consecutive(count) | TripOn::Failures(count) = trip
                    && text.contains('>')
                    && !text.contains(">=")
                {
                    let why = format!(
                        "`> {}` opens on failure number {count}, as in the book",
                        count.saturating_sub(1)
                    );
                    self.notes.add(&path, why);
                }
                if share == trip::ShareBound::Exceeded {
                    self.notes.add(
                        &path,
                        "the book's breaker opens when the share is reached, Dapr's when it is exceeded",
                    );
                }
                Some(trip)
            }
            Err(error) => {
                let span = node.get("trip").map_or(node.span, |value| value.span);
                self.problems.error("bad-trip", span, error.to_string(), error.help());
                None
            }
        }
    }
}
