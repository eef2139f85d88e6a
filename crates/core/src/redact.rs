//! Removes secrets and personal data from texts before they are logged.
//!
//! The texts come from outside: answers of targets, addresses. Detection goes by appearance, and in doubt hides
//! too much: `token: expired` loses its last word. What helps to find a cause stays: words, names, event types,
//! UUIDs, receipts, statuses, times.
//!
//! Invariants: linear in the length of the text; redacting twice equals redacting once; a text with nothing to
//! hide is returned uncopied.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Replaces a credential.
pub const SECRET: &str = "[secret]";
/// Replaces a mail address.
pub const EMAIL: &str = "[email]";
/// Replaces a card, account or telephone number.
pub const NUMBER: &str = "[number]";

/// Shorter known secrets would match within plain words.
const KNOWN_BYTES_MIN: usize = 4;
/// Minimum length of a random-looking word of letters and digits.
const RANDOM_BYTES_MIN: usize = 20;
/// Minimum length of a random-looking hexadecimal word; receipts and fingerprints have 16 digits.
const HEX_BYTES_MIN: usize = 24;
/// Minimum digits of a random word; a name with a version has fewer.
const RANDOM_DIGITS_MIN: usize = 2;
/// A random word changes between lower case, capitals and digits at least once per this many characters.
const RANDOM_CHANGE_EVERY: usize = 4;
/// Digits of a payment card number.
const CARD_DIGITS: std::ops::RangeInclusive<usize> = 13..=19;

/// The text without secrets and personal data.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    apply(&GUESSES[..], apply(&LOOKS[..], Cow::Borrowed(text)))
}

/// An id may look random, which alone reveals nothing.
#[must_use]
pub fn redact_id(text: &str) -> Cow<'_, str> {
    apply(&LOOKS[..], Cow::Borrowed(text))
}

/// Removes secrets known by value, whatever they look like.
#[must_use]
pub fn hide_known<'a, 'b>(text: &'a str, known: impl IntoIterator<Item = &'b str>) -> Cow<'a, str> {
    let mut hidden = Cow::Borrowed(text);
    for secret in known {
        if secret.len() >= KNOWN_BYTES_MIN && hidden.contains(secret) {
            hidden = Cow::Owned(hidden.replace(secret, SECRET));
        }
    }
    hidden
}

fn apply<'a>(rules: &[RedactionRule], text: Cow<'a, str>) -> Cow<'a, str> {
    rules.iter().fold(text, |text, rule| match rule.apply(&text) {
        Some(hidden) => Cow::Owned(hidden),
        None => text,
    })
}

/// A pattern of a secret and its replacement.
struct RedactionRule {
    looks: Regex,
    hide: fn(&Captures<'_>) -> Option<String>,
}

impl RedactionRule {
    fn new(looks: &str, hide: fn(&Captures<'_>) -> Option<String>) -> Self {
        Self { looks: Regex::new(looks).expect("a pattern of our own, which is tested"), hide }
    }

    /// `None` if there is nothing to hide.
    fn apply(&self, text: &str) -> Option<String> {
        let (mut hidden, mut rest_at) = (String::new(), 0);
        for found in self.looks.captures_iter(text) {
            let (Some(whole), Some(mark)) = (found.get(0), (self.hide)(&found)) else { continue };
            hidden.push_str(&text[rest_at..whole.start()]);
            hidden.push_str(&mark);
            rest_at = whole.end();
        }
        (rest_at > 0).then(|| hidden + &text[rest_at..])
    }
}

/// Names of secret values, also within longer names: `X-Api-Key`, `db_password`.
const NAMES: &str = "pass(?:word|wd|phrase|wort)|pwd|secret|token|api[_-]?key|(?:access|private|signing|encryption|shared|account)[_-]?key|credential|signature|authorization|cookie|session[_-]?(?:id|key)|jwt|otp|cvv|cvc|ssn|iban|e-?mail|phone|user[_-]?(?:id|name)|customer[_-]?id";

/// Secrets recognised by their name or prefix.
static LOOKS: LazyLock<[RedactionRule; 8]> = LazyLock::new(|| {
    // Between a name and its value, including JSON within JSON.
    let between = r#"(?:\\?["'])?\s*(?::=|=>|=|:|%3[Aa]|%3[Dd])\s*"#;
    // A truncated text lacks its closing quote.
    let value =
        r#"\[secret\]|\\"(?:[^"\\]|\\[^"])*(?:\\")?|"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,;&"'<>(){}\[\]]+"#;
    [
        RedactionRule::new(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
            |_| Some(SECRET.to_owned()),
        ),
        // The rest of the line or text belongs to such a header.
        RedactionRule::new(
            &format!(
                r#"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|www-authenticate)({between})(?:\\?["'])?[^\r\n"'{{}}\[\]\\]+"#
            ),
            |found| Some(format!("{}{}{SECRET}", &found[1], &found[2])),
        ),
        RedactionRule::new(r#"\b([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"'<>@]*(?:@[^\s/?#"'<>@]*)*@"#, |found| {
            Some(format!("{}{SECRET}@", &found[1]))
        }),
        RedactionRule::new(r"\beyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){1,4}", |_| Some(SECRET.to_owned())),
        RedactionRule::new(r"(?i)\b(bearer|basic|negotiate|digest)(\s+)([A-Za-z0-9._~+/=-]+)", |found| {
            (!is_plain(&found[3])).then(|| format!("{}{}{SECRET}", &found[1], &found[2]))
        }),
        RedactionRule::new(&format!(r"(?i)([\w.-]*(?:{NAMES})[\w.-]*)({between})(?:{value})"), |found| {
            Some(format!("{}{}{SECRET}", &found[1], &found[2]))
        }),
        RedactionRule::new(r"(?i)[\w.+'-]*[\w+](?:@|%40|\\u0040|&#64;)[\w.-]*\w", |_| Some(EMAIL.to_owned())),
        RedactionRule::new(
            r"\b(?:(?:sk|pk|rk)_(?:live|test|[0-9a-f]{8})_|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|whsec_|AKIA|ASIA|AIza|npm_|hf_|SG\.)[A-Za-z0-9+/=_.-]{8,}",
            |_| Some(SECRET.to_owned()),
        ),
    ]
});

/// Guesses by appearance.
static GUESSES: LazyLock<[RedactionRule; 3]> = LazyLock::new(|| {
    [
        RedactionRule::new(r"[A-Za-z0-9+/_=-]{20,}", |found| hide_random(&found[0])),
        RedactionRule::new(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b", |_| {
            Some(NUMBER.to_owned())
        }),
        RedactionRule::new(r"(?:\+|\b)\d(?:[ ()/.-]{0,2}\d){7,22}\b", |found| hide_digits(&found[0])),
    ]
});

/// Whether a plain word follows the scheme's name: `bearer token`, `basic authentication`.
fn is_plain(word: &str) -> bool {
    let word = word.trim_end_matches(['.', '-']);
    let is_about = |beginning| word.to_ascii_lowercase().starts_with(beginning);
    word.bytes().all(|byte| byte.is_ascii_alphabetic())
        && (["auth", "token", "credential", "realm", "is", "was", "and", "or", "not", "in"]
            .into_iter()
            .any(is_about)
            && word.len() <= "authentication".len())
}

/// Hides a random-looking word; parts of a path or dashed name are only judged one by one if the whole looks
/// like words.
fn hide_random(run: &str) -> Option<String> {
    (!is_uuid(run) && is_random(run)).then(|| SECRET.to_owned())
}

fn is_uuid(word: &str) -> bool {
    let lengths =
        word.split('-').map(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(part.len()));
    lengths.eq([8, 4, 4, 4, 12].map(Some))
}

fn is_random(run: &str) -> bool {
    let is_hex =
        |part: &str| part.len() >= HEX_BYTES_MIN && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Such a word may end a path or follow a name.
    if run.split(['/', '_', '-', '=', '+']).any(is_hex) {
        return true;
    }
    let kinds: Vec<RedactionKind> = run.bytes().filter_map(RedactionKind::of).collect();
    let digits = kinds.iter().filter(|kind| **kind == RedactionKind::Digit).count();
    // A capital begins a word, as in `placeOrder`.
    let is_change = |pair: &&[RedactionKind]| {
        pair[0] != pair[1] && **pair != [RedactionKind::Capital, RedactionKind::Small]
    };
    let changes = kinds.windows(2).filter(is_change).count();
    kinds.len() >= RANDOM_BYTES_MIN
        && digits >= RANDOM_DIGITS_MIN
        && changes * RANDOM_CHANGE_EVERY >= kinds.len()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RedactionKind {
    Small,
    Capital,
    Digit,
}

impl RedactionKind {
    const fn of(byte: u8) -> Option<Self> {
        match byte {
            b'a'..=b'z' => Some(Self::Small),
            b'A'..=b'Z' => Some(Self::Capital),
            b'0'..=b'9' => Some(Self::Digit),
            _ => None,
        }
    }
}

/// A card number has a check digit, a telephone number a plus.
fn hide_digits(run: &str) -> Option<String> {
    let digits: Vec<u32> = run.chars().filter_map(|character| character.to_digit(10)).collect();
    let is_telephone = run.starts_with('+');
    let is_card =
        CARD_DIGITS.contains(&digits.len()) && !run.contains(['/', '.', '(']) && checks_out(&digits);
    (is_telephone || is_card).then(|| NUMBER.to_owned())
}

/// The Luhn check, which one number in ten passes by chance.
fn checks_out(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| if place % 2 == 0 { *digit } else { digit * 2 / 10 + digit * 2 % 10 })
        .sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| *digit != 0)
}

#[cfg(test)]
mod tests;
