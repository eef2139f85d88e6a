//! Known secret values, to be removed from logs.
//!
//! Invariant: nothing else runs under the lock, so it can be taken while logging.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Mutex;

use redrive_core::redact::hide_known;
use zeroize::Zeroizing;

use super::SecretValues;

/// Remembered values; the oldest are dropped first.
const SEEN_MAX: usize = 256;

#[derive(Default)]
pub(super) struct KnownValues(Mutex<VecDeque<Zeroizing<String>>>);

impl KnownValues {
    /// Values that are not UTF-8 cannot occur in a text.
    pub(super) fn note(&self, values: &SecretValues) {
        for value in values.iter().filter_map(|value| std::str::from_utf8(value).ok()) {
            self.note_text(value);
        }
    }

    pub(super) fn note_text(&self, value: &str) {
        let mut seen = self.0.lock().expect("lock is not poisoned");
        if seen.iter().any(|known| known.as_str() == value) {
            return;
        }
        if seen.len() >= SEEN_MAX {
            seen.pop_front();
        }
        seen.push_back(Zeroizing::new(value.to_owned()));
    }

    pub(super) fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let seen = self.0.lock().expect("lock is not poisoned");
        hide_known(text, seen.iter().map(|value| value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_left_out_of_texts_even_after_they_were_changed() {
        let seen = KnownValues::default();
        assert_eq!(seen.hide("correct horse"), "correct horse");
        for lines in ["correct horse\n", "battery staple\ncorrect horse\n"] {
            seen.note(&SecretValues::from_lines(lines.as_bytes(), "here").expect("a line or two"));
        }
        assert_eq!(seen.hide("it said correct horse, battery staple"), "it said [secret], [secret]");
        assert_eq!(seen.0.lock().expect("not poisoned").len(), 2);
    }
}
