//! Masks secrets in addresses: credentials, query values, fragments, and path segments that may be secret.
//!
//! The address of a webhook is a credential, so its path is a secret. That applies to receivers, ntfy topics
//! and the hosts of well-known services. For any other address, path segments are shown only if they are plain
//! words, as in `/v1/orders`.
//!
//! Invariants: each byte is replaced by a star, so that positions stay the same; masking twice equals masking
//! once; in doubt, mask.

use std::borrow::Cow;
use std::ops::Range;

use crate::book::RuleBook;
use crate::book::connectors::{AddressUse, Connectors, Edge};
use crate::book::problem::Problems;
use crate::book::yaml::{self, YamlNode, YamlValue};

/// Hosts, with subdomains, whose addresses are secret as a whole.
const WEBHOOK_HOSTS: [&str; 18] = [
    "azure.com",
    "discord.com",
    "discordapp.com",
    "googleapis.com",
    "ifttt.com",
    "make.com",
    "ntfy.sh",
    "office.com",
    "office365.com",
    "opsgenie.com",
    "pagerduty.com",
    "pipedream.net",
    "slack.com",
    "splunk.com",
    "telegram.org",
    "twilio.com",
    "webhook.site",
    "zapier.com",
];
/// After the scheme; JSON may escape the slashes.
const SEPARATORS: [&str; 2] = ["://", ":\\/\\/"];
/// Longest path segment that counts as a plain word.
const WORD_BYTES_MAX: usize = 24;
/// Digits and capitals allowed in a plain word, as in `v1` or `placeOrder`.
const WORD_ODD_MAX: usize = 2;

/// Without knowledge of a rule book.
#[must_use]
pub fn mask_addresses(text: &str) -> Cow<'_, str> {
    mask(text, MaskedPath::ByWords)
}

/// Known secret addresses of one rule book, to mask them in any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMask {
    /// Secret addresses, and how they are shown.
    known: Vec<(String, String)>,
}

impl AddressMask {
    #[must_use]
    pub fn of(book: &RuleBook) -> Self {
        let sections = book.sections();
        let receivers = sections.receivers.values().map(|at| &at.value.endpoint);
        let endpoints = receivers.chain(sections.targets().map(|target| &target.endpoint));
        let secret = endpoints.filter(|endpoint| endpoint.connector.address == AddressUse::Secret);
        Self::knowing(secret.flat_map(|endpoint| &endpoint.profile.addresses).map(String::as_str))
    }

    /// For a book that may be invalid: uses the receivers that can be read.
    #[must_use]
    pub fn of_text(text: &str, connectors: &Connectors) -> Self {
        let root = yaml::read(text, &mut Problems::default());
        let receivers = root.as_ref().and_then(|root| root.get("receivers"));
        let receivers = receivers.into_iter().flat_map(YamlNode::entries).map(|(_, receiver)| receiver);
        let secret = |receiver| {
            let kinds = connectors.of(Edge::Receiver).filter(|kind| kind.address == AddressUse::Secret);
            kinds.filter_map(move |kind| YamlNode::get(receiver, kind.key())?.text())
        };
        Self::knowing(receivers.flat_map(secret))
    }

    fn knowing<'a>(addresses: impl Iterator<Item = &'a str>) -> Self {
        let masked = |address: &str| (address.to_owned(), mask(address, MaskedPath::Whole).into_owned());
        let mut known: Vec<(String, String)> = addresses.map(masked).collect();
        // One may be a prefix of another.
        known.sort_unstable_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
        known.dedup();
        Self { known }
    }

    #[must_use]
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut hidden = Cow::Borrowed(text);
        for (address, masked) in &self.known {
            if hidden.contains(address.as_str()) {
                hidden = Cow::Owned(hidden.replace(address, masked));
            }
        }
        match mask_addresses(&hidden) {
            Cow::Borrowed(_) => hidden,
            Cow::Owned(masked) => Cow::Owned(masked),
        }
    }

    /// A value that hides an address behind escapes or line breaks is masked as a whole.
    #[must_use]
    pub fn hide_in_book(&self, text: &str) -> String {
        let mut hidden = text.to_owned();
        let mut spans = Vec::new();
        if let Some(root) = yaml::read(text, &mut Problems::default()) {
            self.find_disguised(text, &root, &mut spans);
        }
        for span in spans {
            let masked =
                stars(&text[span.clone()], |c| c.is_whitespace() || matches!(c, '"' | '\'' | '|' | '>'));
            hidden.replace_range(span, &masked);
        }
        match self.hide(&hidden) {
            Cow::Borrowed(_) => hidden,
            Cow::Owned(masked) => masked,
        }
    }

    /// Spans of values with secrets whose source text differs from their value.
    fn find_disguised(&self, book: &str, node: &YamlNode, spans: &mut Vec<Range<usize>>) {
        match &node.value {
            YamlValue::Scalar { text, .. } => {
                let place = |byte: u32| usize::try_from(byte).unwrap_or(usize::MAX);
                let span = place(node.span.start)..place(node.span.end);
                let is_disguised = book.get(span.clone()).is_some_and(|raw| !raw.contains(&**text));
                if is_disguised && self.hide(text) != **text {
                    spans.push(span);
                }
            }
            YamlValue::Map(entries) => {
                for (key, value) in entries {
                    self.find_disguised(book, key, spans);
                    self.find_disguised(book, value, spans);
                }
            }
            YamlValue::List(items) => items.iter().for_each(|item| self.find_disguised(book, item, spans)),
            YamlValue::Null | YamlValue::Refused => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MaskedPath {
    ByWords,
    Whole,
}

fn mask(text: &str, path: MaskedPath) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    let mut end = 0;
    for (colon, _) in text.match_indices(':') {
        let after = SEPARATORS.into_iter().find(|separator| text[colon..].starts_with(separator));
        // A nested address is masked with the outer one.
        let Some(start) = after.map(|separator| colon + separator.len()).filter(|_| colon >= end) else {
            continue;
        };
        end = end_of(text, colon, start);
        let masked = masked(&text[start..end], path);
        if masked != text[start..end] {
            shown.to_mut().replace_range(start..end, &masked);
        }
    }
    shown
}

/// The end of the address whose scheme ends at `colon`.
fn end_of(text: &str, colon: usize, start: usize) -> usize {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-');
    let quote = text[..colon].trim_end_matches(is_scheme).chars().next_back();
    let is_end = |c: char| {
        c.is_whitespace()
            || c.is_control()
            || match quote {
                Some(quote @ ('"' | '\'' | '`')) => c == quote,
                Some(_) | None => matches!(c, '"' | '`' | '<' | '>'),
            }
    };
    let rest = &text[start..];
    let address = &rest[..rest.find(is_end).unwrap_or(rest.len())];
    start + address.trim_end_matches([',', ';', '.', ')', ']', '}']).len()
}

fn masked(address: &str, path: MaskedPath) -> String {
    let is_slash = |c: char| matches!(c, '/' | '\\');
    let authority_end = address.find(|c| is_slash(c) || matches!(c, '?' | '#')).unwrap_or(address.len());
    let (authority, rest) = address.split_at(authority_end);
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let path_end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (segments, rest) = rest.split_at(path_end);
    let (query, fragment) = rest.split_at(rest.find('#').unwrap_or(rest.len()));

    let mut shown = user.map_or_else(String::new, |user| stars(user, |c| c == ':') + "@");
    shown += host;
    let mut path = if is_webhook_host(host) { MaskedPath::Whole } else { path };
    for segment in segments.split_inclusive(is_slash) {
        let word = segment.trim_end_matches(is_slash);
        if path == MaskedPath::ByWords && is_word(word) {
            shown += segment;
        } else {
            shown += &stars(segment, is_slash);
        }
        // The rest is a credential, or a nested address.
        let lower = word.to_ascii_lowercase();
        if lower.starts_with("hook") || lower.starts_with("webhook") || word.ends_with(':') {
            path = MaskedPath::Whole;
        }
    }
    for part in query.split_inclusive(['?', '&', ';']) {
        let (name, value) = part.split_once('=').map_or(("", part), |(name, value)| (name, value));
        if part.contains('=') {
            let is_address = SEPARATORS.into_iter().any(|separator| name.contains(separator));
            shown += &if is_address { stars(name, |_| false) } else { name.to_owned() };
            shown.push('=');
        }
        shown += &stars(value, |c| matches!(c, '?' | '&' | ';'));
    }
    shown + &stars(fragment, |c| c == '#')
}

/// One star per byte, except for characters that stay.
fn stars(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if stays(c) {
            shown.push(c);
        } else {
            shown.extend(std::iter::repeat_n('*', c.len_utf8()));
        }
    }
    shown
}

fn is_word(segment: &str) -> bool {
    let count = |is: fn(&u8) -> bool| segment.bytes().filter(is).count();
    segment.len() <= WORD_BYTES_MAX
        && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && count(u8::is_ascii_digit) <= WORD_ODD_MAX
        && count(u8::is_ascii_uppercase) <= WORD_ODD_MAX
}

fn is_webhook_host(host: &str) -> bool {
    let name = host.split(':').next().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let is_under =
        |known: &&str| name.strip_suffix(*known).is_some_and(|sub| sub.is_empty() || sub.ends_with('.'));
    WEBHOOK_HOSTS.iter().any(is_under)
}

#[cfg(test)]
mod tests {
    use crate::book::connectors::built_in;
    use proptest::prelude::*;

    use super::*;
    use crate::book;

    proptest! {
        #[test]
        fn masking_twice_equals_masking_once(parts in prop::collection::vec(prop::sample::select(vec![
            "http://", "https:\\/\\/", "a.test", "slack.com", "/", "\\/", "?", "u=", "=", "&", ";", "#", "word", "hooks",
            "webhookX1Y2Z3", "s3cr3t0", "@", ":", "\"", "'", "`", " ", ",", ")", ".", "<", "*", "é",
        ]), 0..24)) {
            let text = parts.concat();
            let once = mask_addresses(&text).into_owned();
            prop_assert_eq!(once.len(), text.len());
            prop_assert_eq!(mask_addresses(&once), once.as_str());
        }
    }

    #[test]
    fn addresses_are_shown_without_what_is_secret() {
        #[rustfmt::skip]
        let cases = [
            ("http://billing:8080/v1/orders",                 "http://billing:8080/v1/orders"),
            ("http://a.test/x?token=abc&mode=&raw",           "http://a.test/x?token=***&mode=&***"),
            ("http://a.test/x?a=b=c#frag",                    "http://a.test/x?a=***#****"),
            ("https://ann:pw@a.test/x",                       "https://***:**@a.test/x"),
            ("https://t0k3n@a.test",                          "https://*****@a.test"),
            ("https://hooks.slack.com/services/T0/B0/xy",     "https://hooks.slack.com/********/**/**/**"),
            ("https://a.test/hooks/orders",                   "https://a.test/hooks/******"),
            ("https://a.test/c/9f86d081884c7d65/in",          "https://a.test/c/****************/in"),
            ("https://a.test/placeOrder/s3",                  "https://a.test/placeOrder/s3"),
            ("{ http: \"http://a.test/?k=v\", x: 1 }",        "{ http: \"http://a.test/?k=*\", x: 1 }"),
            ("{http: http://a.test/?k=v}",                    "{http: http://a.test/?k=*}"),
            ("at http://a.test/?k=v'w, now",                  "at http://a.test/?k=***, now"),
            (r#""http:\/\/a.test\/x1y2z3\/?k=v""#,            r#""http:\/\/a.test\/******\/?k=*""#),
            ("http://a.test/é",                               "http://a.test/**"),
            ("two: http://a/?b=c http://d/?e=f",              "two: http://a/?b=* http://d/?e=*"),
            ("http://a/?u=http://b.test/word?k=v",            "http://a/?u=******************?k=*"),
            ("http://a/?u=http:\\/\\/b.test\\/word",          "http://a/?u=*********************"),
            ("http://a/?http://b.test/word=v",                "http://a/?******************=*"),
            ("http://a/https://ntfy.sh/topic",                "http://a/******//*******/*****"),
            ("http://a/x,http://b.test/topic?k=v http://c/d", "http://a/*******//******/*****?k=* http://c/d"),
            ("no address: 12:30 // x",                        "no address: 12:30 // x"),
        ];
        for (text, expected) in cases {
            let shown = mask_addresses(text);
            assert_eq!((&*shown, shown.len()), (expected, text.len()), "{text}");
            assert_eq!(mask_addresses(&shown), shown, "once more: {text}");
        }
    }

    #[test]
    fn a_book_is_shown_without_the_secrets_of_its_addresses_however_they_are_written() {
        let text = r#"version: 1
services:
  a: { target: { http: "http://127.0.0.1:9/a?key=hunter2" }, events: [a.a] }
  b: { target: { http: "http:\u002f/127.0.0.1:9/?key=hunter2" }, events: [b.b] }
  c:
    target:
      http: "http://127.0.0.1:9/\
        ?key=hunter2"
    events: [c.c]
receivers:
  ops: { slack: "http://127.0.0.1:9/hunter2/in" } # once https://hunter2@a.test
  pager: { webhook: 'http://127.0.0.1:9/hunter2' }
  topic: { ntfy: "http://127.0.0.1:9/h\x75nter2" }
alerts: [{ when: "dead_letters > 0", severity: high, to: [ops, pager, topic] }]
"#;
        let reading = book::read(text, built_in());
        let book = reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems));
        let shown = AddressMask::of(&book).hide_in_book(text);
        assert_eq!(
            AddressMask::of_text(text, built_in()).hide_in_book(text),
            shown,
            "also if the book is wrong elsewhere"
        );
        assert!(!shown.contains("hunter2") && !shown.contains("nter2"), "{shown}");
        assert_eq!(shown.lines().count(), text.lines().count());
        assert!(shown.contains("http://127.0.0.1:9/a?key=*******\""), "{shown}");
        assert!(shown.contains("slack: \"http://127.0.0.1:9/*******/**\""), "{shown}");
    }
}
