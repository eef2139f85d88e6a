//! Templates: what they give, what is refused, and that nothing breaks, lasts or leaves its place.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::event::attribute::{EventId, EventSource, EventType};

fn event(data: &str) -> Event {
    Event {
        id: EventId::new("e-1").expect("an id"),
        source: EventSource::new("/shop").expect("a source"),
        event_type: EventType::new("orders.placed").expect("a type"),
        subject: None,
        time: None,
        content_type: None,
        session: None,
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: data.to_owned().into(),
    }
}

const DATA: &str = r#"{"user":{"name":"A/b c","x-id":7},"total":12.5,"big":18446744073709551615,"items":["a","b"],
    "quote":"\"},{\r\nx: y","none":null,"empty":"","dots":".."}"#;

fn rendered(text: &str, place: TemplatePlace) -> Result<String, String> {
    let template = Template::parse(text, place).map_err(|error| format!("invalid: {error}"))?;
    let context = TemplateContext::new(&event(DATA), "msg_1", 2);
    template.render(&context, 100).map_err(|error| error.to_string())
}

#[test]
fn texts_are_filled_in() {
    #[rustfmt::skip]
    let cases = [
        ("as written { \"a\": 1 }",                   Ok("as written { \"a\": 1 }")),
        ("{type} of {data.user.name}, {data.user.x-id}", Ok("orders.placed of A/b c, 7")),
        ("{{ type }}/{{ id }}/{{ delivery }}/{{ attempt }}", Ok("orders.placed/e-1/msg_1/2")),
        ("{{ data.total }}",                          Ok("12.5")),
        ("n {{ data.big }}",                          Ok("n 18446744073709551615")),
        ("{{ data.items | join(', ') | upper }}!",    Ok("A, B!")),
        ("{% for i in data.items %}[{{ i }}]{% endfor %}", Ok("[a][b]")),
        ("{% if data.total > 10 %}much{% else %}little{% endif %}", Ok("much")),
        ("{{ subject | default('none') }}",           Ok("none")),
        ("{{ data.nick | default(data.user.name) }}", Ok("A/b c")),
        ("{{ data.items | tojson }} {{ data.user.name | truncate(1) }}", Ok("[\"a\",\"b\"] A")),
        ("{data.nick}",                               Err("`data.nick` is missing in the event")),
        ("to {{ data.nick.short }}",                  Err("`data.nick.short` is missing in the event")),
        ("{{ data.nick | truncate(3) }}",             Err("`data.nick` is missing in the event")),
        ("{{ data.nick | upper }} {{ data.nick | trim }}", Err("`data.nick` is missing in the event")),
        ("{{ data.nick | join(', ') }}",              Err("`data.nick` is missing in the event")),
        ("{{ data.nick | tojson }}",                  Err("`data.nick` is missing in the event")),
        ("{{ data.nick | first }}",                   Err("`data.nick` is missing in the event")),
        ("{{ data.nick | length }}",                  Err("`data.nick` is missing in the event")),
        ("{{ data.nick | int }}",                     Err("`data.nick` is missing in the event")),
        ("{{ data.nick | string }}",                  Err("`data.nick` is missing in the event")),
        ("{{ data.nick | round }}",                   Err("`data.nick` is missing in the event")),
        ("{{ subject }}",                             Err("`subject` is missing in the event")),
        ("{{ data.items | join(data.quote * 30) }}",  Err("`{{ data.items | join(data.quote * 30) }}` makes more than 100 bytes")),
        ("{% for a in data.items %}{{ data.quote * 9 }}{% endfor %}", Err("`{% for a in data.items %}{{ data.quote * 9 }}{% endfor %}` makes more than 100 bytes")),
        ("{{ nothing }}",                             Err("invalid: unknown value `nothing`: an event has id, source, type, subject, session, correlation_id, time, data, extensions, delivery, attempt")),
        ("{% set a = 1 %}",                           Err("invalid: unknown tag `{% set %}`: templates have `if` and `for`")),
        ("{% include 'a' %}",                         Err("invalid: unknown tag `{% include %}`: templates have `if` and `for`")),
        ("{{ data.items | nofilter }}",               Err("invalid: unknown filter `nofilter`: templates have default, first, float, int, join, last, length, lower, round, string, tojson, trim, truncate, upper")),
        ("{% if data.nick is odd %}x{% endif %}",     Err("invalid: unknown test `is odd`: templates have defined, none, number, string")),
        ("{% if data.nick is not defined %}{{ 'a | b is c' }}{% endif %}", Ok("a | b is c")),
    ];
    for (text, expected) in cases {
        assert_eq!(
            rendered(text, TemplatePlace::Text),
            expected.map(str::to_owned).map_err(str::to_owned),
            "{text}"
        );
    }
    assert!(rendered("{{ data. }}", TemplatePlace::Text).expect_err("no name").starts_with("invalid: "));
    assert!(Template::parse(&"x".repeat(limits::TEMPLATE_BYTES_MAX + 1), TemplatePlace::Text).is_err());
}

#[test]
fn values_stay_within_their_segment_of_a_path() {
    #[rustfmt::skip]
    let cases = [
        ("/users/{{ data.user.name }}/{{ data.user['x-id'] }}", Ok("/users/A%2Fb%20c/7")),
        ("/q/{{ data.quote }}",  Ok("/q/%22%7D%2C%7B%0D%0Ax%3A%20y")),
        ("/{{ data.dots }}/x",   Err("`/{{ data.dots }}/x` has an empty value or `..` in a path")),
        ("{{ data.dots }}",      Err("`{{ data.dots }}` has an empty value or `..` in a path")),
        ("/a{{ data.empty }}",   Err("`/a{{ data.empty }}` has an empty value or `..` in a path")),
        ("/{{ data.gone }}",     Err("`data.gone` is missing in the event")),
    ];
    for (text, expected) in cases {
        assert_eq!(
            rendered(text, TemplatePlace::Path),
            expected.map(str::to_owned).map_err(str::to_owned),
            "{text}"
        );
    }
}

#[test]
fn values_in_html_are_escaped() {
    #[rustfmt::skip]
    let cases = [
        ("<p>{{ data.quote }}</p>",                        "<p>&quot;},{\r\nx: y</p>"),
        ("{{ '<b>&\\'' }}",                                "&lt;b&gt;&amp;&#39;"),
    ];
    for (text, expected) in cases {
        assert_eq!(rendered(text, TemplatePlace::Html), Ok(expected.to_owned()), "{text}");
    }
}

#[test]
fn json_keeps_its_shape_and_the_types_of_values() {
    let template = JsonTemplate::parse(&json!({
        "text": "{{ data.quote }}", "in": "a {data.quote}", "n": "{{ data.total }}", "big": "{data.big}",
        "list": ["{{ data.items }}", 1, null, true], "none": "{{ data.none }}", "empty": [[], {}],
    }))
    .expect("templates");
    let context = TemplateContext::new(&event(DATA), "msg_1", 1);
    let quote = "\"},{\r\nx: y";
    let expected = json!({
        "text": quote, "in": format!("a {quote}"), "n": 12.5, "big": u64::MAX,
        "list": [["a", "b"], 1, null, true], "none": null, "empty": [[], {}],
    });
    assert_eq!(template.render(&context), Ok(expected.clone()));
    let bytes = expected.to_string().into_bytes();
    let length = bytes.len();
    assert_eq!(template.render_bytes(&context, length), Ok(bytes));
    let error = template.render_bytes(&context, length - 1).expect_err("one byte too many");
    assert!(matches!(error, RenderError::TooLarge { .. }), "{error}");
}

#[test]
fn steps_are_bounded() {
    let list = serde_json::to_string(&json!({ "l": vec![1; 2_000] })).expect("JSON");
    let template = Template::parse(
        "{% for a in data.l %}{% for b in data.l %}{% if a > b %}x{% endif %}{% endfor %}{% endfor %}",
        TemplatePlace::Text,
    );
    let context = TemplateContext::new(&event(&list), "d", 1);
    let error = template.expect("a template").render(&context, 100).expect_err("too many steps");
    assert!(matches!(error, RenderError::TooManySteps { .. }), "{error}");
}

#[test]
fn templates_of_one_request_share_their_steps() {
    let list = serde_json::to_string(&json!({ "l": vec![1; 10_000] })).expect("JSON");
    let template = Template::parse("{% for a in data.l %}{{ a }}{% endfor %}", TemplatePlace::Text);
    let (template, event) = (template.expect("a template"), event(&list));
    let context = TemplateContext::with(TemplateNeeds::of([&template]), &event, "d", 1);
    let rendered = (0..50).map(|_| template.render(&context, 100_000)).collect::<Result<Vec<_>, _>>();
    assert!(matches!(rendered, Err(RenderError::TooManySteps { .. })), "{rendered:?}");
}

#[test]
fn only_what_is_named_is_prepared() {
    let template = |text| Template::parse(text, TemplatePlace::Text).expect("a template");
    let named = template("{{ data.total }}");
    let context = TemplateContext::with(TemplateNeeds::of([&named]), &event(DATA), "d", 1);
    assert_eq!(named.render(&context, 100), Ok("12.5".to_owned()));
    assert_eq!(
        template("{{ id }}").render(&context, 100),
        Err(RenderError::Missing { field: "id".to_owned() })
    );
    assert_eq!(TemplateNeeds::of([&template("as written")]), TemplateNeeds::default());
    assert_eq!(template("/a/{{ data.b }}/c{# d #}").literal_parts(), ["/a/", "/c", ""]);
}

#[test]
fn deep_templates_are_refused_and_deep_data_is_absent() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("-", ""),
        ("not ", ""),
        ("1 + ", ""),
        ("1 if 1 else ", ""),
        ("'}}' ~ -", ""),
    ] {
        let nested = |depth: usize| format!("{{{{ {}1{} }}}}", open.repeat(depth), close.repeat(depth));
        let deep = Template::parse(&nested(3_000), TemplatePlace::Text);
        assert_eq!(deep, Err(InvalidTemplate::TooComplex), "{open}");
        drop(Template::parse(&nested(limits::TEMPLATE_OPERATORS_MAX), TemplatePlace::Text));
        assert!(Template::parse(&nested(10), TemplatePlace::Text).is_ok(), "{open}");
    }
    let blocks = |depth: usize| format!("{}x{}", "{% if true %}".repeat(depth), "{% endif %}".repeat(depth));
    let parse = |depth| Template::parse(&blocks(depth), TemplatePlace::Text).map(drop);
    assert_eq!(parse(limits::TEMPLATE_BLOCKS_MAX), Ok(()));
    assert_eq!(parse(limits::TEMPLATE_BLOCKS_MAX + 1), Err(InvalidTemplate::TooComplex));
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let context = TemplateContext::new(&event(&deep), "d", 1);
    let template = Template::parse("{{ data }}", TemplatePlace::Text).expect("a template");
    assert_eq!(template.render(&context, 100), Err(RenderError::Missing { field: "data".to_owned() }));
}

proptest! {
    #[test]
    fn no_text_and_no_data_break_a_template(text in "(\\{\\{|\\}\\}|\\{%|%\\}|[ a-z.|()\\[\\]\"'{}#*~-]|data|if|for|in|end){0,24}", data in "[\\[\\]{}\",:a-z0-9]{0,24}") {
        for place in [TemplatePlace::Text, TemplatePlace::Path] {
            if let Ok(template) = Template::parse(&text, place) {
                drop(template.render(&TemplateContext::new(&event(&data), "d", 1), 1_000));
            }
        }
    }

    #[test]
    fn a_value_never_leaves_its_text_in_json(value in any::<String>()) {
        let event = event(&json!({ "v": value }).to_string());
        let template = JsonTemplate::parse(&json!({ "a": "{{ data.v }}", "b": "<{{ data.v }}>" })).expect("a template");
        let rendered = template.render(&TemplateContext::new(&event, "d", 1)).expect("a value");
        prop_assert_eq!(&rendered, &json!({ "a": value, "b": format!("<{value}>") }));
        let bytes = template.render_bytes(&TemplateContext::new(&event, "d", 1), 100_000).expect("a value");
        prop_assert_eq!(serde_json::from_slice::<serde_json::Value>(&bytes).expect("JSON"), rendered);
    }
}
