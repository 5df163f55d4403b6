//! quita and the bare handler over HTTP/1.1: one keep-alive connection per client, answers hardly parsed.

use crate::message;
use crate::workload::{Client, Peer, Role};
use anyhow::{Context, Result, bail};
use memchr::memmem;
use std::io::Write;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Http {
    address: String,
    /// quita's queue and key; without them it is the bare handler.
    quita: Option<(String, String)>,
}

impl Http {
    pub fn bare(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            quita: None,
        }
    }

    pub fn quita(address: &str, queue: &str, key: &str) -> Self {
        Self {
            address: address.to_owned(),
            quita: Some((queue.to_owned(), key.to_owned())),
        }
    }
}

impl Peer for Http {
    type Client = Member;

    async fn set_up(&self) -> Result<()> {
        let Some((queue, _)) = &self.quita else {
            return Ok(());
        };
        let mut member = self.connect(Role::Producer, 0).await?;
        member
            .call("PUT", &format!("/v1/queues/{queue}"), b"{}")
            .await?;
        Ok(())
    }

    async fn connect(&self, _role: Role, _number: usize) -> Result<Member> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let (queue, key) = self.quita.clone().unwrap_or_default();
        let bearer = if key.is_empty() {
            String::new()
        } else {
            format!("Authorization: Bearer {key}\r\n")
        };
        Ok(Member {
            stream,
            queue,
            bearer,
            output: Vec::new(),
            input: Vec::new(),
        })
    }
}

pub struct Member {
    stream: TcpStream,
    queue: String,
    bearer: String,
    output: Vec<u8>,
    input: Vec<u8>,
}

impl Member {
    /// Sends a request and reads its whole answer, which must be a success. Answers the body.
    async fn call(&mut self, method: &str, path: &str, body: &[u8]) -> Result<&[u8]> {
        self.output.clear();
        let bearer = &self.bearer;
        write!(
            self.output,
            "{method} {path} HTTP/1.1\r\nHost: quita\r\nContent-Type: application/json\r\n{bearer}Content-Length: {}\r\n\r\n",
            body.len()
        )?;
        self.output.extend_from_slice(body);
        self.stream.write_all(&self.output).await?;
        self.input.clear();
        loop {
            if self.stream.read_buf(&mut self.input).await? == 0 {
                bail!("the connection has ended");
            }
            if let Some((start, end)) = whole(&self.input)?
                && self.input.len() >= end
            {
                if self.input.get(9) != Some(&b'2') {
                    bail!("{}", String::from_utf8_lossy(&self.input));
                }
                return Ok(&self.input[start..end]);
            }
        }
    }
}

/// Where the body begins and ends; `None` while the head is not complete.
fn whole(input: &[u8]) -> Result<Option<(usize, usize)>> {
    let Some(end) = memmem::find(input, b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&input[..end])?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>())
    });
    let length = length.context("an answer without content-length")??;
    Ok(Some((end + 4, end + 4 + length)))
}

fn text_after<'a>(body: &'a [u8], before: &str) -> Option<&'a str> {
    let start = memmem::find(body, before.as_bytes())? + before.len();
    let length = memchr::memchr(b'"', &body[start..])?;
    std::str::from_utf8(&body[start..start + length]).ok()
}

impl Client for Member {
    /// A receipt.
    type Handle = String;

    async fn publish(&mut self, messages: &[Vec<u8>]) -> Result<()> {
        if self.queue.is_empty() {
            self.call("POST", "/m", &messages[0]).await?;
            return Ok(());
        }
        let item = |message: &Vec<u8>| {
            let id = text_after(message, "{\"id\":\"").unwrap_or_default();
            format!(
                "\"message\":{},\"client_request_id\":\"{id}\"",
                String::from_utf8_lossy(message)
            )
        };
        if let [one] = messages {
            let body = format!("{{\"queue\":\"{}\",{}}}", self.queue, item(one));
            self.call("POST", "/v1/queue/publish", body.as_bytes())
                .await?;
            return Ok(());
        }
        let items: Vec<String> = messages
            .iter()
            .map(|message| format!("{{{}}}", item(message)))
            .collect();
        let body = format!(
            "{{\"queue\":\"{}\",\"messages\":[{}]}}",
            self.queue,
            items.join(",")
        );
        let answer = self
            .call("POST", "/v1/queue/publish-batch", body.as_bytes())
            .await?;
        memmem::find(answer, b"\"rejected\":0").context("some were refused")?;
        Ok(())
    }

    async fn receive(&mut self) -> Result<Option<(Duration, String)>> {
        let body = format!(
            "{{\"queue\":\"{}\",\"max_messages\":1,\"wait_seconds\":1}}",
            self.queue
        );
        let answer = self
            .call("POST", "/v1/queue/receive", body.as_bytes())
            .await?;
        let Some(receipt) = text_after(answer, "\"receipt\":\"") else {
            return Ok(None);
        };
        Ok(Some((
            message::age(answer).context("not one of ours")?,
            receipt.to_owned(),
        )))
    }

    async fn ack(&mut self, receipt: String) -> Result<()> {
        let body = format!("{{\"receipt\":\"{receipt}\"}}");
        self.call("POST", "/v1/queue/ack", body.as_bytes()).await?;
        Ok(())
    }
}
