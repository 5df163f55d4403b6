//! `quita health`: for container images that have no other client.

use super::Done;
use crate::config::Config;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that is ready answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) fn run(listen: SocketAddr) -> Done {
    let url = Config::local_url(listen);
    let host = url.trim_start_matches("http://");
    let status = ask(host).map_err(|error| format!("{url}/readyz: {error}"))?;
    if status.split(' ').nth(1) == Some("200") {
        println!("ready");
        Ok(())
    } else {
        Err(format!("{url}/readyz: {status}").into())
    }
}

fn ask(host: &str) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let mut stream = TcpStream::connect_timeout(&host.parse()?, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET /readyz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    // The status line is enough, and an answer that goes on beyond this is not ours.
    stream.take(4096).read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or("no answer").to_owned())
}
