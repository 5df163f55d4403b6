//! What answers at the other end of a real socket.

use super::*;
use crate::auth::jwt::fetch::{MAX_JWKS_BYTES, Network};
use std::io::{Read, Write};
use std::net::TcpListener;

/// Serves one answer, with pauses between its parts, and the URL of it.
fn serve(parts: Vec<Vec<u8>>, pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.read(&mut [0; 4096]);
        for part in parts {
            if socket.write_all(&part).is_err() {
                return;
            }
            std::thread::sleep(pause);
        }
    });
    url
}

fn fetch(answer: &[u8]) -> Result<Vec<u8>, FetchError> {
    Network::new().fetch(&serve(vec![answer.to_vec()], Duration::ZERO))
}

fn with_length(length: usize) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + length, b' ');
    answer
}

#[test]
fn a_document_of_bounded_size_is_got() {
    assert_eq!(
        fetch(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
        Ok(b"{}".to_vec())
    );
    assert_eq!(
        fetch(&with_length(MAX_JWKS_BYTES as usize)).map(|bytes| bytes.len()),
        Ok(MAX_JWKS_BYTES as usize)
    );
    assert_eq!(
        fetch(&with_length(MAX_JWKS_BYTES as usize + 1)),
        Err(FetchError::TooLarge)
    );
    let endless = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &vec![b' '; 10 << 20]].concat();
    assert_eq!(fetch(&endless), Err(FetchError::TooLarge));
}

#[test]
fn no_redirect_is_followed() {
    for status in [301, 302, 307, 308] {
        let answer = format!(
            "HTTP/1.1 {status} Moved\r\nlocation: https://evil.example/\r\ncontent-length: 0\r\n\r\n"
        );
        assert_eq!(fetch(answer.as_bytes()), Err(FetchError::Status(status)));
    }
    for status in [204, 404, 500] {
        let answer = format!("HTTP/1.1 {status} Word\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(fetch(answer.as_bytes()), Err(FetchError::Status(status)));
    }
}

#[test]
fn a_slow_answer_is_given_up() {
    let mut parts = vec![b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n".to_vec()];
    parts.extend(vec![b" ".to_vec(); 100]);
    let (url, begun) = (serve(parts, Duration::from_millis(50)), Instant::now());
    assert_eq!(
        Network::within(Duration::from_millis(300)).fetch(&url),
        Err(FetchError::TimedOut)
    );
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[test]
fn nothing_there_is_a_failure() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    assert!(matches!(
        Network::new().fetch(&format!("http://{closed}/keys")),
        Err(FetchError::Failed(_))
    ));
    assert!(matches!(
        Network::new().fetch("http://login.example.com/keys"),
        Err(FetchError::Failed(_))
    ));
}
