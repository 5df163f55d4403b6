//! §5 listings: one state in its own order, no lease, keyset pages.

use quita_storage::model::{MessageId, Place, State};
use quita_storage::rules::operate::Act;
use quita_tests::fixture::{HOUR, LEASE, SECOND, request_id};
use quita_tests::{Fixture, TestQueue, on_every_store};

async fn pages(queue: TestQueue<'_>, state: State, limit: u32) -> Vec<MessageId> {
    let mut browse = queue.browse_item(state);
    browse.limit = limit;
    let all = queue.walk(browse).await;
    all.iter().map(|l| l.message.envelope.id).collect()
}

/// §5 – pages of any size are one listing: nothing missing, nothing twice.
async fn pages_of_any_size_are_one_listing(f: &Fixture) {
    let queue = f.plain_queue().await;
    for n in 0..9_u8 {
        let item = |p: &mut quita_storage::backend::Publish| p.priority = n % 3;
        queue.create("1", item).await;
        queue
            .create("1", |p| p.delay_ms = HOUR + i64::from(n % 4))
            .await;
        f.pass(i64::from(n % 2));
    }
    let leased = queue.receive(4).await;
    for hand in queue.receive(3).await {
        f.nack_permanently(&hand).await.unwrap();
        f.pass(1);
    }
    assert_eq!(leased.len(), 4);
    for state in [State::Ready, State::Delayed, State::Leased, State::Dead] {
        let whole = pages(queue, state, 500).await;
        assert!(!whole.is_empty(), "{state:?}");
        for limit in 1..=5 {
            let listed = pages(queue, state, limit).await;
            assert_eq!(listed, whole, "{state:?} by {limit}");
        }
    }
}

/// §5 – ready in the queue's order, expired and due ones merged into it, across pages.
async fn ready_is_listed_in_the_queues_order(f: &Fixture) {
    let queue = f.plain_queue().await;
    for priority in [5, 4, 5] {
        queue.create("1", |p| p.priority = priority).await;
    }
    queue.receive(2).await;
    queue.create("2", |p| p.delay_ms = SECOND).await;
    f.pass(LEASE);
    queue.create("3", |p| p.priority = 9).await;
    queue.publish("4").await;
    let listed = pages(queue, State::Ready, 2).await;
    let mut received = Vec::new();
    for hand in queue.receive(100).await {
        received.push(hand.id);
    }
    assert_eq!(listed.len(), 6);
    assert_eq!(listed, received);
}

/// §5 – delayed by due time.
async fn delayed_is_listed_by_due_time(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut expected = Vec::new();
    for delay in [5, 3, 4, 3] {
        let id = queue.create("1", |p| p.delay_ms = delay * SECOND).await;
        expected.push((delay, id));
    }
    expected.sort_unstable();
    let ids: Vec<MessageId> = expected.into_iter().map(|(_, id)| id).collect();
    assert_eq!(pages(queue, State::Delayed, 3).await, ids);
}

/// §5 – dead by time of death.
async fn dead_is_listed_by_time_of_death(f: &Fixture) {
    let queue = f.plain_queue().await;
    let later = queue.create("1", |p| p.priority = 0).await;
    let sooner = queue.dead_letter().await.id;
    f.pass(SECOND);
    f.do_act(later, Act::DeadLetter).await;
    assert_eq!(queue.ids(State::Dead).await, [sooner, later]);
}

/// §5 – by request id: at most one message, in its state only.
async fn a_message_is_found_by_its_request_id(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue
        .create("1", |p| p.request_id = Some(request_id("x")))
        .await;
    queue
        .create("2", |p| p.request_id = Some(request_id("y")))
        .await;
    for (state, expected) in [(State::Ready, vec![id]), (State::Leased, vec![])] {
        let mut browse = queue.browse_item(state);
        browse.request_id = Some(request_id("x"));
        let found = queue.walk(browse).await;
        let ids: Vec<MessageId> = found.iter().map(|l| l.message.envelope.id).collect();
        assert_eq!(ids, expected);
    }
    let mut browse = queue.browse_item(State::Ready);
    browse.request_id = Some(request_id("z"));
    assert!(queue.walk(browse).await.is_empty());
}

/// §5 – a search by key passes over the others, page by page.
async fn a_search_by_key_ends(f: &Fixture) {
    let queue = f.plain_queue().await;
    for n in 0..30 {
        let key = if n % 10 == 9 { "rare" } else { "common" };
        queue.create("1", |p| p.key = Some(key.into())).await;
    }
    let mut browse = queue.browse_item(State::Ready);
    browse.key = Some("rare".into());
    browse.limit = 2;
    assert_eq!(queue.walk(browse).await.len(), 3);
}

/// §5 – a listing takes no lease and changes nothing.
async fn a_listing_changes_nothing(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.publish("1").await;
    let before = f.message(id).await.unwrap().message;
    queue.list(State::Ready).await;
    assert_eq!(f.message(id).await.unwrap().message, before);
    assert_eq!(queue.counts().await.delivered, 0);
}

/// §5 – of a page, messages that came before it are not its business: a walk sees each message that stayed once.
async fn a_walk_sees_once_what_stayed(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(queue.publish("1").await);
        f.pass(1);
    }
    let mut browse = queue.browse_item(State::Ready);
    browse.limit = 2;
    let page = f
        .backend
        .browse(browse.clone(), Some(f.now()))
        .await
        .unwrap();
    assert_eq!(page.items.len(), 2);
    let taken = queue.receive(3).await;
    assert_eq!(taken.len(), 3);
    queue.publish("new").await;
    browse.after = page.next;
    let rest = queue.walk(browse).await;
    let seen: Vec<MessageId> = rest.iter().map(|l| l.message.envelope.id).collect();
    assert_eq!(seen[..3], ids[3..]);
}

/// §5 – a listing concerns one queue.
async fn a_listing_concerns_one_queue(f: &Fixture) {
    let one = f.queue("one", |_| {}).await;
    let two = f.queue("two", |_| {}).await;
    let id = one.publish("1").await;
    two.publish("2").await;
    assert_eq!(one.ids(State::Ready).await, [id]);
}

/// §3 – a listed message is as it is now: attempts and place with the time passed.
async fn a_listed_message_is_as_it_is_now(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let expiry = f.now() + LEASE;
    f.pass(LEASE + SECOND);
    let listed = queue.list(State::Ready).await.remove(0);
    let place = Place::Ready {
        available_at: expiry,
    };
    assert_eq!(listed.message.place, place);
    let life = listed.message.life;
    assert_eq!((life.attempts, life.expirations, life.fence), (1, 1, 1));
    let last = listed.last.unwrap();
    assert_eq!((last.fence, last.ended_at), (hand.fence, expiry));
    let detail = f.message(hand.id).await.unwrap();
    assert_eq!(detail.message.unwrap(), listed.message);
    assert_eq!(detail.deliveries, [last]);
}

/// §5 – ages count from the oldest: ready since, dead since.
async fn the_oldest_ages_are_exact(f: &Fixture) {
    let queue = f.plain_queue().await;
    let numbers = queue.numbers().await;
    assert_eq!(
        (numbers.oldest_ready_at, numbers.oldest_dead_at),
        (None, None)
    );
    let died_at = f.now();
    queue.dead_letter().await;
    f.pass(SECOND);
    let ready_at = f.now();
    queue.create("1", |p| p.priority = 0).await;
    f.pass(SECOND);
    queue.create("2", |p| p.priority = 9).await;
    f.nack_permanently(&queue.take().await).await.unwrap();
    let numbers = queue.numbers().await;
    assert_eq!(numbers.oldest_ready_at, Some(ready_at));
    assert_eq!(numbers.oldest_dead_at, Some(died_at));
}

on_every_store![
    pages_of_any_size_are_one_listing,
    ready_is_listed_in_the_queues_order,
    delayed_is_listed_by_due_time,
    dead_is_listed_by_time_of_death,
    a_message_is_found_by_its_request_id,
    a_search_by_key_ends,
    a_listing_changes_nothing,
    a_walk_sees_once_what_stayed,
    a_listing_concerns_one_queue,
    a_listed_message_is_as_it_is_now,
    the_oldest_ages_are_exact,
];
