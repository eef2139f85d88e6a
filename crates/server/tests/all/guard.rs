//! Names that lead to this machine, through the real binary: refused without leave, called with it.

use crate::run::Folder;
use crate::server::Server;
use crate::target::{Target, book};

/// The book of a target that is named, with that leave.
fn by_name(target: &Target, network: &str) -> String {
    let named = format!("http://localhost:{}/events", target.address.port());
    let literal = format!("http: \"{}\"", target.url());
    book(target, &[]).replace(&literal, &format!("http: \"{named}\"{network}"))
}

#[test]
fn a_name_for_this_machine_needs_leave() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &by_name(&target, ""));
    let server = Server::start(&folder);
    server.accept("orders.placed", "o-1", "");
    let dead = server.until("o-1", "dead");
    assert_eq!(
        (&dead["death"]["category"], &dead["death"]["code"]),
        (&"fatal".into(), &"ADDRESS_REFUSED".into())
    );
    assert_eq!(dead["attempts"], 1, "nobody waits for what will not change by itself: {dead}");
    let message = dead["death"]["message"].as_str().expect("a message");
    let port = target.address.port();
    let place = format!("service orders, line 6: localhost:{port} resolves to ");
    assert!(message.starts_with(&place), "{message}");
    let remedy = ", an address of this machine: write `network: private` beside its address to allow it";
    assert!(message.ends_with(remedy), "{message}");
    assert_eq!(target.count(), 0, "nobody was called");

    // Once the book gives leave, what died of it can be sent again.
    folder.write("redrive.yaml", by_name(&target, ", network: private"));
    server.err.wait_for("rule book reloaded:");
    server.accept("orders.placed", "o-2", "");
    server.until("o-2", "delivered");
    let url = format!("http://{}", server.client.address);
    folder.run(&["dlq", "replay", "--all", "--server", &url]);
    server.until("o-1", "delivered");
    server.stop().assert_calm();
}

#[test]
fn a_name_that_can_lead_nowhere_else_is_found_before_it_is_served() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &by_name(&target, ""));
    let checked = folder.run(&["check", "--deny", "warnings"]);
    assert_eq!(checked.code, 1, "{checked:?}");
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(said.contains("private-name-without-leave"), "{said}");
    assert!(said.contains("add `network: private` beside `http:`"), "{said}");
    folder.write("redrive.yaml", by_name(&target, ", network: private"));
    let mended = folder.run(&["check"]);
    assert!(!format!("{}{}", mended.stdout, mended.stderr).contains("private-name"), "{mended:?}");
}
