//! §3: the life of a message.

use quita_storage::model::State;
use quita_tests::{Fixture, on_every_store};

/// §3 – publish, no delay → ready; counts accepted.
async fn a_publish_without_delay_is_ready(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.publish("1").await;
    assert_eq!(queue.ids(State::Ready).await, [id]);
    assert_eq!(queue.counts().await.accepted, 1);
}

on_every_store![a_publish_without_delay_is_ready];
