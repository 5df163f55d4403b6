//! NATS `JetStream`: a work queue in files, publishes that wait for their ack, explicit acks that are confirmed.

use crate::message;
use crate::workload::{Client, Peer, Role};
use anyhow::{Context as _, Result, anyhow};
use async_nats::jetstream::consumer::pull::Stream;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ContextBuilder, Message};
use futures_util::StreamExt;
use std::time::Duration;

const CONNECTIONS: usize = 4;
/// Messages that a consumer asks for at once.
const PREFETCH: usize = 16;
const CONSUMER: &str = "workers";
const ACK_WAIT: Duration = Duration::from_mins(1);

pub struct Nats {
    contexts: Vec<Context>,
    queue: String,
}

impl Nats {
    pub async fn open(url: &str, queue: &str) -> Result<Self> {
        let mut contexts = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = async_nats::connect(url).await?;
            let builder = ContextBuilder::new().timeout(Duration::from_secs(30));
            contexts.push(builder.max_ack_inflight(100_000).build(client));
        }
        Ok(Self {
            contexts,
            queue: queue.to_owned(),
        })
    }

    fn subject(&self) -> String {
        format!("{}.messages", self.queue)
    }
}

impl Peer for Nats {
    type Client = Member;

    async fn set_up(&self) -> Result<()> {
        let context = &self.contexts[0];
        // Absent at the first run.
        let _ = context.delete_stream(&self.queue).await;
        let stream = context.create_stream(Config {
            name: self.queue.clone(),
            subjects: vec![self.subject()],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            ..Config::default()
        });
        let consumer = pull::Config {
            durable_name: Some(CONSUMER.into()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_ack_pending: 20_000,
            ..pull::Config::default()
        };
        stream.await?.create_consumer(consumer).await?;
        Ok(())
    }

    async fn connect(&self, role: Role, number: usize) -> Result<Member> {
        let context = self.contexts[number % CONNECTIONS].clone();
        let messages = match role {
            Role::Producer => None,
            Role::Consumer => {
                let stream = context.get_stream(&self.queue).await?;
                let consumer: PullConsumer = stream
                    .get_consumer(CONSUMER)
                    .await
                    .map_err(|error| anyhow!(error))?;
                let pull = consumer
                    .stream()
                    .max_messages_per_batch(PREFETCH)
                    .expires(Duration::from_secs(10));
                Some(pull.messages().await?)
            }
        };
        Ok(Member {
            context,
            subject: self.subject(),
            messages,
        })
    }
}

pub struct Member {
    context: Context,
    subject: String,
    messages: Option<Stream>,
}

impl Client for Member {
    type Handle = Message;

    async fn publish(&mut self, messages: &[Vec<u8>]) -> Result<()> {
        let mut acks = Vec::with_capacity(messages.len());
        for message in messages {
            acks.push(
                self.context
                    .publish(self.subject.clone(), message.clone().into())
                    .await?,
            );
        }
        for ack in acks {
            ack.await?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<Option<(Duration, Message)>> {
        let messages = self
            .messages
            .as_mut()
            .context("a producer does not receive")?;
        let Ok(next) = tokio::time::timeout(Duration::from_secs(1), messages.next()).await else {
            return Ok(None);
        };
        let message = next.context("the consumer has ended")??;
        let age = message::age(&message.payload).context("not one of ours")?;
        Ok(Some((age, message)))
    }

    async fn ack(&mut self, message: Message) -> Result<()> {
        message.double_ack().await.map_err(|error| anyhow!(error))
    }
}
