//! Addresses as a caller may see them: whole for admins, masked for others.
//!
//! Invariant: every view of the rule book passes through here. Passwords are always hidden; query values and
//! webhook paths, which are secrets too, are shown to admins only.

use redrive_core::access::Role;
use redrive_core::book::RuleBook;
use redrive_core::mask::AddressMask;
use redrive_core::text::hide_passwords;
use serde::Serialize;
use serde_json::Value;

use crate::access::caller::ApiCaller;
use crate::api::error::ApiResult;
use crate::api::reply;

#[derive(Clone, Debug)]
pub(crate) enum VisibleAddresses {
    /// All but passwords.
    Whole,
    Masked(AddressMask),
}

impl VisibleAddresses {
    pub(crate) fn for_caller(caller: &ApiCaller, book: &RuleBook) -> Self {
        match caller.role() {
            Role::Admin => Self::Whole,
            Role::Ingest | Role::Viewer | Role::Operator => Self::Masked(AddressMask::of(book)),
        }
    }

    pub(crate) fn shown(&self, text: &str) -> String {
        match self {
            Self::Whole => hide_passwords(text).into_owned(),
            Self::Masked(mask) => mask.hide(text).into_owned(),
        }
    }

    pub(crate) fn shown_book(&self, text: &str) -> String {
        match self {
            Self::Whole => hide_passwords(text).into_owned(),
            Self::Masked(mask) => mask.hide_in_book(text),
        }
    }

    pub(crate) fn ok(&self, value: &impl Serialize) -> ApiResult {
        match self {
            Self::Whole => reply::ok(value),
            Self::Masked(mask) => {
                let mut value = serde_json::to_value(value).expect("API types are JSON");
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
