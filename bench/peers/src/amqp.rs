//! `RabbitMQ` over AMQP: a quorum queue, publisher confirms, manual acks.
//!
//! AMQP has no answer to an ack: it is sent, and whether the broker took it is not known. That makes its lifecycle cheaper than
//! that of queues whose acks are answered.

use crate::message;
use crate::workload::{Client, Peer, Role};
use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer};
use std::time::Duration;

/// TCP connections; each client has a channel of its own on one of them, as AMQP wants it.
const CONNECTIONS: usize = 8;
/// Messages that a consumer is sent before it has acked any.
const PREFETCH: u16 = 16;
/// On disk before it is confirmed.
const PERSISTENT: u8 = 2;

pub struct Amqp {
    connections: Vec<Connection>,
    queue: String,
}

impl Amqp {
    pub async fn open(url: &str, queue: &str) -> Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Connection::connect(url, ConnectionProperties::default()).await?);
        }
        Ok(Self {
            connections,
            queue: queue.to_owned(),
        })
    }
}

impl Peer for Amqp {
    type Client = Member;

    async fn set_up(&self) -> Result<()> {
        let channel = self.connections[0].create_channel().await?;
        channel
            .queue_delete(self.queue.as_str().into(), QueueDeleteOptions::default())
            .await?;
        let mut arguments = FieldTable::default();
        arguments.insert(
            "x-queue-type".into(),
            AMQPValue::LongString("quorum".into()),
        );
        channel
            .queue_declare(
                self.queue.as_str().into(),
                QueueDeclareOptions::durable(),
                arguments,
            )
            .await?;
        Ok(())
    }

    async fn connect(&self, role: Role, number: usize) -> Result<Member> {
        let channel = self.connections[number % CONNECTIONS]
            .create_channel()
            .await?;
        let consumer = match role {
            Role::Producer => {
                channel
                    .confirm_select(ConfirmSelectOptions::default())
                    .await?;
                None
            }
            Role::Consumer => {
                channel
                    .basic_qos(PREFETCH, BasicQosOptions::default())
                    .await?;
                let consume = channel.basic_consume(
                    self.queue.as_str().into(),
                    "".into(),
                    BasicConsumeOptions::default(),
                    FieldTable::default(),
                );
                Some(consume.await?)
            }
        };
        Ok(Member {
            channel,
            queue: self.queue.clone(),
            consumer,
        })
    }
}

pub struct Member {
    channel: Channel,
    queue: String,
    consumer: Option<Consumer>,
}

impl Client for Member {
    type Handle = Delivery;

    async fn publish(&mut self, messages: &[Vec<u8>]) -> Result<()> {
        let mut confirms = Vec::with_capacity(messages.len());
        for message in messages {
            let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
            let options = BasicPublishOptions::default();
            let publish = self.channel.basic_publish(
                "".into(),
                self.queue.as_str().into(),
                options,
                message,
                properties,
            );
            confirms.push(publish.await?);
        }
        for confirm in confirms {
            ensure!(confirm.await?.is_ack(), "a publish was refused");
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<Option<(Duration, Delivery)>> {
        let consumer = self
            .consumer
            .as_mut()
            .context("a producer does not receive")?;
        let Ok(next) = tokio::time::timeout(Duration::from_secs(1), consumer.next()).await else {
            return Ok(None);
        };
        let delivery = next.context("the consumer was cancelled")??;
        let age = message::age(&delivery.data).context("not one of ours")?;
        Ok(Some((age, delivery)))
    }

    async fn ack(&mut self, delivery: Delivery) -> Result<()> {
        delivery.acker.ack(BasicAckOptions::default()).await?;
        Ok(())
    }
}
