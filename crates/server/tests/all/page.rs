//! The web page of a real server: there for everybody, and holding nothing that is anybody's.

use crate::identity::{bearer, key_on_folder};
use crate::run::Folder;
use crate::server::Server;
use crate::target::{Target, book};

#[test]
fn the_page_is_for_everybody_and_what_it_shows_is_not() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let key = key_on_folder(&folder, &["root", "--role", "admin"]);
    let server = Server::start(&folder);
    server.out.wait_for(&format!("page    http://{}/", server.client.address));

    let page = server.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
    #[rustfmt::skip]
    let cases = [
        ("a script",                "GET /page/main.js",       "",             200),
        ("a script of a view",      "GET /page/views/book.js", "",             200),
        ("its head alone",          "HEAD /page/main.js",      "",             200),
        ("what is no file of ours", "GET /page/secret.js",     "",             404),
        ("a way out of the folder", "GET /page/..%2f..%2fx",   "",             404),
        ("a thing that is done",    "POST /",                  "",             405),
        ("what it shows",           "GET /v1/whoami",          "",             401),
        ("what it shows, by a key", "GET /v1/whoami",          &bearer(&key),  200),
    ];
    for (name, what, headers, status) in cases {
        let head = format!("{what} HTTP/1.1\r\nhost: localhost\r\n{headers}connection: close\r\n\r\n");
        let mut connection = server.client.connect().expect("it listens");
        connection.send(head.as_bytes()).expect("it listens");
        let line = connection.line().expect("a status");
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {line}");
    }
    server.stop().assert_calm();
}
