//! `redrive try`: runs a delivery through given answers and explains each decision, without a server.

mod condition;
mod request;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use redrive_core::book::RuleBook;
use redrive_core::book::connectors::CallProtocol;
use redrive_core::book::problem::Position;
use redrive_core::book::problem::suggest;
use redrive_core::book::resolve::{Resolved, ValueOrigin};
use redrive_core::engine::attempt_record::{HoldReason, RecordedRetry};
use redrive_core::ids::Seed;
use redrive_core::limits;
use redrive_core::policy::breaker::{BreakerPhase, BreakerState, Observation, Transition, Trip};
use redrive_core::policy::decide::{
    AlertKind, Decision, HoldCause, RetryNumbers, Ruling, Verdict, VerdictBasis,
};
use redrive_core::policy::rule::{PolicyIndex, Reaction};
use redrive_core::text::{counted, show_duration};
use redrive_core::time::Timestamp;
use redrive_lab::rehearse::{
    AttemptKind, Rehearsal, RehearsalEnd, RehearsalStep, RehearsedAttempt, parse_script, rehearse,
};

use self::condition::ConditionResult;
use crate::cli::CommandRefusal;
use crate::deliveries::attempt_text::{self, field, spent};
use crate::rules::command;
use crate::rules::file::open_book;
use crate::terminal::moment::show_wait;
use crate::terminal::{name_of, print, style};

/// Runs a delivery through answers that you name and explains each decision; needs no server.
#[derive(Debug, Args)]
#[command(after_help = "\
Answers, separated by commas:
  200, 404, 503 …    an HTTP status             '503*4'      four times, quoted against the shell
  429:60             with Retry-After: 60       500=quota    with a message
  timeout, refused, reset, dns, tls             the connection's own failures
  crash, oom         a process that fails       invalid      a response that does not parse
  DHT_UNAVAILABLE    a code of your own         ok           accepted

Examples:
  redrive try sms.wanted --data '{\"to\": \"+4912345\"}'
  redrive try todo.reminder.fired --rules examples/rulebooks/notifications.yaml --answers 503,429:60,timeout,200
  redrive try orders.placed --rules redrive.yaml --service billing --answers '503*9'")]
pub(crate) struct TryArgs {
    /// The event's type
    pub(crate) event_type: String,
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// Only this service and its channels, or only service/channel
    #[arg(long)]
    pub(crate) service: Option<String>,
    /// The event's data as JSON: shows the request that an HTTP target gets
    #[arg(long, value_name = "JSON", conflicts_with = "event")]
    pub(crate) data: Option<String>,
    /// A file with the event as CloudEvents JSON: shows the request that an HTTP target gets
    #[arg(long, value_name = "FILE")]
    pub(crate) event: Option<PathBuf>,
    /// The answers of the target, in order
    #[arg(long, default_value = "200")]
    pub(crate) answers: String,
    /// Random seed of the jitter; the same seed gives the same delays
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

pub(crate) fn run(args: &TryArgs) -> anyhow::Result<()> {
    let script = parse_script(&args.answers)?;
    let trial_event = request::event(args)?;
    let book = open_book(&args.rules)?;
    let takers: Vec<_> = book
        .subscribers(&args.event_type)
        .into_iter()
        .filter(|taker| args.service.as_ref().is_none_or(|wanted| is_selected(taker, wanted)))
        .collect();
    if takers.is_empty() {
        return Err(CommandRefusal(no_row_matches(&book, args)).into());
    }
    if let Some(violation) = condition::violation(&book, &trial_event) {
        return print(&format!("{} is {violation}\n", style::bold(&args.event_type)));
    }
    for (index, taker) in takers.iter().enumerate() {
        let rehearsal = rehearse(&taker.rule, attempt_kind(taker), &script, Seed(args.seed));
        let story = TrialRun { taker, file: &args.rules, answers: script.len() };
        let gap = if index > 0 { "\n" } else { "" };
        let head = story.head(&args.event_type);
        let shown = match condition::result(taker, &trial_event) {
            ConditionResult::NotDelivered(line) => head + &line,
            ConditionResult::Delivered(line) => {
                let request = request::shown(taker, &trial_event);
                head + &line + &story.render(&rehearsal, &request)
            }
        };
        print(&format!("{gap}{shown}"))?;
    }
    Ok(())
}

fn attempt_kind(taker: &Resolved<'_>) -> AttemptKind {
    match taker.target.endpoint.connector.speech {
        CallProtocol::Process => AttemptKind::Process,
        CallProtocol::Http | CallProtocol::HttpApi | CallProtocol::Broker => AttemptKind::Call,
    }
}

/// A service's name includes its channels.
fn is_selected(taker: &Resolved<'_>, wanted: &str) -> bool {
    taker.service.name.as_str() == wanted || name_of(taker) == wanted
}

fn no_row_matches(book: &RuleBook, args: &TryArgs) -> String {
    let event = &args.event_type;
    if let Some(service) = &args.service {
        if !command::is_known(book, service) {
            let file = args.rules.display();
            return format!("there is no service `{service}` in {file}: {}", command::advise(book, service));
        }
        return format!(
            "`{service}` does not subscribe to `{event}`; leave out --service to see which services do"
        );
    }
    let types = book.sections().rows().map(|(_, _, row)| row.pattern.value.as_str()).collect::<Vec<_>>();
    format!("no service subscribes to `{event}`, so it would be unrouted; {}", suggest(event, types))
}

struct TrialRun<'a> {
    taker: &'a Resolved<'a>,
    file: &'a Path,
    answers: usize,
}

impl TrialRun<'_> {
    fn head(&self, event_type: &str) -> String {
        let row = &self.taker.row.pattern;
        let (event, taker) = (style::bold(event_type), style::bold(name_of(self.taker)));
        let line = self.line(Some(row.span.position));
        format!("{event} → {taker}  {}\n", style::dim(format!("row `{}`, {line}", row.value)))
    }

    fn render(&self, rehearsal: &Rehearsal, request: &str) -> String {
        let mut out = request.to_owned();
        let mut failures = 0;
        for step in &rehearsal.steps {
            match step {
                RehearsalStep::Attempt(tried) => {
                    self.attempt(&mut out, tried);
                    self.forgotten(&mut out, tried, &mut failures);
                }
                RehearsalStep::Held { at, decision } => self.held(&mut out, *at, decision),
            }
        }
        let _ = writeln!(out, "\n{}", self.end(&rehearsal.end, rehearsal));
        match self.answers.saturating_sub(attempts(rehearsal)) {
            0 => {}
            1 => out.push_str("(1 answer left over)\n"),
            more => {
                let _ = writeln!(out, "({more} answers left over)");
            }
        }
        out
    }

    fn attempt(&self, out: &mut String, tried: &RehearsedAttempt) {
        let asked = tried.answer.retry_after().map(retry_after);
        let _ = writeln!(
            out,
            "\n{}  at {}  {}{}",
            style::bold(format!("attempt {}", tried.attempt.get())),
            clock(tried.started_at),
            tried.answer.shown(),
            asked.unwrap_or_default(),
        );
        let took = tried.ended_at.since(tried.started_at);
        if !took.is_zero() {
            field(
                out,
                "took",
                &format!(
                    "{}, the whole timeout ({})",
                    show_duration(took),
                    self.origin(self.taker.timeouts.whole.origin)
                ),
            );
        }
        if let VerdictBasis::Failed(ruling) = &tried.decision.why {
            let code = tried.code.as_ref().map(|code| format!(" {}", style::dim(code))).unwrap_or_default();
            field(
                out,
                "category",
                &format!(
                    "{}{code}  {}",
                    attempt_text::category(ruling.category),
                    style::dim(self.reason(ruling))
                ),
            );
            field(out, "rule", &self.reaction(ruling, tried.answer.status()));
        } else if let VerdictBasis::Delivered { matched: Some(position) } = tried.decision.why {
            field(out, "category", &format!("no failure by {}", self.line(Some(position))));
        }
        if let Some(state) = tried.breaker {
            field(out, "breaker", &self.breaker(state, tried));
        }
        self.verdict(out, &tried.decision, tried.ended_at);
    }

    /// Explains a failure count that fell without a success: the breaker's `reset` passed.
    fn forgotten(&self, out: &mut String, tried: &RehearsedAttempt, failures: &mut u32) {
        let before = *failures;
        *failures = match tried.breaker {
            Some(BreakerState::Closed { failures }) => failures,
            Some(BreakerState::Open { .. } | BreakerState::HalfOpen { .. }) | None => 0,
        };
        let reset = self.taker.rule.breaker.as_ref().and_then(|breaker| breaker.settings.reset());
        let has_failed = matches!(tried.decision.observation, Observation::Failure(_));
        if let Some(reset) = reset.filter(|_| has_failed && *failures > 0 && *failures <= before) {
            let text = format!(
                "the breaker forgot {}: no failure for its `reset` of {}",
                counted(u64::from(before), "failure"),
                show_duration(reset)
            );
            field(out, "", &style::dim(text));
        }
    }

    fn held(&self, out: &mut String, at: Timestamp, decision: &Decision) {
        let _ = writeln!(out, "\n{}  at {}  no attempt is made", style::bold("held"), clock(at));
        if let VerdictBasis::Held(holding) = decision.why {
            let cause = match holding.cause {
                HoldCause::BreakerOpen => HoldReason::Breaker,
                HoldCause::AskedToWait => HoldReason::RetryAfter,
            };
            field(out, "because", attempt_text::held_because(cause));
            field(out, "held", &format!("{} of `hold_max`", spent(holding.held.into())));
        }
        self.verdict(out, decision, at);
    }

    fn reason(&self, ruling: &Ruling) -> String {
        if let Some(failing_for) = ruling.connection_failing_for {
            return format!("(the connection has failed for {}: `fatal_after`)", show_duration(failing_for));
        }
        match ruling.matched {
            Some(position) => {
                let row = self.taker.rule.classify.iter().find(|row| row.position == position);
                let because = row.and_then(|row| row.because.as_deref());
                let because = because.map(|text| format!(", because {text}")).unwrap_or_default();
                format!("(`classify`, {}{because})", self.line(Some(position)))
            }
            None => "(default classification)".to_owned(),
        }
    }

    fn reaction(&self, ruling: &Ruling, status: Option<u16>) -> String {
        let stated = self.line(ruling.reaction.position);
        let ranges = self.taker.rule.reactions.by_status();
        let range = status.and_then(|status| ranges.iter().find(|(range, _)| range.contains(status)));
        let on = match range {
            Some((range, _)) if range.first == range.last => range.first.to_string(),
            Some((range, _)) => format!("{}-{}", range.first, range.last),
            None => ruling.category.to_string(),
        };
        let policy = |index: PolicyIndex| {
            style::bold(&self.taker.rule.reactions.policies()[usize::from(index.0)].name)
        };
        let follows = match ruling.reaction.value {
            Reaction::Retry(index) => format!("retry by {}", policy(index)),
            Reaction::RetryCautiously(index) => {
                format!("retry by {}, a few times only", policy(index))
            }
            Reaction::DeadLetter => "dead-letter at once".to_owned(),
            Reaction::Pause => "pause the service".to_owned(),
        };
        format!("on {on}: {follows}  {}", style::dim(format!("({stated})")))
    }

    fn breaker(&self, state: BreakerState, tried: &RehearsedAttempt) -> String {
        let Some(breaker) = &self.taker.rule.breaker else { return String::new() };
        let trip = match breaker.settings.trip() {
            Trip::Consecutive(count) => format!("of {count} in a row"),
            Trip::Failures { count, within } => format!("of {count} within {}", show_duration(within)),
            Trip::FailureRate { share, of_at_least, within } => {
                format!("so far; opens at {share} of at least {of_at_least} within {}", show_duration(within))
            }
        };
        let name = breaker
            .name
            .as_ref()
            .map_or_else(|| format!("the {} kind's", self.taker.kind), |name| format!("`{name}`"));
        let now = match state {
            BreakerState::Closed { failures: 0 } => style::good("closed"),
            BreakerState::Closed { failures } => format!("{}, {failures} {trip}", style::good("closed")),
            BreakerState::Open { until } => {
                format!("{} until {}: no calls", style::error("open"), clock(until))
            }
            BreakerState::HalfOpen { successes, .. } => {
                let wanted = breaker.settings.close_after();
                format!("{}, {successes} of {wanted} successes", style::warning("half-open"))
            }
        };
        let opened = match tried.transition {
            Some(Transition { from: BreakerPhase::HalfOpen, to: BreakerPhase::Open, .. }) => {
                "  ← opened again by a failed probe".to_owned()
            }
            Some(Transition { to: BreakerPhase::Open, failures, .. }) => {
                format!("  ← opened on failure {failures}")
            }
            Some(Transition { to: BreakerPhase::Closed | BreakerPhase::HalfOpen, .. }) | None => {
                String::new()
            }
        };
        format!("{now}{opened}  {}", style::dim(format!("({name})")))
    }

    fn verdict(&self, out: &mut String, decision: &Decision, now: Timestamp) {
        let weighed = numbers_of(decision).map(|numbers| RecordedRetry::of(numbers, &self.taker.rule));
        let text = match decision.verdict {
            Verdict::Deliver => style::good("delivered"),
            Verdict::Retry { due_at } => {
                let numbers = numbers_of(decision).map(|numbers| self.wait(numbers)).unwrap_or_default();
                let wait = style::bold(format!("retry in {}", show_wait(due_at.since(now))));
                format!("{wait}, at {}  {numbers}", clock(due_at))
            }
            Verdict::Hold { until } => format!("held until {}", clock(until)),
            Verdict::DeadLetter { reason, tier } => {
                let because =
                    attempt_text::death_because(reason, weighed.as_ref(), Some(self.taker.rule.when_open));
                attempt_text::death(&because, tier, reason.code())
            }
            Verdict::Pause => attempt_text::paused(),
        };
        field(out, "verdict", &text);
        if let Some(until) = decision.hold_dependency_until {
            let dependency = &self.taker.dependency.value;
            let text =
                format!("all deliveries to `{dependency}` wait until {} without using retries", clock(until));
            field(out, "", &text);
        }
        if matches!(decision.verdict, Verdict::Retry { .. })
            && let Some(text) = weighed.as_ref().and_then(attempt_text::asked_for_it)
        {
            field(out, "", &text);
        }
        if let Some(alert) = decision.alert {
            let what = match alert {
                AlertKind::Security => "security: credentials rejected",
                AlertKind::Configuration => "configuration error",
                AlertKind::Exhausted => "retries exhausted (`alert` of the policy)",
                AlertKind::Internal => "internal error of Redrive",
            };
            field(out, "alert", &style::error(what));
        }
    }

    fn wait(&self, numbers: &RetryNumbers) -> String {
        let policy = &self.taker.rule.reactions.policies()[usize::from(numbers.policy.0)];
        let n = numbers.by_policy.number - 1;
        let (min, max) = policy.backoff.range(n);
        let range =
            if min == max { show_wait(min) } else { format!("{} to {}", show_wait(min), show_wait(max)) };
        let weighed = RecordedRetry::of(numbers, &self.taker.rule);
        let mut parts = attempt_text::tallies(&weighed);
        if numbers.is_held() {
            parts.push(format!("backoff alone {}", show_wait(numbers.backoff())));
        } else {
            parts.push(format!("backoff {range}, jitter {}", policy.backoff.jitter()));
        }
        parts.extend(attempt_text::window_part(&weighed));
        style::dim(format!("({})", parts.join("; ")))
    }

    fn end(&self, end: &RehearsalEnd, rehearsal: &Rehearsal) -> String {
        let attempts = attempts(rehearsal) as u64;
        match end {
            RehearsalEnd::Settled { at, verdict: Verdict::Deliver } => {
                attempt_text::delivered(attempts, &clock(*at))
            }
            RehearsalEnd::Settled { at, verdict: Verdict::Pause } => {
                let tries = counted(attempts, "attempt");
                format!("{} paused after {tries} and {}", style::warning("!"), clock(*at))
            }
            RehearsalEnd::Settled { at, .. } => {
                let name = self.taker.dead_letter.name.as_deref().unwrap_or("its dead-letter queue");
                attempt_text::dead(attempts, &clock(*at), name)
            }
            RehearsalEnd::Waiting { due_at } => {
                let next = clock(*due_at);
                let what = format!("the next starts at {next}. Add --answers to continue.");
                attempt_text::waiting(attempts, &what)
            }
        }
    }

    fn line(&self, position: Option<Position>) -> String {
        match position {
            Some(position) => format!("{}:{}", self.file.display(), position.line),
            None => "built in".to_owned(),
        }
    }

    fn origin(&self, origin: ValueOrigin) -> String {
        self.line(origin.position())
    }
}

fn attempts(rehearsal: &Rehearsal) -> usize {
    rehearsal.steps.iter().filter(|step| matches!(step, RehearsalStep::Attempt(_))).count()
}

fn retry_after(wait: Duration) -> String {
    let cut = if wait > limits::RETRY_AFTER_MAX {
        format!(", cut to {}", show_duration(limits::RETRY_AFTER_MAX))
    } else {
        String::new()
    };
    format!(", Retry-After: {}{cut}", wait.as_secs())
}

fn numbers_of(decision: &Decision) -> Option<&RetryNumbers> {
    match &decision.why {
        VerdictBasis::Failed(ruling) => ruling.retry.as_ref(),
        VerdictBasis::Delivered { .. } | VerdictBasis::Held(_) | VerdictBasis::Interrupted => None,
    }
}

fn clock(at: Timestamp) -> String {
    show_wait(at.since(Timestamp::EPOCH))
}
