//! Machine codes that targets state in their answers, and what rules make of them.

use serde_json::json;

use crate::run::Folder;
use crate::server::Server;
use crate::target::{Say, Target, book};

#[test]
fn a_code_that_the_target_states_decides_by_the_rules() {
    let target = Target::start(|call| match call.event_id() {
        "header" => Say::Status(500, "Redrive-Error-Code: NO_STOCK\r\n", String::new()),
        "nested" => Say::Status(500, "", r#"{"error":{"code":"NO_STOCK","message":"sold out"}}"#.to_owned()),
        "flat" => Say::Status(503, "", r#"{"error_code":"NO_STOCK"}"#.to_owned()),
        "other" => Say::Status(404, "", r#"{"error":{"code":"WAIT_FOR_IT"}}"#.to_owned()),
        _ => Say::Status(404, "", r#"{"error":{"code":"not a code"}}"#.to_owned()),
    });
    let rows = "classify: [{ code: NO_STOCK, as: permanent }, { code: WAIT_FOR_IT, as: transient }]";
    let folder = Folder::with("redrive.yaml", &book(&target, &[rows]));
    let server = Server::start(&folder);
    #[rustfmt::skip]
    let cases = [
        ("header", "permanent", "NO_STOCK",    1),
        ("nested", "permanent", "NO_STOCK",    1),
        ("flat",   "permanent", "NO_STOCK",    1),
        ("other",  "transient", "WAIT_FOR_IT", 4),
        ("none",   "permanent", "NOT_FOUND",   1),
    ];
    for (id, category, code, attempts) in cases {
        server.accept("orders.placed", id, "");
        let delivery = server.until(id, "dead");
        let stories = delivery["stories"].as_array().expect("a list");
        let last = stories.last().expect("an attempt");
        assert_eq!((&last["category"], &last["code"]), (&json!(category), &json!(code)), "{id}: {last}");
        assert_eq!(stories.len(), attempts, "{id}");
    }
    server.stop().assert_calm();
}
