//! For tests: holds a text of tags against what they must be, closely enough that no text can break out unseen.

/// Elements that have no end.
const EMPTY: [&str; 5] = ["meta", "br", "link", "wbr", "input"];
/// Elements whose content is no text.
const RAW: [&str; 1] = ["style"];
/// What a text may say with an ampersand.
const ENTITIES: [&str; 5] = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];

/// The tags of a well-formed text with their attributes; panics, saying where, at one that is not.
pub(crate) fn tags(text: &str) -> Vec<Tag> {
    let mut found = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        check_text(&rest[..start]);
        let end = rest.find('>').unwrap_or_else(|| panic!("a tag has no end: {}", cut(&rest[start..])));
        let inside = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if inside.starts_with('!') {
            continue;
        }
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(
                open.pop().as_deref(),
                Some(name),
                "an end without its beginning, before {}",
                cut(rest)
            );
            continue;
        }
        let tag = Tag::read(inside);
        let is_whole = inside.ends_with('/') || EMPTY.contains(&tag.name.as_str());
        if RAW.contains(&tag.name.as_str()) {
            let end = rest.find("</").unwrap_or_else(|| panic!("<{}> has no end", tag.name));
            rest = &rest[end..];
        }
        if !is_whole {
            open.push(tag.name.clone());
        }
        found.push(tag);
    }
    check_text(rest);
    assert!(open.is_empty(), "never ended: {open:?}");
    found
}

/// A tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
}

impl Tag {
    fn read(inside: &str) -> Self {
        let inside = inside.strip_suffix('/').unwrap_or(inside).trim_end();
        let (name, mut rest) = inside.split_once(char::is_whitespace).unwrap_or((inside, ""));
        assert!(
            name.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !name.is_empty(),
            "no name: {inside}"
        );
        let mut attributes = Vec::new();
        while !rest.trim_start().is_empty() {
            let (key, after) =
                rest.trim_start().split_once("=\"").unwrap_or_else(|| panic!("no value: {inside}"));
            let (value, after) = after.split_once('"').unwrap_or_else(|| panic!("no quote: {inside}"));
            assert!(
                key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-:".contains(&byte)),
                "{inside}"
            );
            check_text(value);
            attributes.push((key.to_owned(), value.to_owned()));
            rest = after;
        }
        Self { name: name.to_owned(), attributes }
    }
}

fn check_text(text: &str) {
    assert!(!text.contains('>'), "a bare > in {}", cut(text));
    for (at, _) in text.match_indices('&') {
        let is_entity = ENTITIES.iter().any(|entity| text[at..].starts_with(entity));
        assert!(is_entity, "a bare & in {}", cut(&text[at..]));
    }
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}
