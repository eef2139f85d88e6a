//! Headers and bodies of mails: plain ASCII where that is possible, else encoded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const SUBJECT_CHARS_MAX: usize = 200;
/// Bytes per encoded word of a header: 75 characters, by RFC 2047.
const WORD_BYTES_MAX: usize = 45;
/// Longer lines are encoded; RFC 5322 allows 998 bytes.
const LINE_BYTES_MAX: usize = 900;
const CODE_BYTES_MAX: usize = 76;

pub(crate) fn subject(line: &str) -> String {
    let line: String = line.chars().take(SUBJECT_CHARS_MAX).collect();
    // A line that looks encoded would be decoded.
    if line.is_ascii() && !line.contains("=?") {
        return line;
    }
    let mut words = vec![String::new()];
    for c in line.chars() {
        let last = words.last_mut().expect("there is one from the start");
        if last.len() + c.len_utf8() > WORD_BYTES_MAX {
            words.push(c.to_string());
        } else {
            last.push(c);
        }
    }
    let encoded = words.iter().map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word)));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

/// Ends in `…` if something is missing.
pub(crate) fn shortened(line: &str) -> String {
    if line.chars().count() <= SUBJECT_CHARS_MAX {
        return line.to_owned();
    }
    line.chars().take(SUBJECT_CHARS_MAX - 1).chain(['…']).collect()
}

/// The headers and the body of a text, or of the same as text and HTML.
pub(crate) fn content(text: &str, html: Option<&str>, id: &str) -> String {
    let Some(html) = html else { return part("plain", text, None) };
    // No encoded line begins like that, and what contains it is encoded.
    let boundary = format!("=_{id}");
    let [text, html] =
        [("plain", text), ("html", html)].map(|(kind, text)| part(kind, text, Some(&boundary)));
    format!(
        "Content-Type: multipart/alternative; boundary=\"{boundary}\"\r\n\r\n--{boundary}\r\n{text}\r\n--{boundary}\r\n{html}\r\n--{boundary}--"
    )
}

fn part(kind: &str, text: &str, boundary: Option<&str>) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let is_odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let must_encode = text.contains(is_odd) || boundary.is_some_and(|boundary| text.contains(boundary));
    let lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let (encoding, body) = if must_encode { ("base64", encoded(&lines)) } else { body(&lines) };
    format!("Content-Type: text/{kind}; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{body}")
}

pub(crate) fn body(lines: &[String]) -> (&'static str, String) {
    if lines.iter().all(|line| line.is_ascii() && line.len() <= LINE_BYTES_MAX) {
        return ("7bit", lines.join("\r\n"));
    }
    ("base64", encoded(lines))
}

fn encoded(lines: &[String]) -> String {
    let code = STANDARD.encode(lines.join("\r\n"));
    let code = code.as_bytes().chunks(CODE_BYTES_MAX).map(|line| String::from_utf8_lossy(line));
    code.collect::<Vec<_>>().join("\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_mail_is_too_long() {
        let long = "ö".repeat(5_000);
        assert!(subject(&long).split("\r\n ").all(|word| word.len() <= 75));
        let (encoding, text) = body(&[long, "x".repeat(5_000)]);
        assert_eq!(encoding, "base64");
        assert!(text.split("\r\n").all(|line| line.len() <= CODE_BYTES_MAX));
    }
}
