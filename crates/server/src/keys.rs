//! API keys: format, creation, and what is stored.
//!
//! `rk_1a2b3c4d_` and 43 characters: a public id and 32 random bytes.
//!
//! Invariant: only the owner has the key. Its SHA-256 is stored; the key is long and random, so a slower hash
//! would add nothing.

pub(crate) mod command;
pub(crate) mod handlers;
mod json;
mod text;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redrive_core::access::{AccessScope, InvalidScope, Role};
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;
use redrive_node::store::access_store::KeyRecord;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};

pub(crate) const PREFIX: &str = "rk_";

const ID_BYTES: usize = 4;

const SECRET_BYTES: usize = 32;

/// The prefix and eight digits.
const ID_LENGTH: usize = PREFIX.len() + 2 * ID_BYTES;

/// 32 bytes take 43 characters.
const KEY_LENGTH: usize = ID_LENGTH + 1 + 43;

const NAME_BYTES_MAX: usize = 100;

/// Per kind: sources, services.
const SCOPE_NAMES_MAX: usize = 100;

const SCOPE_NAME_BYTES_MAX: usize = 500;

/// `None` if the text cannot be a key.
pub(crate) fn id_of(text: &str) -> Option<&str> {
    let (id, rest) = text.split_at_checked(ID_LENGTH)?;
    let digits = id.strip_prefix(PREFIX)?;
    let is_id = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_id && rest.starts_with('_') && text.len() == KEY_LENGTH).then_some(id)
}

pub(crate) fn hash_of(text: &str) -> [u8; 32] {
    digest(&SHA256, text.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// In constant time.
pub(crate) fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |unlike, (one, other)| unlike | (one ^ other)) == 0
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeySpec {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) scope: AccessScope,
    /// `None`: the rule book's rate.
    pub(crate) rate: Option<Rate>,
    /// `None`: no expiry.
    pub(crate) lives: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyCreationError {
    #[error("name must have 1 to {NAME_BYTES_MAX} printable bytes")]
    Name,
    #[error("a key may be bound to at most {SCOPE_NAMES_MAX} sources and {SCOPE_NAMES_MAX} services")]
    TooManyNames,
    #[error("invalid source or service name {0:?}")]
    ScopeName(String),
    #[error(transparent)]
    Unfit(#[from] InvalidScope),
    #[error("key lifetime must be greater than zero")]
    Dead,
    #[error("no random numbers available from the system")]
    NoRandom,
}

/// The end of a sentence about its role.
pub(crate) const FIRST_IS_ADMIN: &str =
    "must be `admin` for the first key: it turns on authentication, and only an admin can create more keys";

/// Shown when the last admin key is gone.
pub(crate) const NO_ADMIN_LEFT: &str = "no valid admin key is left: stop the server, and create one with `redrive keys create NAME --role admin --data DIR`";

/// A warning, if no admin key is left.
pub(crate) fn note_on_end<'a>(
    ended: &KeyRecord,
    mut known: impl Iterator<Item = &'a KeyRecord>,
    now: Timestamp,
) -> Option<&'static str> {
    let is_left = known.any(|key| key.id != ended.id && key.role == Role::Admin && is_good(key, now));
    (ended.role == Role::Admin && !is_left).then_some(NO_ADMIN_LEFT)
}

pub(crate) fn is_good(record: &KeyRecord, now: Timestamp) -> bool {
    record.revoked_at.is_none() && record.expires_at.is_none_or(|at| now < at)
}

/// From an id or a whole key: a pasted key must not be repeated anywhere.
pub(crate) fn id_within(text: &str) -> &str {
    match text.split_at_checked(ID_LENGTH) {
        Some((id, rest)) if id.starts_with(PREFIX) && rest.starts_with('_') => id,
        Some(_) | None => text,
    }
}

pub(crate) struct CreatedKey {
    /// Shown to its owner once.
    pub(crate) text: String,
    pub(crate) record: KeyRecord,
}

pub(crate) fn make(
    spec: KeySpec,
    taken: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Result<CreatedKey, KeyCreationError> {
    check(&spec)?;
    let KeySpec { name, role, scope, rate, lives } = spec;
    let id = loop {
        let digits = random::<ID_BYTES>()?;
        let id = format!("{PREFIX}{:0width$x}", u32::from_be_bytes(digits), width = 2 * ID_BYTES);
        if !taken(&id) {
            break id;
        }
    };
    let text = format!("{id}_{}", URL_SAFE_NO_PAD.encode(random::<SECRET_BYTES>()?));
    assert_eq!(id_of(&text), Some(id.as_str()), "what is made here is known here");
    let record = KeyRecord {
        id,
        name,
        hash: hash_of(&text),
        role,
        scope,
        per_second: rate.map(Rate::as_per_second),
        created_at: now,
        expires_at: lives.map(|lives| now + lives),
        revoked_at: None,
    };
    Ok(CreatedKey { text, record })
}

fn check(spec: &KeySpec) -> Result<(), KeyCreationError> {
    let KeySpec { name, role, scope, rate: _, lives } = spec;
    let is_plain = |text: &str| !text.chars().any(char::is_control);
    if name.trim().is_empty() || name.len() > NAME_BYTES_MAX || !is_plain(name) {
        return Err(KeyCreationError::Name);
    }
    let AccessScope { sources, services } = scope;
    if sources.len() > SCOPE_NAMES_MAX || services.len() > SCOPE_NAMES_MAX {
        return Err(KeyCreationError::TooManyNames);
    }
    let is_name = |text: &str| !text.is_empty() && text.len() <= SCOPE_NAME_BYTES_MAX && is_plain(text);
    if let Some(wrong) = sources.iter().chain(services).find(|name| !is_name(name)) {
        return Err(KeyCreationError::ScopeName(wrong.clone()));
    }
    scope.check(*role)?;
    if lives.is_some_and(|lives| lives.is_zero()) {
        return Err(KeyCreationError::Dead);
    }
    Ok(())
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], KeyCreationError> {
    let mut bytes = [0; LENGTH];
    SystemRandom::new().fill(&mut bytes).map_err(|_| KeyCreationError::NoRandom)?;
    Ok(bytes)
}

/// For logs: `key rk_1a2b3c4d (deploy)`.
pub(crate) fn owner(record: &KeyRecord) -> String {
    format!("key {} ({})", record.id, record.name)
}

/// For the audit log.
pub(crate) fn describe(record: &KeyRecord) -> String {
    let KeyRecord { id, name, role, scope, .. } = record;
    let mut text = format!("{id} ({name}), {}", role.as_str());
    for (what, names) in [("source", &scope.sources), ("service", &scope.services)] {
        for name in names {
            text.push_str(&format!(", {what} {name}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> KeySpec {
        KeySpec {
            name: "deploy".to_owned(),
            role: Role::Operator,
            scope: AccessScope::default(),
            rate: None,
            lives: None,
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_millis(1_000)
    }

    #[test]
    fn a_key_that_is_pasted_whole_is_called_by_its_name() {
        let whole = format!("rk_1a2b3c4d_{}", "A".repeat(43));
        #[rustfmt::skip]
        let cases = [
            (whole.as_str(),      "rk_1a2b3c4d"),
            (&whole[..30],        "rk_1a2b3c4d"),
            ("rk_1a2b3c4d",       "rk_1a2b3c4d"),
            ("nonsense",          "nonsense"),
        ];
        for (text, expected) in cases {
            assert_eq!(id_within(text), expected, "{text}");
        }
    }

    #[test]
    fn the_end_of_the_last_admin_is_told() {
        let key = |role, lives| {
            let spec =
                KeySpec { name: "k".to_owned(), role, scope: AccessScope::default(), rate: None, lives };
            make(spec, |_| false, Timestamp::EPOCH).expect("a key").record
        };
        let now = Timestamp::EPOCH + Duration::from_secs(10);
        let (admin, other, viewer) =
            (key(Role::Admin, None), key(Role::Admin, None), key(Role::Viewer, None));
        let over = key(Role::Admin, Some(Duration::from_secs(1)));
        #[rustfmt::skip]
        let cases = [
            ("another is left",        &admin,  vec![&admin, &other],          false),
            ("none is left",           &admin,  vec![&admin, &viewer],         true),
            ("one that has expired",   &admin,  vec![&admin, &over],           true),
            ("it made no keys",        &viewer, vec![&admin, &viewer],         false),
        ];
        for (name, ended, known, expected) in cases {
            assert_eq!(note_on_end(ended, known.into_iter(), now).is_some(), expected, "{name}");
        }
    }

    #[test]
    fn a_key_is_known_again_and_no_two_are_the_same() {
        let one = make(spec(), |_| false, now()).expect("a key");
        let other = make(spec(), |_| false, now()).expect("a key");
        assert_eq!(id_of(&one.text), Some(one.record.id.as_str()));
        assert!(is_same(&hash_of(&one.text), &one.record.hash));
        assert!(!is_same(&hash_of(&other.text), &one.record.hash));
        assert_ne!(one.text, other.text);
        let kept = format!("{:?}", one.record);
        assert!(!kept.contains(&one.text[ID_LENGTH + 1..]), "what is kept does not tell it");
    }

    #[test]
    fn a_name_that_is_taken_is_not_given_again() {
        let asked = std::cell::RefCell::new(Vec::new());
        let is_taken = |id: &str| {
            asked.borrow_mut().push(id.to_owned());
            asked.borrow().len() == 1
        };
        let made = make(spec(), is_taken, now()).expect("a key");
        let asked = asked.into_inner();
        assert_eq!((asked.len(), asked.last()), (2, Some(&made.record.id)));
    }

    #[test]
    fn what_is_no_key_is_told_at_a_glance() {
        let secret = "A".repeat(43);
        let good = format!("rk_0123abcd_{secret}");
        #[rustfmt::skip]
        let cases = [
            ("a key",               good.clone(),                      true),
            ("nothing",             String::new(),                     false),
            ("the name alone",      "rk_0123abcd".to_owned(),          false),
            ("too short",           good[..54].to_owned(),             false),
            ("too long",            format!("{good}A"),                false),
            ("upper case",          format!("rk_0123ABCD_{secret}"),   false),
            ("another prefix",      format!("sk_0123abcd_{secret}"),   false),
            ("no line between",     format!("rk_0123abcdA{secret}"),   false),
            ("cut in a character",  format!("rk_0123abc\u{e4}_{secret}"), false),
        ];
        for (name, text, expected) in cases {
            assert_eq!(id_of(&text).is_some(), expected, "{name}");
        }
    }

    #[test]
    fn hashes_differ_by_any_bit() {
        let hash = hash_of("rk");
        for bit in 0..256 {
            let mut other = hash;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_same(&hash, &other), "bit {bit}");
        }
        assert!(is_same(&hash, &hash));
    }

    #[test]
    fn a_key_that_would_not_hold_what_it_says_is_not_made() {
        let services = |names: &[&str]| AccessScope {
            services: names.iter().map(|name| (*name).to_owned()).collect(),
            ..AccessScope::default()
        };
        #[rustfmt::skip]
        let cases = [
            ("no name",             KeySpec { name: " ".to_owned(), ..spec() },                              KeyCreationError::Name),
            ("a name of two lines", KeySpec { name: "a\nb".to_owned(), ..spec() },                           KeyCreationError::Name),
            ("a long name",         KeySpec { name: "a".repeat(101), ..spec() },                             KeyCreationError::Name),
            ("a nameless service",  KeySpec { scope: services(&[""]), ..spec() },                            KeyCreationError::ScopeName(String::new())),
            ("a crowd",             KeySpec { scope: services(&["a"; 101]), ..spec() },                      KeyCreationError::TooManyNames),
            ("an admin in bounds",  KeySpec { scope: services(&["a"]), role: Role::Admin, ..spec() },        InvalidScope::Admin.into()),
            ("stillborn",           KeySpec { lives: Some(Duration::ZERO), ..spec() },                       KeyCreationError::Dead),
        ];
        for (name, spec, expected) in cases {
            assert_eq!(make(spec, |_| false, now()).err(), Some(expected), "{name}");
        }
    }

    #[test]
    fn the_record_says_what_a_key_may_do() {
        let scope = AccessScope { sources: vec!["/shop".to_owned()], services: vec!["billing".to_owned()] };
        let record = make(KeySpec { scope, ..spec() }, |_| false, now()).expect("a key").record;
        let id = &record.id;
        assert_eq!(owner(&record), format!("key {id} (deploy)"));
        assert_eq!(describe(&record), format!("{id} (deploy), operator, source /shop, service billing"));
    }
}
