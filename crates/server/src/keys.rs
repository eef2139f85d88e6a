//! Keys: what one looks like, how one is made, and what is kept of it.
//!
//! `rk_1a2b3c4d_` and 43 characters: a name that is no secret, and 32 random bytes that are one.
//!
//! Invariant: a key is known to its owner only. What is kept is its SHA-256, and since the key is long and
//! random no slower hash would add anything.

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

/// What every key begins with.
pub(crate) const PREFIX: &str = "rk_";

const ID_BYTES: usize = 4;

const SECRET_BYTES: usize = 32;

/// The length of a key's name: the prefix and eight digits.
const ID_LENGTH: usize = PREFIX.len() + 2 * ID_BYTES;

/// The length of a whole key: 32 bytes take 43 characters.
const KEY_LENGTH: usize = ID_LENGTH + 1 + 43;

/// The longest name of a key's owner.
const NAME_BYTES_MAX: usize = 100;

/// Sources, and services, that a key may be bound to.
const SCOPE_NAMES_MAX: usize = 100;

/// The longest name of a source or service.
const SCOPE_NAME_BYTES_MAX: usize = 500;

/// The name of the key that a text may be; none if it is no key for sure.
pub(crate) fn id_of(text: &str) -> Option<&str> {
    let (id, rest) = text.split_at_checked(ID_LENGTH)?;
    let digits = id.strip_prefix(PREFIX)?;
    let is_id = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_id && rest.starts_with('_') && text.len() == KEY_LENGTH).then_some(id)
}

/// What is kept of a key.
pub(crate) fn hash_of(text: &str) -> [u8; 32] {
    digest(&SHA256, text.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Whether two hashes are the same, in a time that does not tell where they differ.
pub(crate) fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |unlike, (one, other)| unlike | (one ^ other)) == 0
}

/// What a new key is to be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeySpec {
    /// Whose it is.
    pub(crate) name: String,
    /// What its owner may do.
    pub(crate) role: Role,
    /// On what.
    pub(crate) scope: AccessScope,
    /// How many requests its owner may make, if it is not what the book says.
    pub(crate) rate: Option<Rate>,
    /// How long it is good; for ever if nobody says.
    pub(crate) lives: Option<Duration>,
}

/// Why no such key is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyCreationError {
    #[error("the name must have 1 to {NAME_BYTES_MAX} bytes that can be seen")]
    Name,
    #[error("a key may be bound to {SCOPE_NAMES_MAX} sources and as many services at most")]
    TooManyNames,
    #[error("{0:?} names no source or service")]
    ScopeName(String),
    #[error(transparent)]
    Unfit(#[from] InvalidScope),
    #[error("a key must live for longer than no time")]
    Dead,
    #[error("the system gave no random number")]
    NoRandom,
}

/// Why the first key must be an admin's, as the end of a sentence about its role.
pub(crate) const FIRST_IS_ADMIN: &str = "must be `admin` for the first key: from then on everybody is asked for one, and nobody could make another";

/// What is said when the last key is gone that could make others.
pub(crate) const NO_ADMIN_LEFT: &str = "no admin's key is good any more: stop the server, and make one with `redrive keys create NAME --role admin --data DIR`";

/// What is to be said about a key that has ended, if that leaves none that could make others.
pub(crate) fn note_on_end<'a>(
    ended: &KeyRecord,
    mut known: impl Iterator<Item = &'a KeyRecord>,
    now: Timestamp,
) -> Option<&'static str> {
    let is_left = known.any(|key| key.id != ended.id && key.role == Role::Admin && is_good(key, now));
    (ended.role == Role::Admin && !is_left).then_some(NO_ADMIN_LEFT)
}

/// Whether somebody may come in with it.
pub(crate) fn is_good(record: &KeyRecord, now: Timestamp) -> bool {
    record.revoked_at.is_none() && record.expires_at.is_none_or(|at| now < at)
}

/// The name of a key, from it or from the whole key: what is pasted whole is not repeated anywhere.
pub(crate) fn id_within(text: &str) -> &str {
    match text.split_at_checked(ID_LENGTH) {
        Some((id, rest)) if id.starts_with(PREFIX) && rest.starts_with('_') => id,
        Some(_) | None => text,
    }
}

/// A key that was just made: the only time that it is known here.
pub(crate) struct CreatedKey {
    /// The key; its owner is told, and nobody else.
    pub(crate) text: String,
    /// What is kept of it.
    pub(crate) record: KeyRecord,
}

/// Makes a key with a name that is not among those.
pub(crate) fn make(
    wish: KeySpec,
    taken: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Result<CreatedKey, KeyCreationError> {
    check(&wish)?;
    let KeySpec { name, role, scope, rate, lives } = wish;
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

fn check(wish: &KeySpec) -> Result<(), KeyCreationError> {
    let KeySpec { name, role, scope, rate: _, lives } = wish;
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

/// How a key is named where it was used: `key rk_1a2b3c4d (deploy)`.
pub(crate) fn owner(record: &KeyRecord) -> String {
    format!("key {} ({})", record.id, record.name)
}

/// What a key may do, in words for the record.
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

    fn wish() -> KeySpec {
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
            let wish =
                KeySpec { name: "k".to_owned(), role, scope: AccessScope::default(), rate: None, lives };
            make(wish, |_| false, Timestamp::EPOCH).expect("a key").record
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
        let one = make(wish(), |_| false, now()).expect("a key");
        let other = make(wish(), |_| false, now()).expect("a key");
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
        let made = make(wish(), is_taken, now()).expect("a key");
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
            ("no name",             KeySpec { name: " ".to_owned(), ..wish() },                              KeyCreationError::Name),
            ("a name of two lines", KeySpec { name: "a\nb".to_owned(), ..wish() },                           KeyCreationError::Name),
            ("a long name",         KeySpec { name: "a".repeat(101), ..wish() },                             KeyCreationError::Name),
            ("a nameless service",  KeySpec { scope: services(&[""]), ..wish() },                            KeyCreationError::ScopeName(String::new())),
            ("a crowd",             KeySpec { scope: services(&["a"; 101]), ..wish() },                      KeyCreationError::TooManyNames),
            ("an admin in bounds",  KeySpec { scope: services(&["a"]), role: Role::Admin, ..wish() },        InvalidScope::Admin.into()),
            ("stillborn",           KeySpec { lives: Some(Duration::ZERO), ..wish() },                       KeyCreationError::Dead),
        ];
        for (name, wish, expected) in cases {
            assert_eq!(make(wish, |_| false, now()).err(), Some(expected), "{name}");
        }
    }

    #[test]
    fn the_record_says_what_a_key_may_do() {
        let scope = AccessScope { sources: vec!["/shop".to_owned()], services: vec!["billing".to_owned()] };
        let record = make(KeySpec { scope, ..wish() }, |_| false, now()).expect("a key").record;
        let id = &record.id;
        assert_eq!(owner(&record), format!("key {id} (deploy)"));
        assert_eq!(describe(&record), format!("{id} (deploy), operator, source /shop, service billing"));
    }
}
