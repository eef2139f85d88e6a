//! Text within HTML and SVG: whatever it says, it is text there and nothing else.
//!
//! Invariant: what comes out of [`escape`] holds no character that ends a text or an attribute, none that XML
//! forbids, and none that turns the direction of what follows.

#[cfg(test)]
pub(crate) mod form;

use super::plain;

/// A text of somebody else's in one line, between tags or within the quotes of an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // The only two that are characters to Rust and none to XML, beside control characters.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The same for a text of several lines.
pub(crate) fn escape_lines(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}

/// A sentence in which what stands between two backticks is code.
pub(crate) fn spoken(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // A backtick without its second is only a backtick.
    if parts.len().is_multiple_of(2) {
        return escape(text);
    }
    let part = |(at, part): (usize, &&str)| match at % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    };
    parts.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_taken_for_anything_else() {
        #[rustfmt::skip]
        let cases = [
            ("nothing",              "",                        ""),
            ("plain",                "résumé 日本",             "résumé 日本"),
            ("a tag",                "<script>x</script>",      "&lt;script&gt;x&lt;/script&gt;"),
            ("the end of a quote",   "\" onload='x'",           "&quot; onload=&#39;x&#39;"),
            ("an entity",            "&lt;&#0;",                "&amp;lt;&amp;#0;"),
            ("the end of CDATA",     "]]>",                     "]]&gt;"),
            ("what XML forbids",     "a\0b\u{b}c\u{fffe}d",     "a b c\u{fffd}d"),
            ("another direction",    "a\u{202e}b",              "a b"),
        ];
        for (name, text, expected) in cases {
            assert_eq!(escape(text), expected, "{name}");
        }
        assert_eq!(escape_lines("a: <b>\n  c: 1\r\n"), "a: &lt;b&gt;\n  c: 1");
    }

    #[test]
    fn code_in_a_sentence_is_code() {
        #[rustfmt::skip]
        let cases = [
            ("none",            "all is well",          "all is well"),
            ("some",            "`a<b` and `c`",        "<code>a&lt;b</code> and <code>c</code>"),
            ("half of it",      "a ` b <i>",            "a ` b &lt;i&gt;"),
        ];
        for (name, text, expected) in cases {
            assert_eq!(spoken(text), expected, "{name}");
        }
    }
}
