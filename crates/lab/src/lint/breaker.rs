//! Lints about one breaker and the rule that it stands in: its window, its probes, what it counts.
//!
//! Absent on purpose: `close_after` above `probes`. Probes are how many calls try at once and
//! `close_after` is how many successes in a row close the breaker, so any pair can close it.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Example::{Breaker, Service, With};
use super::classification::usual_category;
use super::{Findings, Lint, Run};
use redrive_core::book::model::{BreakerEntry, Criticality, DataLoss, Reprocess, Sections};
use redrive_core::book::problem::{Severity, Span};
use redrive_core::book::resolve::{Level, Resolved};
use redrive_core::policy::breaker::Trip;
use redrive_core::policy::catalog::Kind;
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::{FailureMatch, StatusRange, WhenOpen};
use redrive_core::text::show_duration;

/// More calls at once than this are no probe any more.
const PROBES_SENSIBLE_MAX: u64 = 10;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "default-breaker-hidden",
        severity: Severity::Warning,
        summary: "a breaker of the defaults that holds nowhere, since every kind has one of its own",
        explanation: "A breaker in `defaults` holds only where the dependency's kind has none: values fall from \
                      the row over the dependency and its kind to the defaults, and most kinds have a breaker. \
                      Here it holds for no row at all, so its author believes in numbers that are not in force. \
                      Name the breaker at the services or dependencies that are meant.",
        bad: With(&["defaults: { breaker: stateBreaker }"], ""),
        fix: &[
            ("defaults: { breaker: stateBreaker }\n", ""),
            ("events: [a.b]", "events: [a.b], breaker: stateBreaker"),
        ],
        run: Run::Book(default_breaker_hidden),
    },
    Lint {
        code: "retry-lands-on-open-breaker",
        severity: Severity::Warning,
        summary: "`when_open: dead-letter`, and all retries may be over before the breaker lets one through",
        explanation: "With `when_open: dead-letter` a retry that meets an open breaker ends as a dead letter. \
                      If the policy may be through with all its retries before the breaker's open time is \
                      over, then once the breaker opens no retry can help: each ends as a dead letter, and \
                      the policy is only decoration. Let deliveries be held (the default, which burns no \
                      retry), or wait longer than the breaker stays open.",
        bad: Service("when_open: dead-letter"),
        fix: &[("when_open: dead-letter", "when_open: hold")],
        run: Run::Rule(retry_lands_on_open_breaker),
    },
    Lint {
        code: "breaker-window-too-short",
        severity: Severity::Warning,
        summary: "a breaker counts within less than two timeouts",
        explanation: "A call that times out is counted when it ends. If the breaker looks back over less than \
                      two timeouts, a caller that times out again and again never has two failures in view \
                      at once: the slowest outage, which ties up the most, is the one that does not open it. \
                      It is an error where even all permitted calls together cannot time out often enough \
                      within the window, and a warning where many callers at once still can. Make `within` \
                      longer, or the timeout shorter.",
        bad: Breaker("trip: { failures: 3, within: 30s }, open: 60s", "timeout: 20s"),
        fix: &[("within: 30s", "within: 2m")],
        run: Run::Rule(breaker_window_too_short),
    },
    Lint {
        code: "half-open-stampede",
        severity: Severity::Warning,
        summary: "so many probes that a half-open breaker holds nothing back",
        explanation: "A half-open breaker lets `probes` calls through at once to see whether the dependency is \
                      well again. More than ten, or more than may be in flight anyway, is no probe but the \
                      full load, on something that is just getting up; it falls over again. One or two are \
                      enough to see; `close_after` asks for more successes without more load.",
        bad: Breaker("trip: { consecutive: 50 }, open: 60s, probes: 50", ""),
        fix: &[("probes: 50", "probes: 1, close_after: 50")],
        run: Run::Rule(half_open_stampede),
    },
    Lint {
        code: "breaker-counts-rejections",
        severity: Severity::Warning,
        summary: "a breaker counts refusals of single messages, or our own faults, as failures of the dependency",
        explanation: "A dependency that refuses a message (`permanent`, `invalid`, a 4xx other than 408, 425 and \
                      429) has answered: it is well, and the message is bad. Where that counts, a few bad \
                      messages from one sender open the breaker for everybody. To count `internal` is an \
                      error: it is Redrive's own fault, and the breaker would close the way to a dependency \
                      that nobody has called. Leave such kinds out of `counts`.",
        bad: Breaker("from: externalBreaker, counts: [permanent]", ""),
        fix: &[("[permanent]", "[408]")],
        run: Run::Book(breaker_counts_rejections),
    },
    Lint {
        code: "breaker-ignores-everything",
        severity: Severity::Error,
        summary: "a breaker ignores every failure that could open it",
        explanation: "Only `transient`, `rate-limited` and `unknown` failures speak against a dependency. A \
                      breaker that ignores all of them, and counts nothing else, can never open: whoever reads \
                      the book believes the dependency to be guarded, and it is not. One that ignores all but \
                      `rate-limited`, or all of 500, 502, 503 and 504, opens on no usual outage: a warning. Ignore less, by status for \
                      example, or say `breaker: none` and mean it.",
        bad: Breaker("from: externalBreaker, ignores: [transient, rate-limited, unknown]", ""),
        fix: &[("transient, rate-limited, unknown", "503")],
        run: Run::Book(breaker_ignores_everything),
    },
    Lint {
        code: "quorum-of-one",
        severity: Severity::Warning,
        summary: "one failure seen by one of several processes closes the way for all",
        explanation: "A breaker's state is shared by all processes that share a store. If a single failure opens \
                      it, one process with a bad network, a full disk or a stale certificate takes the \
                      dependency away from all the others, which could reach it well. Ask for a few failures, \
                      so that one process alone rarely makes them in a row while the others succeed.",
        bad: Breaker("trip: { consecutive: 1 }, open: 60s", "facts: { instances: 4 }"),
        fix: &[("consecutive: 1", "consecutive: 5")],
        run: Run::Rule(quorum_of_one),
    },
    Lint {
        code: "no-breaker",
        severity: Severity::Warning,
        summary: "retries against something outside, and no breaker in front of it",
        explanation: "Retries without a breaker flood a dependency that is already failing, and make its \
                      recovery slower: every delivery goes on knocking, each by itself. Pair every retry policy \
                      with a breaker on the dependency it calls. Most kinds have one of their own; `sqs` has \
                      none, and `breaker: none` takes it away. Programs and the log need none: no network lies \
                      between.",
        bad: Service("breaker: none"),
        fix: &[("breaker: none", "breaker: externalBreaker")],
        run: Run::Rule(no_breaker),
    },
    Lint {
        code: "open-longer-than-hold",
        severity: Severity::Warning,
        summary: "deliveries are held for less time than the breaker stays open",
        explanation: "While a breaker is open, deliveries are held until it lets them through, at most for \
                      `hold_max`. If it stays open longer than that, every delivery that is held when it opens \
                      is a dead letter before the first probe goes: holding saves none of them. Hold for \
                      several times the open time, since a first probe may fail too.",
        bad: Service("hold_max: 30s"),
        fix: &[("hold_max: 30s", "hold_max: 1h")],
        run: Run::Rule(open_longer_than_hold),
    },
    Lint {
        code: "open-too-short",
        severity: Severity::Warning,
        summary: "a breaker that is open for less than a second",
        explanation: "An open breaker gives a failing dependency time to recover. One that probes again within a \
                      second gives it none: it opens and half-opens all the time, every probe is a real delivery, \
                      and the alerts on breakers flap. Most dependencies need 10 s to a minute; the catalog's \
                      breakers stay open for 10 s or longer.",
        bad: Breaker("trip: { consecutive: 5 }, open: 100ms", ""),
        fix: &[("open: 100ms", "open: 30s")],
        run: Run::Book(open_too_short),
    },
    Lint {
        code: "reset-forgets-failures",
        severity: Severity::Warning,
        summary: "a breaker forgets its failures sooner than a caller can add to them",
        explanation: "`reset` clears the count after that long without a failure. If a call may take as long as \
                      that to time out, or a caller waits longer than that before it tries again, and there is \
                      little other traffic, then each failure finds the one before forgotten, the count never \
                      reaches the trip, and the breaker stays closed through the whole outage. Make `reset` \
                      several times as long as the timeout and the first delay.",
        bad: Breaker("trip: { consecutive: 3 }, open: 60s, reset: 10s", "timeout: 30s, facts: { rate: 1/m }"),
        fix: &[("reset: 10s", "reset: 5m")],
        run: Run::Rule(reset_forgets_failures),
    },
    Lint {
        code: "dead-letter-when-open",
        severity: Severity::Warning,
        summary: "events that matter become dead letters whenever the breaker is open",
        explanation: "`when_open: dead-letter` ends every delivery that comes while the breaker is open, though \
                      nothing is wrong with it. Where the events are critical or must not be lost, somebody has \
                      to replay each of them by hand after every outage, however short. Hold them (the \
                      default), or let the letters come back by themselves with `reprocess: automatic`.",
        bad: Service("when_open: dead-letter, data_loss: not-acceptable"),
        fix: &[("when_open: dead-letter", "when_open: hold")],
        run: Run::Rule(dead_letter_when_open),
    },
    Lint {
        code: "synchronous-probes",
        severity: Severity::Info,
        summary: "the probes of all processes together are a small herd",
        explanation: "Processes that share a store share the breaker and its probes. Those that do not, or that \
                      have lost the store for a while, see the same outage, open at about the same time and \
                      probe at the same time: `probes` times as many calls as there are processes, all at once. \
                      More than ten are worth knowing of. One probe for each process is enough.",
        bad: Breaker("trip: { consecutive: 5 }, open: 60s, probes: 4", "facts: { instances: 8 }"),
        fix: &[("probes: 4", "probes: 1, close_after: 4")],
        run: Run::Rule(synchronous_probes),
    },
];

/// Where to point for a breaker: at where it is chosen, else at what says which dependency it is.
fn guard(resolved: &Resolved<'_>) -> Span {
    let own_channel = resolved.channel.filter(|channel| channel.target.is_some());
    let caller = own_channel.map_or(resolved.service.span, |channel| channel.span);
    resolved.breaker_origin.span.or(resolved.dependency.origin.span).unwrap_or(caller)
}

fn retry_lands_on_open_breaker(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    if resolved.when_open.value != WhenOpen::DeadLetter {
        return;
    }
    let (Some(breaker), Some(policy)) = (&resolved.rule.breaker, resolved.retry_policy()) else { return };
    let open = breaker.settings.open();
    let through = policy.backoff.wait_min_total();
    let through = policy.backoff.window().map_or(through, |window| through.min(window));
    if policy.backoff.retries() == 0 || through >= open {
        return;
    }
    let [through, open] = [through, open].map(show_duration);
    let message = format!(
        "all retries of `{}` may be over after {through}, and the breaker stays open for {open}: once it opens, \
         every retry ends as a dead letter",
        policy.name
    );
    let help =
        format!("hold deliveries (leave `when_open` out), or name a policy that waits longer than {open}");
    findings.report(resolved.place(resolved.when_open.origin), message, help);
}

fn breaker_window_too_short(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let timeouts = &resolved.rule.timeouts;
    let Some(breaker) = &resolved.rule.breaker else { return };
    let (needed, within) = match breaker.settings.trip() {
        Trip::Consecutive(_) => return,
        Trip::Failures { count, within } => (count, within),
        Trip::FailureRate { of_at_least, within, .. } => (of_at_least, within),
    };
    let timeout = timeouts.whole.first;
    let counted = timeouts.category.counts_against_dependency();
    if !counted || needed.get() == 1 || within >= timeout.saturating_mul(2) {
        return;
    }
    // In each slot a timeout ends at most once in a timeout, and the window may begin on one.
    let ends_in_a_slot = within.as_nanos() / timeout.as_nanos().max(1) + 1;
    let most = u128::from(resolved.in_flight.value).saturating_mul(ends_in_a_slot);
    let severity = if most < u128::from(needed.get()) { Severity::Error } else { Severity::Warning };
    let [within, timeout, twice] = [within, timeout, timeout.saturating_mul(2)].map(show_duration);
    let message = match severity {
        Severity::Error => format!(
            "within {within} at most {most} calls can time out after {timeout}, and the breaker waits for {needed}"
        ),
        Severity::Warning | Severity::Info => format!(
            "the breaker looks back over {within} and a call may take {timeout} to fail: slow failures fall out \
             of its sight"
        ),
    };
    let help = format!("look back over at least {twice}, better several times that, or shorten the timeout");
    findings.report_as(severity, guard(resolved), message, help);
}

fn half_open_stampede(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    let probes = breaker.settings.probes().get();
    let in_flight = resolved.in_flight.value;
    // The two probes of a kind are few, whatever the limit in flight.
    let stated = resolved.breaker_origin.level != Level::Kind;
    let message = if u64::from(probes) > PROBES_SENSIBLE_MAX {
        format!("{probes} probes at once are a stampede on a dependency that is just getting up")
    } else if stated && probes > in_flight {
        format!(
            "{probes} probes are more than the {in_flight} calls that may be in flight: nothing is held back"
        )
    } else {
        return;
    };
    let help = "let 1 or 2 calls probe; ask for more successes by `close_after`";
    findings.report(guard(resolved), message, help);
}

fn breaker_counts_rejections(book: &Sections, findings: &mut Findings<'_>) {
    for (name, at) in &book.breakers {
        let counts = &at.value.counts;
        if counts.contains(&FailureMatch::Category(Category::Internal)) {
            let message = format!("`{name}` counts `internal`: a fault of our own would open it");
            findings.report_as(Severity::Error, at.span, message, "leave `internal` out of `counts`");
        } else if let Some(kind) = counts.iter().find(|kind| is_rejection(**kind)) {
            let message = format!("`{name}` counts `{kind}`: a few bad messages would open it for everybody");
            let help =
                "leave it out of `counts`, or classify such answers as `transient` if that is what they are";
            findings.report(at.span, message, help);
        }
    }
}

/// Whether such an answer speaks of the message and not of the dependency.
fn is_rejection(kind: FailureMatch) -> bool {
    match kind {
        FailureMatch::Category(category) => match category {
            Category::Permanent | Category::Invalid => true,
            Category::Transient
            | Category::RateLimited
            | Category::Fatal
            | Category::Unknown
            | Category::Internal => false,
        },
        FailureMatch::Status(StatusRange { first, last }) => {
            (first.max(400)..=last.min(499)).any(|status| !matches!(status, 408 | 425 | 429))
        }
    }
}

/// What a dependency answers that is down and still reached.
const OUTAGE: [u16; 4] = [500, 502, 503, 504];

fn breaker_ignores_everything(book: &Sections, findings: &mut Findings<'_>) {
    for (name, at) in &book.breakers {
        let BreakerEntry { settings: _, ignores, counts, from: _ } = &at.value;
        let ignored = |category| ignores.contains(&FailureMatch::Category(category));
        let opens_on_more = counts.iter().any(|kind| may_count(*kind, ignores));
        let help = "ignore single statuses, or write `breaker: none` where none is wanted";
        if opens_on_more {
            continue;
        }
        if !ignored(Category::Transient) || !ignored(Category::Unknown) {
            if OUTAGE.iter().all(|status| {
                !may_count(FailureMatch::Status(StatusRange { first: *status, last: *status }), ignores)
            }) {
                let message = format!(
                    "`{name}` ignores 500, 502, 503 and 504: a dependency that answers those never opens it"
                );
                findings.report_as(Severity::Warning, at.span, message, help);
            }
            continue;
        }
        if ignored(Category::RateLimited) {
            let message = format!("`{name}` ignores every failure that could open it: it never will");
            findings.report(at.span, message, help);
        } else {
            let message = format!("`{name}` opens on `rate-limited` only: no outage ever opens it");
            findings.report_as(Severity::Warning, at.span, message, help);
        }
    }
}

/// Whether something of that kind is left to count: what is ignored is not asked whether it counts.
fn may_count(kind: FailureMatch, ignores: &[FailureMatch]) -> bool {
    match kind {
        FailureMatch::Category(_) => !ignores.contains(&kind),
        FailureMatch::Status(StatusRange { first, last }) => (first..=last).any(|status| {
            let category = usual_category(status);
            category.is_some_and(|category| !ignores.iter().any(|kind| kind.matches(category, Some(status))))
        }),
    }
}

/// How many failures, or calls, it takes at least.
const fn needed(trip: Trip) -> NonZeroU32 {
    match trip {
        Trip::Consecutive(count) | Trip::Failures { count, .. } => count,
        Trip::FailureRate { of_at_least, .. } => of_at_least,
    }
}

fn quorum_of_one(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    if needed(breaker.settings.trip()).get() > 1 {
        return;
    }
    match &resolved.facts.instances {
        None => findings.cannot_tell(guard(resolved), "facts.instances"),
        Some(instances) if instances.value > 1 => {
            let message = format!(
                "one failure of one process opens the breaker for all {} that call `{}`",
                instances.value, resolved.dependency.value
            );
            findings.report(guard(resolved), message, "let it open on 3 to 5 failures");
        }
        Some(_) => {}
    }
}

fn default_breaker_hidden<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let Some(breaker) = &book.defaults.breaker else { return };
    let mut rows = book.rows().peekable();
    if rows.peek().is_none() {
        return;
    }
    let holds = rows.any(|(service, channel, row)| {
        book.resolve(service, channel, row).breaker_origin.level == Level::Defaults
    });
    if !holds {
        let message = "this breaker holds for no row: each kind in the book has a breaker of its own";
        findings.report(breaker.span, message, "name it at the services or dependencies that are meant");
    }
}

fn no_breaker(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    if resolved.rule.breaker.is_some() || matches!(resolved.kind, Kind::Process | Kind::Log) {
        return;
    }
    let Some(policy) = resolved.retry_policy().filter(|policy| policy.backoff.retries() > 0) else { return };
    let message = format!(
        "`{}` is retried by `{}` with no breaker in front of it: retries flood it while it fails",
        resolved.dependency.value, policy.name
    );
    let help = match resolved.kind.breaker() {
        Some(_) => format!("leave `breaker: none` out: kind `{}` has a breaker of its own", resolved.kind),
        None => format!("name one, such as `breaker: externalBreaker`: kind `{}` has none", resolved.kind),
    };
    findings.report(guard(resolved), message, help);
}

fn open_longer_than_hold(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    let (open, hold_max) = (breaker.settings.open(), resolved.hold_max.value);
    if resolved.when_open.value != WhenOpen::Hold || hold_max >= open {
        return;
    }
    let [open, hold_max] = [open, hold_max].map(show_duration);
    let message = format!(
        "deliveries are held for {hold_max} and the breaker stays open for {open}: they are dead before the \
         first probe"
    );
    let help = format!("hold for several times {open}");
    let place = resolved.hold_max.origin.span.unwrap_or_else(|| guard(resolved));
    findings.report(place, message, help);
}

/// A shorter time does not let a dependency recover.
const OPEN_MIN: Duration = Duration::from_secs(1);

fn open_too_short(book: &Sections, findings: &mut Findings<'_>) {
    for (name, at) in &book.breakers {
        let open = at.value.settings.open();
        if open < OPEN_MIN {
            let message =
                format!("`{name}` is open for {}: a failing dependency gets no rest", show_duration(open));
            findings.report(at.span, message, "stay open for 10s or longer");
        }
    }
}

fn reset_forgets_failures(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    let Some(reset) = breaker.settings.reset() else { return };
    let needed = needed(breaker.settings.trip());
    if needed.get() == 1 {
        return;
    }
    let timeouts = &resolved.rule.timeouts;
    let reason = if timeouts.category.counts_against_dependency() && reset <= timeouts.whole.first {
        format!("a call may take {} to fail", show_duration(timeouts.whole.first))
    } else if let Some(delay) = shortest_first_delay(resolved).filter(|delay| *delay >= reset) {
        format!("the first retry comes after {} or more", show_duration(delay))
    } else {
        return;
    };
    match &resolved.facts.rate {
        None => return findings.cannot_tell(guard(resolved), "facts.rate"),
        // However slow each call is, the failures of others come in between.
        Some(rate) if rate.value.as_per_second() * reset.as_secs_f64() >= 1.0 => return,
        Some(_) => {}
    }
    let reset = show_duration(reset);
    let message = format!(
        "the breaker forgets its failures after {reset}, and {reason}: they never add up to {needed}"
    );
    findings.report(guard(resolved), message, "make `reset` several times as long");
}

fn shortest_first_delay(resolved: &Resolved<'_>) -> Option<Duration> {
    let policy = resolved.retry_policy().filter(|policy| policy.backoff.retries() > 0)?;
    Some(policy.backoff.range(0).0)
}

fn dead_letter_when_open(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    if resolved.when_open.value != WhenOpen::DeadLetter || resolved.rule.breaker.is_none() {
        return;
    }
    let may_not_be_lost = resolved.data_loss.as_ref().is_some_and(|at| at.value == DataLoss::NotAcceptable);
    let critical = resolved.criticality.as_ref().is_some_and(|at| at.value == Criticality::Critical);
    let comes_back = resolved.dead_letter.reprocess.value == Reprocess::Automatic;
    if comes_back || !(may_not_be_lost || critical) {
        return;
    }
    let what = if may_not_be_lost { "must not be lost" } else { "are critical" };
    let message = format!("these events {what}, and each becomes a dead letter while the breaker is open");
    let help = "hold them (leave `when_open` out), or let them come back with `reprocess: automatic`";
    findings.report(resolved.place(resolved.when_open.origin), message, help);
}

fn synchronous_probes(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    let probes = u64::from(breaker.settings.probes().get());
    match &resolved.facts.instances {
        // One probe each is as few as there can be.
        _ if probes == 1 => {}
        None => findings.cannot_tell(guard(resolved), "facts.instances"),
        Some(instances) => {
            let at_once = probes.saturating_mul(instances.value);
            if at_once > PROBES_SENSIBLE_MAX {
                let message = format!(
                    "{} processes with {probes} probes each may send {at_once} at once where they share no store",
                    instances.value
                );
                let help = "let 1 call probe and ask for more successes by `close_after`";
                findings.report(guard(resolved), message, help);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::lint::{Checked, check, sharing, throttle};
    use redrive_core::book::connectors::built_in;
    use redrive_core::book::problem::Severity;
    use redrive_core::policy::catalog::{self, Kind};

    /// What this family finds in a book: severity, code and place.
    fn found(checked: &Checked) -> Vec<String> {
        let ours = |code: &str| super::LINTS.iter().any(|lint| lint.code == code);
        let problems = checked.problems.iter().filter(|problem| ours(problem.code));
        problems.map(|p| format!("{} {} {}", p.severity, p.code, p.span.position)).collect()
    }

    fn book(breaker: &str, service: &str) -> String {
        format!(
            "version: 1\n\
             breakers:\n  own: {{ {breaker} }}\n\
             services:\n  a:\n    target: {{ http: \"http://127.0.0.1:9000\" }}\n    events: [x.y]\n    {service}\n"
        )
    }

    #[test]
    fn findings_are_as_grave_as_they_should_be_and_stand_where_the_cause_is() {
        const TRIP: &str = "trip: { consecutive: 5 }, open: 60s";
        #[rustfmt::skip]
        let cases = [
            ("every server error is ignored",       book("trip: { consecutive: 5 }, open: 60s, ignores: [500-599]", "breaker: own"), vec!["warning breaker-ignores-everything 3:3"]),
            ("one of them is",                      book("trip: { consecutive: 5 }, open: 60s, ignores: [503]", "breaker: own"), vec![]),
            ("no rest",                             book("trip: { consecutive: 5 }, open: 999ms", "breaker: own"), vec!["warning open-too-short 3:3"]),
            ("more successes than probes are fine", book("trip: { consecutive: 5 }, open: 60s, probes: 1, close_after: 9", "breaker: own"), vec![]),
            ("an open breaker holds",               book(TRIP, "breaker: own\n    retry: aggressive"), vec![]),
            ("dead letters while it is open",       book(TRIP, "breaker: own\n    retry: aggressive\n    when_open: dead-letter"),
                vec!["warning retry-lands-on-open-breaker 10:16"]),
            ("nobody retries",                      book(TRIP, "breaker: own\n    retry: none\n    when_open: dead-letter"), vec![]),
            ("a policy that outlasts it",           book("trip: { consecutive: 5 }, open: 5s", "breaker: own\n    retry: patient\n    when_open: dead-letter"), vec![]),
            ("many can time out at once",           book("trip: { failures: 5, within: 10s }, open: 60s", "breaker: own\n    timeout: 8s"),
                vec!["warning breaker-window-too-short 8:14"]),
            ("not even all of them together",       book("trip: { failures: 500, within: 10s }, open: 60s", "breaker: own\n    timeout: 8s"),
                vec!["error breaker-window-too-short 8:14"]),
            ("a timeout that does not count",       book("trip: { failures: 5, within: 10s }, open: 60s", "breaker: own\n    timeout: { whole: 8s, as: permanent }"), vec![]),
            ("a row of failures has no window",     book(TRIP, "breaker: own\n    timeout: 10m"), vec![]),
            ("our own fault",                       book("from: externalBreaker, counts: [permanent, internal]", "breaker: own"),
                vec!["error breaker-counts-rejections 3:3"]),
            ("a range with bad requests in it",     book("from: externalBreaker, counts: [400-599]", "breaker: own"),
                vec!["warning breaker-counts-rejections 3:3"]),
            ("what heals and what is too much",     book("from: externalBreaker, counts: [408, 425, 429, 500-599, fatal]", "breaker: own"), vec![]),
            ("opens on 429 only",                   book("from: externalBreaker, ignores: [transient, unknown]", "breaker: own"),
                vec!["warning breaker-ignores-everything 3:3"]),
            ("a status that is ignored by category", book("from: externalBreaker, ignores: [transient, unknown, rate-limited], counts: [503]", "breaker: own"),
                vec!["error breaker-ignores-everything 3:3"]),
            ("all of a range is ignored",           book("from: externalBreaker, ignores: [transient, unknown, rate-limited, 501], counts: [500-599]", "breaker: own"),
                vec!["error breaker-ignores-everything 3:3"]),
            ("a status of a range is left",         book("from: externalBreaker, ignores: [transient, unknown, rate-limited], counts: [500-599]", "breaker: own"), vec![]),
            ("something else opens it",             book("from: externalBreaker, ignores: [transient, unknown, rate-limited], counts: [fatal]", "breaker: own"), vec![]),
            ("one process",                         book("trip: { consecutive: 1 }, open: 60s", "breaker: own\n    facts: { instances: 1 }"), vec![]),
            ("any one call of many processes",      book("trip: { failure_rate: 50%, of_at_least: 1, within: 1m }, open: 60s", "breaker: own\n    facts: { instances: 2 }"),
                vec!["warning quorum-of-one 8:14"]),
            ("nothing is retried",                  book(TRIP, "breaker: none\n    retry: none"), vec![]),
            ("no breaker",                          book(TRIP, "breaker: none"), vec!["warning no-breaker 8:14"]),
            ("open for longer than a day",          book("trip: { consecutive: 5 }, open: 2d", "breaker: own"),
                vec!["warning open-longer-than-hold 8:14"]),
            ("nothing is held",                     book("trip: { consecutive: 5 }, open: 2s", "breaker: own\n    hold_max: 1s\n    when_open: dead-letter\n    retry: none"), vec![]),
            ("a long first delay, little traffic",  book("trip: { consecutive: 5 }, open: 60s, reset: 3s", "breaker: own\n    timeout: 2s\n    retry: upstream\n    facts: { rate: 1/m }"),
                vec!["warning reset-forgets-failures 8:14"]),
            ("a long first delay, much traffic",    book("trip: { consecutive: 5 }, open: 60s, reset: 3s", "breaker: own\n    timeout: 2s\n    retry: upstream\n    facts: { rate: 1/s }"), vec![]),
            ("a slow call, little traffic",         book("trip: { consecutive: 5 }, open: 60s, reset: 10s", "breaker: own\n    timeout: 10s\n    facts: { rate: 1/m }"),
                vec!["warning reset-forgets-failures 8:14"]),
            ("a slow call, much traffic",           book("trip: { consecutive: 5 }, open: 60s, reset: 10s", "breaker: own\n    timeout: 10s\n    facts: { rate: 100/s }"), vec![]),
            ("a critical event",                    book("trip: { consecutive: 5 }, open: 1s", "breaker: own\n    when_open: dead-letter\n    retry: critical\n    criticality: critical"),
                vec!["warning dead-letter-when-open 9:16"]),
            ("its letters come back",               book("trip: { consecutive: 5 }, open: 1s", "breaker: own\n    when_open: dead-letter\n    retry: critical\n    criticality: critical\n    dead_letter: { reprocess: automatic }"), vec![]),
            ("more probes than calls",              "version: 1\ndependencies:\n  d: { kind: webhook, in_flight: 1, breaker: externalBreaker }\nservices:\n  a: { target: { http: \"http://127.0.0.1:9000\" }, depends_on: d, events: [x.y] }\n".to_owned(),
                vec!["warning half-open-stampede 3:46"]),
        ];
        for (name, book, expected) in cases {
            let checked = check(book.as_bytes(), built_in());
            assert!(checked.book.is_some(), "{name}: {:?}", checked.problems);
            assert_eq!(found(&checked), expected, "{name}");
        }
    }

    #[test]
    fn a_lint_without_its_fact_cannot_tell() {
        #[rustfmt::skip]
        let cases = [
            ("quorum-of-one",          "facts.instances", book("trip: { consecutive: 1 }, open: 60s", "breaker: own")),
            ("synchronous-probes",     "facts.instances", book("trip: { consecutive: 5 }, open: 60s, probes: 2", "breaker: own")),
            ("reset-forgets-failures", "facts.rate",      book("trip: { consecutive: 5 }, open: 60s, reset: 10s", "breaker: own\n    timeout: 10s")),
            ("reset-forgets-failures", "facts.rate",      book("trip: { consecutive: 5 }, open: 60s, reset: 3s", "breaker: own\n    retry: upstream\n    timeout: 2s")),
        ];
        for (lint, fact, book) in cases {
            let checked = check(book.as_bytes(), built_in());
            let untold = checked.untold.iter().any(|untold| (untold.lint, untold.fact) == (lint, fact));
            assert!(untold, "{lint}: {:?}", checked.untold);
            assert!(found(&checked).is_empty(), "{lint}");
        }
    }

    #[test]
    fn the_catalog_by_itself_gives_no_reason_to_warn() {
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Sqs) {
            for policy in catalog::policies() {
                let book = format!(
                    "version: 1\ndependencies:\n  d: {{ kind: {kind} }}\n\
                     services:\n  a: {{ target: {{ http: \"http://127.0.0.1:9000\" }}, depends_on: d, \
                     events: [x.y], retry: {} }}\n",
                    policy.name
                );
                let checked = check(book.as_bytes(), built_in());
                let codes: Vec<_> = checked
                    .problems
                    .iter()
                    .filter(|p| p.severity != Severity::Info)
                    .map(|p| p.code)
                    .collect();
                let families = [super::LINTS, sharing::LINTS, throttle::LINTS];
                let ours = families.into_iter().flatten().map(|lint| lint.code);
                let ours: Vec<_> = ours.filter(|code| codes.contains(code)).collect();
                assert!(ours.is_empty(), "{kind} with {}: {ours:?}", policy.name);
            }
        }
    }
}
