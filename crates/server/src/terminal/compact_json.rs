//! JSON in which lists of scalars take one line.

use serde_json::Value;

const INDENT: &str = "  ";

/// With a final line end.
pub(crate) fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, &mut out);
    out.push('\n');
    out
}

fn write(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Array(items) if items.iter().any(|item| item.is_array() || item.is_object()) => {
            let item = |item: &Value, out: &mut String| write(item, depth + 1, out);
            lines(items.iter(), ('[', ']'), depth, item, out);
        }
        Value::Object(entries) if !entries.is_empty() => {
            let entry = |(key, value): (&String, &Value), out: &mut String| {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push_str(": ");
                write(value, depth + 1, out);
            };
            lines(entries.iter(), ('{', '}'), depth, entry, out);
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            out.push_str(&format!("[{}]", items.join(", ")));
        }
        single => out.push_str(&single.to_string()),
    }
}

fn lines<T>(
    items: impl Iterator<Item = T>,
    (open, close): (char, char),
    depth: usize,
    mut item: impl FnMut(T, &mut String),
    out: &mut String,
) {
    out.push(open);
    for (place, it) in items.enumerate() {
        out.push_str(if place == 0 { "\n" } else { ",\n" });
        out.push_str(&INDENT.repeat(depth + 1));
        item(it, out);
    }
    out.push('\n');
    out.push_str(&INDENT.repeat(depth));
    out.push(close);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_reads_back_and_series_take_one_line() {
        let value = json!({
            "name": "a \"quoted\" one", "none": null, "empty": {}, "no": [],
            "series": [1, 2.5, 3], "rows": [{ "a": [1] }, [], ["x", "y"]],
        });
        let shown = text(&value);
        assert_eq!(serde_json::from_str::<Value>(&shown).expect("JSON"), value);
        assert!(shown.contains("\n  \"series\": [1, 2.5, 3],\n"), "{shown}");
        assert!(
            shown.contains("\n    {\n      \"a\": [1]\n    },\n    [],\n    [\"x\", \"y\"]\n  ]\n}\n"),
            "{shown}"
        );
    }
}
