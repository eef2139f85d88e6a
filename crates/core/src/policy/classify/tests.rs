//! The decision tree row by row, the book's own rows, and that every answer has a meaning.

use proptest::prelude::*;

use super::*;
use crate::policy::answer::AnswerHeaders;
use crate::policy::rule::{HeaderMatch, StatusRange};

fn answer(what: AnswerKind<'_>) -> TargetAnswer<'_> {
    TargetAnswer { what, message: "it said no", retry_after: None }
}

fn http(status: u16) -> AnswerKind<'static> {
    AnswerKind::Http { status, headers: &(), body: "" }
}

fn with_headers(status: u16, headers: &dyn AnswerHeaders) -> AnswerKind<'_> {
    AnswerKind::Http { status, headers, body: "" }
}

fn failure(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        Outcome::Delivered { .. } => panic!("it was delivered"),
    }
}

fn meaning(what: AnswerKind<'_>) -> Option<(Category, String)> {
    match classify(&answer(what), &[], Category::Transient) {
        Outcome::Delivered { matched } => {
            assert_eq!(matched, None);
            None
        }
        Outcome::Failed(failure) => Some((failure.category, failure.code.to_string())),
    }
}

#[test]
fn every_status_has_its_category() {
    use Category::{Fatal, Permanent, RateLimited, Transient, Unknown};
    let soon: [_; 1] = [("Retry-After", "120")];
    let none_left = [("X-RateLimit-Remaining", "0")];
    let some_left = [("x-ratelimit-remaining", "10")];
    #[rustfmt::skip]
    let cases = [
        ("success",                       http(200), None),
        ("the last success",              http(299), None),
        ("an answer to no request",       http(100), Some((Unknown, codes::UNEXPECTED_STATUS))),
        ("no status at all",              http(0),   Some((Unknown, codes::UNEXPECTED_STATUS))),
        ("beyond HTTP",                   http(600), Some((Unknown, codes::UNEXPECTED_STATUS))),
        ("moved",                         http(301), Some((Permanent, codes::REDIRECTED))),
        ("bad request",                   http(400), Some((Permanent, codes::BAD_REQUEST))),
        ("bad credentials",               http(401), Some((Fatal, codes::UNAUTHORIZED))),
        ("forbidden",                     http(403), Some((Fatal, codes::FORBIDDEN))),
        ("forbidden for now",             with_headers(403, &soon), Some((RateLimited, codes::RATE_LIMITED))),
        ("forbidden, none left",          with_headers(403, &none_left), Some((RateLimited, codes::RATE_LIMITED))),
        ("forbidden, some left",          with_headers(403, &some_left), Some((Fatal, codes::FORBIDDEN))),
        ("not found",                     http(404), Some((Permanent, codes::NOT_FOUND))),
        ("their timeout",                 http(408), Some((Transient, codes::REQUEST_TIMEOUT))),
        ("conflict",                      http(409), Some((Permanent, codes::CONFLICT))),
        ("gone",                          http(410), Some((Permanent, codes::GONE))),
        ("too large",                     http(413), Some((Permanent, codes::PAYLOAD_TOO_LARGE))),
        ("a teapot",                      http(418), Some((Permanent, codes::CLIENT_ERROR))),
        ("unprocessable",                 http(422), Some((Permanent, codes::UNPROCESSABLE))),
        ("too early",                     http(425), Some((Transient, codes::TOO_EARLY))),
        ("too many",                      http(429), Some((RateLimited, codes::RATE_LIMITED))),
        ("overloaded",                    http(529), Some((RateLimited, codes::RATE_LIMITED))),
        ("their fault",                   http(500), Some((Unknown, codes::SERVER_ERROR))),
        ("not implemented",               http(501), Some((Permanent, codes::NOT_IMPLEMENTED))),
        ("bad gateway",                   http(502), Some((Transient, codes::BAD_GATEWAY))),
        ("unavailable",                   http(503), Some((Transient, codes::SERVICE_UNAVAILABLE))),
        ("gateway timeout",               http(504), Some((Transient, codes::GATEWAY_TIMEOUT))),
        ("another 5xx",                   http(507), Some((Unknown, codes::SERVER_ERROR))),
    ];
    for (name, what, expected) in cases {
        assert_eq!(meaning(what), expected.map(|(category, code)| (category, code.to_owned())), "{name}");
    }
}

#[test]
fn everything_else_has_its_category_too() {
    use Category::{Fatal, Internal, Invalid, Permanent, RateLimited, Transient, Unknown};
    let reported = |code| AnswerKind::Reported { code };
    #[rustfmt::skip]
    let cases = [
        ("no answer",            AnswerKind::Transport(TransportError::Timeout(CallPart::Whole)), Transient, codes::NETWORK_TIMEOUT),
        ("no listener",          AnswerKind::Transport(TransportError::Refused),     Transient, codes::CONNECTION_REFUSED),
        ("broken off",           AnswerKind::Transport(TransportError::Reset),       Transient, codes::CONNECTION_RESET),
        ("hung up",              AnswerKind::Transport(TransportError::ClosedEarly), Transient, codes::CONNECTION_RESET),
        ("no such name",         AnswerKind::Transport(TransportError::Dns),         Transient, codes::DNS_FAILURE),
        ("bad handshake",        AnswerKind::Transport(TransportError::Tls),         Transient, codes::TLS_FAILURE),
        ("no way there",         AnswerKind::Transport(TransportError::Unreachable), Transient, codes::NETWORK_UNREACHABLE),
        ("no leave to call",     AnswerKind::Transport(TransportError::AddressRefused), Fatal,  codes::ADDRESS_REFUSED),
        ("gibberish",            AnswerKind::Transport(TransportError::Protocol),    Unknown,   codes::PROTOCOL_ERROR),
        ("a crash",              AnswerKind::Process(Exit::Code(1)),                 Unknown,   codes::PROCESS_CRASHED),
        ("a negative status",    AnswerKind::Process(Exit::Code(-1)),                Unknown,   codes::PROCESS_CRASHED),
        ("a signal",             AnswerKind::Process(Exit::Signal(9)),               Unknown,   codes::PROCESS_KILLED),
        ("no memory",            AnswerKind::Process(Exit::OutOfMemory),             Unknown,   codes::OUT_OF_MEMORY),
        ("its own report",       AnswerKind::Process(Exit::ReportedError),           Unknown,   codes::PROCESS_ERROR),
        ("never started",        AnswerKind::Process(Exit::SpawnFailed),             Permanent, codes::SPAWN_FAILED),
        ("no runtime",           AnswerKind::Process(Exit::RuntimeUnavailable),      Transient, codes::RUNTIME_UNAVAILABLE),
        ("an election",          AnswerKind::Broker(BrokerError::LeaderElection),    Transient, codes::LEADER_ELECTION),
        ("no broker",            AnswerKind::Broker(BrokerError::Unavailable),       Transient, codes::BROKER_UNAVAILABLE),
        ("a slow broker",        AnswerKind::Broker(BrokerError::TimedOut),          Transient, codes::NETWORK_TIMEOUT),
        ("a quota",              AnswerKind::Broker(BrokerError::QuotaExceeded),     RateLimited, codes::QUOTA_EXCEEDED),
        ("a throttled store",    AnswerKind::Broker(BrokerError::StoreThrottled),    Transient, codes::STORE_THROTTLED),
        ("no such queue",        AnswerKind::Broker(BrokerError::QueueNotFound),     Fatal,     codes::QUEUE_NOT_FOUND),
        ("not ours",             AnswerKind::Broker(BrokerError::Unauthorized),      Fatal,     codes::UNAUTHORIZED),
        ("too large",            AnswerKind::Broker(BrokerError::MessageTooLarge),   Permanent, codes::MESSAGE_TOO_LARGE),
        ("not wanted",           AnswerKind::Broker(BrokerError::Refused),           Permanent, codes::MESSAGE_REFUSED),
        ("another complaint",    AnswerKind::Broker(BrokerError::Other),             Unknown,   codes::UNKNOWN_ERROR),
        ("does not parse",       AnswerKind::Malformed(MalformedEvent::DoesNotParse),     Invalid,   codes::DESERIALIZATION_FAILED),
        ("violates its schema",  AnswerKind::Malformed(MalformedEvent::ViolatesSchema),   Invalid,   codes::SCHEMA_VIOLATION),
        ("a bad signature",      AnswerKind::SignatureInvalid,                       Permanent, codes::SIGNATURE_INVALID),
        ("no configuration",     AnswerKind::ConfigMissing,                          Fatal,     codes::CONFIG_MISSING),
        ("no secret",            AnswerKind::SecretUnavailable,                      Transient, codes::SECRET_UNAVAILABLE),
        ("our own fault",        AnswerKind::Internal,                               Internal,  codes::INTERNAL_ERROR),
        ("a relay's timeout",    reported("RELAY_TIMEOUT"),                    Transient, "RELAY_TIMEOUT"),
        ("no relay",             reported("DHT_UNAVAILABLE"),                  Transient, "DHT_UNAVAILABLE"),
        ("for the moment",       reported("TEMPORARY_FAILURE"),                Transient, "TEMPORARY_FAILURE"),
        ("a relay's limit",      reported("RATE_LIMITED"),                     RateLimited, "RATE_LIMITED"),
        ("a bad key",            reported("INVALID_PUBLIC_KEY"),               Permanent, "INVALID_PUBLIC_KEY"),
        ("a bad identifier",     reported("INVALID_NIP05"),                    Permanent, "INVALID_NIP05"),
        ("no record",            reported("RECORD_NOT_FOUND"),                 Permanent, "RECORD_NOT_FOUND"),
        ("a bad answer",         reported("MALFORMED_RESPONSE"),               Permanent, "MALFORMED_RESPONSE"),
        ("an unknown error",     reported("UNKNOWN_ERROR"),                    Unknown,   "UNKNOWN_ERROR"),
        ("a reported 502",       reported("BAD_GATEWAY"),                      Transient, "BAD_GATEWAY"),
        ("a reported 410",       reported("GONE"),                             Permanent, "GONE"),
        ("a reported crash",     reported("PROCESS_CRASHED"),                  Unknown,   "PROCESS_CRASHED"),
        ("a reported size",      reported("MESSAGE_TOO_LARGE"),                Permanent, "MESSAGE_TOO_LARGE"),
        ("somebody's own fault", reported("INTERNAL_ERROR"),                   Unknown,   "INTERNAL_ERROR"),
        ("a delivery's end",     reported("MAX_RETRIES_EXCEEDED"),             Unknown,   "MAX_RETRIES_EXCEEDED"),
        ("a code of its own",    reported("FULL_MOON"),                        Unknown,   "FULL_MOON"),
    ];
    for (name, what, category, code) in cases {
        assert_eq!(meaning(what), Some((category, code.to_owned())), "{name}");
    }
    assert_eq!(meaning(AnswerKind::Process(Exit::Code(0))), None, "exit 0 is a success");
    assert_eq!(meaning(AnswerKind::Taken), None, "what a broker took is delivered");
}

/// The names of all constants in `category::codes`, from its source: a list of them could be forgotten.
fn all_codes() -> Vec<&'static str> {
    let source = include_str!("../category.rs");
    let names = source.lines().filter_map(|line| line.trim().strip_prefix("pub const "));
    names.filter_map(|line| line.split_once(": &str = ")).map(|(name, _)| name).collect()
}

#[test]
fn every_code_means_the_same_whoever_says_it() {
    let about_deliveries = [
        codes::CONNECTION_FAILING,
        codes::INTERRUPTED,
        codes::CIRCUIT_BREAKER_OPEN,
        codes::MAX_RETRIES_EXCEEDED,
        codes::RETRY_WINDOW_EXCEEDED,
        codes::DEADLINE_EXCEEDED,
        codes::RETRY_BUDGET_SPENT,
        codes::HOLD_EXPIRED,
        codes::BACKLOG_FULL,
        codes::SESSION_FULL,
        codes::RULE_REMOVED,
        codes::SERVICE_REMOVED,
        codes::DAMAGED,
    ];
    let all = all_codes();
    assert!(all.len() > 40 && all.contains(&codes::GONE), "{all:?}");
    for code in all {
        let is_known = KNOWN.iter().filter(|known| known.code == code).count();
        assert_eq!(is_known, usize::from(!about_deliveries.contains(&code)), "{code}");
    }
    let statuses = (0..=600).filter(|status| !(200..300).contains(status)).map(http);
    for what in statuses {
        let (category, code) = meaning(what).expect("no success");
        let reported = meaning(AnswerKind::Reported { code: &code });
        assert_eq!(reported, Some((category, code.clone())), "{what:?}");
    }
}

#[test]
fn a_rule_says_what_a_timeout_is() {
    let said = |what| failure(classify(&answer(what), &[], Category::Unknown)).category;
    assert_eq!(said(AnswerKind::Transport(TransportError::Timeout(CallPart::Headers))), Category::Unknown);
    assert_eq!(said(AnswerKind::Broker(BrokerError::TimedOut)), Category::Unknown);
    assert_eq!(said(AnswerKind::Reported { code: "RELAY_TIMEOUT" }), Category::Unknown);
    assert_eq!(said(AnswerKind::Process(Exit::TimeLimit)), Category::Unknown);
    assert_eq!(said(AnswerKind::Reported { code: codes::TIME_LIMIT_EXCEEDED }), Category::Unknown);
    assert_eq!(said(http(504)), Category::Transient, "their timeout is not ours");
}

#[test]
fn connections_that_fail_are_told_from_answers_that_do_not_please() {
    let link = |what| failure(classify(&answer(what), &[], Category::Transient)).connection;
    for error in [
        TransportError::Refused,
        TransportError::Reset,
        TransportError::Dns,
        TransportError::Tls,
        TransportError::Unreachable,
        TransportError::Timeout(CallPart::Connect),
        TransportError::Timeout(CallPart::Tls),
    ] {
        assert_eq!(link(AnswerKind::Transport(error)), ConnectionStatus::Failed, "{error:?}");
    }
    for what in
        [http(503), AnswerKind::Transport(TransportError::Timeout(CallPart::Whole)), AnswerKind::Internal]
    {
        assert_eq!(link(what), ConnectionStatus::Made, "{what:?}");
    }
    assert_eq!(link(AnswerKind::SecretUnavailable), ConnectionStatus::NotTried);
}

fn row(line: u32, when: Matcher, meaning: OverrideMeaning) -> Override {
    Override { when: when.into(), meaning, code: None, because: None, position: Position { line, column: 3 } }
}

fn statuses(first: u16, last: u16) -> Matcher {
    Matcher { statuses: vec![StatusRange { first, last }], ..Matcher::default() }
}

fn pattern(text: &str) -> Matcher {
    Matcher { message: Some(regex::Regex::new(text).expect("a pattern")), ..Matcher::default() }
}

fn header(name: &str, value: Option<&str>) -> Matcher {
    let header = HeaderMatch { name: name.to_owned(), value: value.map(str::to_owned) };
    Matcher { header: Some(header), ..Matcher::default() }
}

fn code(code: &'static str) -> Matcher {
    Matcher { code: Some(FailureCode::of(code)), ..Matcher::default() }
}

#[test]
fn the_first_row_that_fits_wins() {
    use Category::{Permanent, Transient};
    let transient = OverrideMeaning::Failure(Transient);
    let permanent = OverrideMeaning::Failure(Permanent);
    let both = |status, text| Matcher { message: pattern(text).message, ..statuses(status, status) };
    let book = [
        row(1, both(409, "already there"), OverrideMeaning::Delivered),
        row(2, statuses(409, 409), transient),
        row(3, header("x-lock", Some("held")), transient),
        row(4, header("x-broken", None), permanent),
        row(5, code(codes::UNKNOWN_ERROR), transient),
        row(6, pattern("(?i)deadlock"), transient),
        row(7, statuses(202, 204), permanent),
        row(8, statuses(500, 599), permanent),
    ];
    let lock = [("X-Lock", " held ")];
    let free = [("X-Lock", "free")];
    let broken = [("x-broken", "")];
    let in_body = |status, body| AnswerKind::Http { status, headers: &(), body };
    #[rustfmt::skip]
    let cases = [
        ("status and body fit",                 in_body(409, "{\"e\":\"already there\"}"), Some(1), None),
        ("the next row takes what is left",     http(409),                 Some(2), Some(Transient)),
        ("a header with its value",             with_headers(400, &lock),  Some(3), Some(Transient)),
        ("another value does not fit",          with_headers(400, &free),  None,    Some(Permanent)),
        ("a header of any value",               with_headers(503, &broken), Some(4), Some(Permanent)),
        ("a code",                              AnswerKind::Reported { code: "UNKNOWN_ERROR" }, Some(5), Some(Transient)),
        ("a pattern in the body",               in_body(400, "DEADLOCK found"), Some(6), Some(Transient)),
        ("a range that names a success",        http(202),                 Some(7), Some(Permanent)),
        ("a pattern leaves a success alone",    in_body(200, "deadlock"),  None,    None),
        ("a header leaves a success alone",     with_headers(200, &broken), None,   None),
        ("a range",                             http(503),                 Some(8), Some(Permanent)),
        ("a status row needs a status",         AnswerKind::Transport(TransportError::Refused), None, Some(Transient)),
    ];
    for (name, what, line, expected) in cases {
        let (matched, category) = match classify(&answer(what), &book, Transient) {
            Outcome::Delivered { matched } => (matched, None),
            Outcome::Failed(failure) => (failure.matched, Some(failure.category)),
        };
        assert_eq!((matched.map(|at| at.line), category), (line, expected), "{name}");
    }
}

#[test]
fn a_row_keeps_what_it_replaced_and_may_name_a_code() {
    let renamed = Override {
        code: Some(FailureCode::of("LOCKED")),
        ..row(4, statuses(200, 423), OverrideMeaning::Failure(Category::Transient))
    };
    let classified = |status| {
        failure(classify(&answer(http(status)), std::slice::from_ref(&renamed), Category::Transient))
    };
    let locked = classified(423);
    assert_eq!((locked.code.as_str(), locked.default_category), ("LOCKED", Some(Category::Permanent)));
    assert_eq!(classified(200).default_category, None, "it would have been a success");
}

#[test]
fn only_some_may_ask_us_to_wait() {
    let minute = Duration::from_mins(1);
    #[rustfmt::skip]
    let cases = [
        ("429",                  http(429), minute,        Some(minute)),
        ("503",                  http(503), minute,        Some(minute)),
        ("529",                  http(529), minute,        Some(minute)),
        ("403 that asks",        http(403), minute,        Some(minute)),
        ("a broker's quota",     AnswerKind::Broker(BrokerError::QuotaExceeded), minute, Some(minute)),
        ("500 may not",          http(500), minute,        None),
        ("404 may not",          http(404), minute,        None),
        ("not for ever",         http(429), Duration::MAX, Some(limits::RETRY_AFTER_MAX)),
    ];
    for (name, what, asked, expected) in cases {
        let answer = TargetAnswer { what, message: "", retry_after: Some(asked) };
        let failed = failure(classify(&answer, &[], Category::Transient));
        assert_eq!(failed.retry_after, expected, "{name}");
    }
    let asking = TargetAnswer { what: http(500), message: "", retry_after: Some(minute) };
    let book = [row(1, statuses(500, 500), OverrideMeaning::Failure(Category::RateLimited))];
    assert_eq!(failure(classify(&asking, &book, Category::Transient)).retry_after, Some(minute));
}

#[test]
fn only_the_beginning_of_a_message_is_looked_at() {
    let long = "é".repeat(limits::MESSAGE_BYTES_MAX) + "deadlock";
    let odd = format!("x{long}");
    let book = [row(1, pattern("deadlock"), OverrideMeaning::Delivered)];
    for message in [&long, &odd] {
        let answer = TargetAnswer { message, ..answer(http(400)) };
        let failed = failure(classify(&answer, &book, Category::Transient));
        assert!(failed.message.len() <= limits::MESSAGE_BYTES_MAX);
        assert!(failed.message.len() >= limits::MESSAGE_BYTES_MAX - 1);
    }
}

fn any_category() -> impl Strategy<Value = Category> {
    prop::sample::select(Category::ALL.to_vec())
}

fn any_row() -> impl Strategy<Value = Override> {
    let matcher = (
        prop::collection::vec((any::<u16>(), any::<u16>()), 0..3),
        prop::option::of("[A-Z_]{1,12}"),
        prop::option::of(("[a-z-]{1,8}", prop::option::of(".{0,8}"))),
        prop::option::of(prop::sample::select(vec!["", ".", "^$", "deadlock", "(?i)É"])),
    );
    let meaning =
        prop_oneof![any_category().prop_map(OverrideMeaning::Failure), Just(OverrideMeaning::Delivered)];
    (matcher, meaning).prop_map(|((ranges, code, header, message), meaning)| {
        let when = Matcher {
            statuses: ranges.into_iter().map(|(first, last)| StatusRange { first, last }).collect(),
            code: code.map(|code| FailureCode::reported(&code)),
            header: header.map(|(name, value)| HeaderMatch { name, value }),
            message: message.map(|text| regex::Regex::new(text).expect("a pattern")),
        };
        row(1, when, meaning)
    })
}

proptest! {
    #[test]
    fn every_answer_has_a_meaning(
        status in any::<u16>(),
        (name, value) in ("[a-zA-Z-]{1,8}", ".{0,8}"),
        (body, message, code) in (".{0,80}", ".{0,80}", ".{0,20}"),
        (exit, asked) in (any::<i32>(), prop::option::of(any::<u64>().prop_map(Duration::from_secs))),
        timeout_category in any_category(),
        book in prop::collection::vec(any_row(), 0..4),
    ) {
        let headers = [(name.as_str(), value.as_str())];
        let whats = [
            AnswerKind::Http { status, headers: &headers, body: &body },
            AnswerKind::Transport(TransportError::Timeout(CallPart::Whole)),
            AnswerKind::Process(Exit::Code(exit)),
            AnswerKind::Process(Exit::Signal(exit)),
            AnswerKind::Reported { code: &code },
        ];
        for what in whats {
            let answer = TargetAnswer { what, message: &message, retry_after: asked };
            match classify(&answer, &book, timeout_category) {
                Outcome::Delivered { matched } => {
                    let success = matches!(what, AnswerKind::Http { status: 200..=299, .. } | AnswerKind::Process(Exit::Code(0)));
                    prop_assert!(success || matched.is_some());
                }
                Outcome::Failed(failure) => {
                    prop_assert!(failure.retry_after <= Some(limits::RETRY_AFTER_MAX));
                    prop_assert!(failure.matched.is_some() || failure.default_category == Some(failure.category));
                }
            }
        }
    }
}
