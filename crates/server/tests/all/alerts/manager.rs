//! Alertmanager itself, which is told of alerts and says what it knows.

use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{book, mend, refusing, spoil, start};
use crate::client::{Answer, Client};
use crate::run::Folder;
use crate::server::until;

/// An Alertmanager that runs as long as the test does.
struct Manager {
    child: Child,
    client: Client,
    _folder: Folder,
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Manager {
    fn start() -> Self {
        let folder =
            Folder::with("config.yml", "route: { receiver: nobody }\nreceivers: [{ name: nobody }]\n");
        // Nobody else asks for that port in the moment in between.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = port.expect("the system has a free port").to_string();
        let child = Command::new("prometheus-alertmanager")
            .arg("--config.file=config.yml")
            .arg("--storage.path=data")
            .arg("--cluster.listen-address=")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(folder.path("."))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.expect("scripts/test installs prometheus-alertmanager");
        let manager = Self { child, client: Client::new(&address), _folder: folder };
        until("it answers", || {
            let answer = manager.ask("/-/ready").ok()?;
            (answer.status == 200).then_some(())
        });
        manager
    }

    fn ask(&self, path: &str) -> io::Result<Answer> {
        let mut connection = self.client.connect()?;
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        connection.send(head.as_bytes())?;
        connection.answer()
    }

    /// The names of the alerts that it takes for raised.
    fn raised(&self) -> Vec<(String, String)> {
        let alerts = self.ask("/api/v2/alerts").expect("it answers").json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of =
            |alert: &Value| (text(&alert["labels"]["alertname"]), text(&alert["annotations"]["summary"]));
        alerts.as_array().expect("a list").iter().map(of).collect()
    }
}

#[test]
fn alertmanager_knows_that_it_begins_and_that_it_is_over() {
    let (orders, manager) = (refusing(), Manager::start());
    let receivers = format!("  am: {{ alertmanager: \"http://{}\" }}\n", manager.client.address);
    let (_folder, server) = start(&book(&orders, &receivers, "to: [am], repeat: 1h"));
    assert_eq!(manager.raised(), []);
    spoil(&server, "e-1");
    let raised = until("it is raised there", || Some(manager.raised()).filter(|raised| !raised.is_empty()));
    assert_eq!(raised, [("letters".to_owned(), "[critical] letters: 1".to_owned())]);
    mend(&server);
    until("it is over there", || manager.raised().is_empty().then_some(()));
    server.stop().assert_calm();
}
