//! Addresses as a caller may see them: whole for an admin, and masked for everybody else.
//!
//! Invariant: whatever tells of the rule book goes out through here. Passwords of addresses are shown to
//! nobody; query values and the paths of webhooks, which are secrets too, only to admins.

use redrive_core::access::Role;
use redrive_core::book::RuleBook;
use redrive_core::mask::AddressMask;
use redrive_core::text::hide_passwords;
use serde::Serialize;
use serde_json::Value;

use crate::access::caller::ApiCaller;
use crate::api::error::ApiResult;
use crate::api::reply;

/// How addresses are shown to somebody.
#[derive(Clone, Debug)]
pub(crate) enum VisibleAddresses {
    /// But for their passwords.
    Whole,
    /// Without anything secret.
    Masked(AddressMask),
}

impl VisibleAddresses {
    /// How a caller may see the addresses of that book.
    pub(crate) fn for_caller(caller: &ApiCaller, book: &RuleBook) -> Self {
        match caller.role() {
            Role::Admin => Self::Whole,
            Role::Ingest | Role::Viewer | Role::Operator => Self::Masked(AddressMask::of(book)),
        }
    }

    /// The text with its addresses as they may be seen.
    pub(crate) fn shown(&self, text: &str) -> String {
        match self {
            Self::Whole => hide_passwords(text).into_owned(),
            Self::Masked(mask) => mask.hide(text).into_owned(),
        }
    }

    /// The same for the text of a whole rule book.
    pub(crate) fn shown_book(&self, text: &str) -> String {
        match self {
            Self::Whole => hide_passwords(text).into_owned(),
            Self::Masked(mask) => mask.hide_in_book(text),
        }
    }

    /// A good answer with all addresses in it as they may be seen.
    pub(crate) fn ok(&self, value: &impl Serialize) -> ApiResult {
        match self {
            Self::Whole => reply::ok(value),
            Self::Masked(mask) => {
                let mut value = serde_json::to_value(value).expect("what we answer with is always JSON");
                hide_in(mask, &mut value);
                reply::ok(&value)
            }
        }
    }
}

fn hide_in(mask: &AddressMask, value: &mut Value) {
    match value {
        Value::String(text) => *text = mask.hide(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| hide_in(mask, item)),
        Value::Object(entries) => entries.values_mut().for_each(|value| hide_in(mask, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
