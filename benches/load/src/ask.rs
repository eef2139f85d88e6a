//! HTTP requests to processes of the benchmark: one request per connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Under full load.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(super) fn get<T: DeserializeOwned>(address: SocketAddr, path: &str) -> anyhow::Result<T> {
    read(address, path, &ask(address, "GET", path, "")?)
}

pub(super) fn post_json<T: DeserializeOwned>(
    address: SocketAddr,
    path: &str,
    body: &Value,
) -> anyhow::Result<T> {
    read(address, path, &ask(address, "POST", path, &body.to_string())?)
}

fn read<T: DeserializeOwned>(address: SocketAddr, path: &str, body: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body).with_context(|| format!("http://{address}{path} returned unexpected JSON"))
}

pub(super) fn post(address: SocketAddr, path: &str) -> anyhow::Result<()> {
    ask(address, "POST", path, "").map(drop)
}

fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> anyhow::Result<Vec<u8>> {
    let shown = || format!("could not ask http://{address}{path}");
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX).with_context(shown)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).with_context(shown)?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).with_context(shown)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).with_context(shown)?;
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n").map(|end| end + 4);
    let is_good = [&b"HTTP/1.1 200 "[..], b"HTTP/1.1 201 "].iter().any(|start| answer.starts_with(start));
    let Some(head) = head.filter(|_| is_good) else {
        bail!("http://{address}{path} answered: {}", String::from_utf8_lossy(&answer));
    };
    Ok(answer.split_off(head))
}
