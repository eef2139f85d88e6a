//! The failure code that a target states in its answer, so that rules can distinguish failures of one status.
//!
//! It is in the header `Redrive-Error-Code`, or in a JSON body as `{"error": {"code": "…"}}` or
//! `{"error_code": "…"}`; the header takes precedence.
//!
//! Invariant: an accepted code is short and of plain characters, whatever the target sends.

use serde::Deserialize;

use crate::limits;
use crate::policy::answer::AnswerKind;
use crate::policy::category::FailureCode;

pub const HEADER: &str = "redrive-error-code";

/// Other fields are ignored.
#[derive(Deserialize)]
struct ReportedBody {
    error: Option<serde_json::Value>,
    error_code: Option<serde_json::Value>,
}

#[must_use]
pub fn reported_code(what: &AnswerKind<'_>) -> Option<FailureCode> {
    let (AnswerKind::Http { body, .. } | AnswerKind::Unexpected { body, .. }) = what else { return None };
    if let Some(stated) = what.header(HEADER).and_then(fit) {
        return Some(stated);
    }
    if !body.trim_start().starts_with('{') {
        return None;
    }
    let ReportedBody { error, error_code } = serde_json::from_str(body).ok()?;
    let nested = error.as_ref().and_then(|error| error.get("code")?.as_str());
    nested.or(error_code.as_ref().and_then(serde_json::Value::as_str)).and_then(fit)
}

fn fit(text: &str) -> Option<FailureCode> {
    let text = text.trim();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':');
    let is_fit =
        !text.is_empty() && text.len() <= limits::REPORTED_CODE_BYTES_MAX && text.bytes().all(is_plain);
    is_fit.then(|| FailureCode::reported(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_where_targets_state_it() {
        let long = "X".repeat(limits::REPORTED_CODE_BYTES_MAX + 1);
        let too_long = format!(r#"{{"error_code":"{long}"}}"#);
        #[rustfmt::skip]
        let cases = [
            ("nowhere",               "",         "",                                               None),
            ("in the header",         "NO_STOCK", "",                                               Some("NO_STOCK")),
            ("with room around it",   " a.b:c-1 ", "",                                              Some("a.b:c-1")),
            ("in an error",           "",         r#"{"error":{"code":"NO_STOCK","message":"x"}}"#, Some("NO_STOCK")),
            ("flat",                  "",         r#" {"error_code":"NO_STOCK"}"#,                  Some("NO_STOCK")),
            ("in both",               "",         r#"{"error":{"code":"A"},"error_code":"B"}"#,     Some("A")),
            ("the header comes first", "H",       r#"{"error":{"code":"A"}}"#,                      Some("H")),
            ("a bad header does not", "a b",      r#"{"error":{"code":"A"}}"#,                      Some("A")),
            ("an error in words",     "",         r#"{"error":"no stock","error_code":"B"}"#,       Some("B")),
            ("a number",              "",         r#"{"error":{"code":17}}"#,                       None),
            ("odd characters",        "",         r#"{"error_code":"a\u001b[2J"}"#,                 None),
            ("too long",              "",         &too_long,                                        None),
            ("half a body",           "",         r#"{"error":{"code":"A""#,                        None),
            ("no JSON",               "",         "error_code: A",                                  None),
        ];
        for (name, header, body, expected) in cases {
            let headers: &[(&str, &str)] =
                if header.is_empty() { &[] } else { &[("Redrive-Error-Code", header)] };
            let what = AnswerKind::Http { status: 500, headers: &headers, body };
            assert_eq!(reported_code(&what).as_ref().map(FailureCode::as_str), expected, "{name}");
        }
        assert_eq!(reported_code(&AnswerKind::Taken), None);
    }
}
