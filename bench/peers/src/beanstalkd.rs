//! beanstalkd: one connection per client; a batch is a row of commands written at once.

use crate::message;
use crate::workload::{Client, Peer, Role};
use anyhow::{Context, Result, bail, ensure};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub struct Beanstalkd {
    address: String,
    queue: String,
}

impl Beanstalkd {
    pub fn new(address: &str, queue: &str) -> Self {
        Self {
            address: address.to_owned(),
            queue: queue.to_owned(),
        }
    }
}

impl Peer for Beanstalkd {
    type Client = Member;

    /// It cannot be emptied: it is started anew for each run.
    async fn set_up(&self) -> Result<()> {
        Ok(())
    }

    async fn connect(&self, _role: Role, _number: usize) -> Result<Member> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let mut member = Member {
            stream: BufReader::new(stream),
            line: String::new(),
        };
        for (command, answer) in [("use", "USING"), ("watch", "WATCHING")] {
            let command = format!("{command} {}\r\n", self.queue);
            member.stream.write_all(command.as_bytes()).await?;
            member.expect(answer).await?;
        }
        Ok(member)
    }
}

pub struct Member {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Member {
    async fn expect(&mut self, answer: &str) -> Result<()> {
        self.line.clear();
        self.stream.read_line(&mut self.line).await?;
        ensure!(
            self.line.starts_with(answer),
            "not {answer} but {:?}",
            self.line
        );
        Ok(())
    }
}

impl Client for Member {
    type Handle = u64;

    async fn publish(&mut self, messages: &[Vec<u8>]) -> Result<()> {
        let mut puts = Vec::with_capacity(messages.len() * (message::BYTES + 32));
        for message in messages {
            puts.extend_from_slice(format!("put 1000 0 60 {}\r\n", message.len()).as_bytes());
            puts.extend_from_slice(message);
            puts.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&puts).await?;
        for _ in messages {
            self.expect("INSERTED").await?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<Option<(Duration, u64)>> {
        self.stream.write_all(b"reserve-with-timeout 1\r\n").await?;
        self.line.clear();
        self.stream.read_line(&mut self.line).await?;
        let mut words = self.line.split_whitespace();
        match words.next() {
            Some("RESERVED") => {}
            Some("TIMED_OUT") => return Ok(None),
            _ => bail!("{:?}", self.line),
        }
        let mut number = || -> Result<u64> { Ok(words.next().context("a short answer")?.parse()?) };
        let (id, length) = (number()?, number()?);
        let mut body = vec![0; length as usize + 2];
        self.stream.read_exact(&mut body).await?;
        Ok(Some((message::age(&body).context("not one of ours")?, id)))
    }

    async fn ack(&mut self, id: u64) -> Result<()> {
        self.stream
            .write_all(format!("delete {id}\r\n").as_bytes())
            .await?;
        self.expect("DELETED").await
    }
}
