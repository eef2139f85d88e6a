//! Names lead nowhere that the book gives no leave for, whatever they resolve to.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::server::{Act, Server, answer};
use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A target at that name, which resolves by that list.
fn named(name: &str, port: u16, network: Network, pool: &Arc<Pool>) -> HttpTarget {
    let options = HttpOptions { network, ..options(HttpFormat::Binary, None, 64) };
    let address = format!("http://{name}:{port}/hooks?key=hunter2");
    HttpTarget::new(&address, options, Arc::clone(pool)).expect("an address")
}

fn resolving(list: fn(&str) -> Vec<IpAddr>) -> Arc<Pool> {
    Arc::new(Pool::new(Roots::Only(Vec::new())).resolving(list))
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_and_says_what_to_change() {
    fn list(name: &str) -> Vec<IpAddr> {
        let addresses: &[&str] = match name {
            "private.test" => &["10.0.0.5"],
            "metadata.test" => &["169.254.169.254"],
            "mapped.test" => &["::ffff:127.0.0.1"],
            "several.test" => &["fd00::1", "127.0.0.1"],
            "0x7f.1" | "2130706433" => &["127.0.0.1"],
            _ => &[],
        };
        addresses.iter().map(|one| one.parse().expect("an address")).collect()
    }
    let server = Server::start(vec![answer("200 OK", "")]).await;
    #[rustfmt::skip]
    let cases = [
        ("private.test",  "10.0.0.5, a private address"),
        ("metadata.test", "169.254.169.254, the address of a cloud's metadata service"),
        ("mapped.test",   "::ffff:127.0.0.1, an address of this machine"),
        ("several.test",  "fd00::1, a private address"),
        ("0x7f.1",        "127.0.0.1, an address of this machine"),
        ("2130706433",    "127.0.0.1, an address of this machine"),
    ];
    for (name, what) in cases {
        let target = named(name, server.port(), Network::Public, &resolving(list));
        let expected = format!(
            "Transport(AddressRefused), service shop, line 4: {name}:PORT resolves to {what}: write `network: private` beside its address to allow it"
        );
        assert_eq!(told(&post(&target).await, server.port()), expected, "{name}");
    }
    assert_eq!(server.log(|log| log.accepted), 0, "nobody was called");
    let target = named("nobody.test", server.port(), Network::Public, &resolving(list));
    let expected = "Transport(Dns), DNS lookup of nobody.test failed: it has no address";
    assert_eq!(told(&post(&target).await, server.port()), expected, "no address is no refusal");
}

#[tokio::test]
async fn leave_lets_a_name_lead_inside() {
    let server = Server::start(vec![answer("200 OK", "")]).await;
    let target = named("inside.test", server.port(), Network::Private, &resolving(|_| vec![HERE]));
    assert_eq!(told(&post(&target).await, server.port()), r#"200 "", 200 OK"#);
}

#[tokio::test]
async fn a_name_that_the_system_resolves_is_judged_too() {
    let server = Server::start(vec![answer("200 OK", "")]).await;
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    for name in ["localhost", "0x7f.1", "127.1", "2130706433"] {
        let ending = post(&named(name, server.port(), Network::Public, &pool)).await;
        // Not every system takes every spelling; none lets one through.
        let text = told(&ending, server.port());
        assert!(text.contains("AddressRefused") || text.contains("Transport(Dns)"), "{name}: {text}");
    }
    assert_eq!(server.log(|log| log.accepted), 0, "nobody was called");
    let allowed = named("localhost", server.port(), Network::Private, &pool);
    assert_eq!(told(&post(&allowed).await, server.port()), r#"200 "", 200 OK"#);
}

#[tokio::test]
async fn a_kept_connection_is_only_for_those_who_may_make_it() {
    let server = Server::start(vec![answer("200 OK", "")]).await;
    let pool = resolving(|_| vec![HERE]);
    let allowed = named("inside.test", server.port(), Network::Private, &pool);
    let guarded = named("inside.test", server.port(), Network::Public, &pool);
    assert_eq!(told(&post(&allowed).await, server.port()), r#"200 "", 200 OK"#);
    assert_eq!(pool.ready_count(), 1, "a connection to that name is there");
    assert!(told(&post(&guarded).await, server.port()).starts_with("Transport(AddressRefused)"));
    assert_eq!(server.log(|log| log.requests.len()), 1);
}

#[tokio::test]
async fn the_address_that_was_judged_is_the_one_that_is_called() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    /// Another answer each time, as an attacker's name server would have it.
    fn changing(_name: &str) -> Vec<IpAddr> {
        match ASKED.fetch_add(1, Ordering::SeqCst) {
            0 => vec![HERE],
            // Nobody listens there.
            _ => vec![IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))],
        }
    }
    // One that hangs up, so that each call needs a connection.
    let server = Server::start(vec![answer("200 OK", ""), Act::Close]).await;
    let pool = resolving(changing);
    let target = named("rebound.test", server.port(), Network::Private, &pool);
    assert_eq!(told(&post(&target).await, server.port()), r#"200 "", 200 OK"#);
    assert_eq!(ASKED.load(Ordering::SeqCst), 1, "one look-up for one connection");
    until("news of the end", || pool.ready_count() == 0).await;
    assert!(told(&post(&target).await, server.port()).starts_with("Transport(Refused)"));
    assert_eq!(ASKED.load(Ordering::SeqCst), 2, "and another for the next");
    let guarded = named("rebound.test", server.port(), Network::Public, &pool);
    assert!(told(&post(&guarded).await, server.port()).starts_with("Transport(AddressRefused)"));
}
