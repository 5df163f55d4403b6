//! §2, §5: dead letters as an operator sees them: listings both ways, filters, groups.

use quita_storage::dead_letters::{DeadFilter, DeadGroup, DeadListing, KeyFilter, Range, Span};
use quita_storage::model::{MessageId, QueueUid, Reason};
use quita_storage::rules::group;
use quita_storage::rules::operate::Act;
use quita_tests::fixture::{LEASE, SECOND, TestQueue, discard, redrive};
use quita_tests::{Fixture, on_every_store};

async fn ids(queue: TestQueue<'_>, newest_first: bool) -> Vec<MessageId> {
    let listed = queue
        .dead_listing(DeadFilter::default(), newest_first)
        .await;
    listed.iter().map(|l| l.message.envelope.id).collect()
}

async fn groups(f: &Fixture, queues: Option<&[QueueUid]>, filter: &DeadFilter) -> Vec<DeadGroup> {
    let now = Some(f.now());
    let found = f.backend.dead_groups(queues, filter, 100, now).await;
    found.unwrap().groups
}

/// §5 – keyset pages in both directions, also over deaths of one moment.
async fn dead_letters_are_listed_both_ways(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut expected = Vec::new();
    for round in 0..8 {
        expected.push(queue.dead_letter().await.id);
        if round % 3 == 0 {
            f.pass(SECOND);
        }
    }
    assert_eq!(ids(queue, false).await, expected);
    expected.reverse();
    assert_eq!(ids(queue, true).await, expected);
}

/// §5 – a page that begins in the middle of deaths of one moment neither repeats nor leaves out.
async fn a_page_goes_on_behind_any_place(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(queue.dead_letter().await.id);
    }
    for newest_first in [false, true] {
        if newest_first {
            all.reverse();
        }
        for limit in 1..=5 {
            let listing = DeadListing {
                queues: Some(vec![queue.uid]),
                filter: DeadFilter::default(),
                after: None,
                newest_first,
                limit,
            };
            let now = Some(f.now());
            let page = f.backend.dead_letters(&listing, now).await.unwrap();
            let found: Vec<MessageId> = page.items.iter().map(|l| l.message.envelope.id).collect();
            assert_eq!(found, all[..limit as usize]);
            assert_eq!(page.next.is_some(), limit < 5, "{limit}");
            let Some(after) = page.next else { continue };
            let rest = DeadListing {
                after: Some(after),
                limit: 100,
                ..listing
            };
            let page = f.backend.dead_letters(&rest, now).await.unwrap();
            let found: Vec<MessageId> = page.items.iter().map(|l| l.message.envelope.id).collect();
            assert_eq!(found, all[limit as usize..]);
        }
    }
}

/// §5 – each filter by itself, and together.
async fn filters_mean_what_they_say(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 1).await;
    let begin = f.now();
    let declined = queue
        .dead_with(
            |p| p.key = Some("card-1".into()),
            "declined",
            "card is cancelled",
        )
        .await;
    f.pass(SECOND);
    let late = queue
        .dead_with(
            |p| p.key = Some("card-2".into()),
            "503",
            "timeout after 20 ms",
        )
        .await;
    f.pass(SECOND);
    let expired = queue.create("1", |p| p.key = Some("order-1".into())).await;
    queue.take().await;
    f.pass_and_sweep(LEASE).await;
    let taken = queue.publish("1").await;
    f.do_act(taken, Act::DeadLetter).await;
    f.pass(SECOND);
    // One that was redriven once.
    f.do_act(late, redrive(false)).await;
    let hand = queue.take().await;
    f.nack(&hand).await.unwrap();

    let all = DeadFilter::default;
    let text = |text: &str| Some(text.to_owned());
    let late_group = group::of(Reason::MaxAttempts, Some("E1"), Some("it failed"));
    let cases = [
        (all(), vec![declined, expired, taken, late]),
        (
            DeadFilter {
                reason: Some(Reason::LeaseExpired),
                ..all()
            },
            vec![expired],
        ),
        (
            DeadFilter {
                reason: Some(Reason::Operator),
                ..all()
            },
            vec![taken],
        ),
        (
            DeadFilter {
                reason: Some(Reason::MaxAttempts),
                ..all()
            },
            vec![late],
        ),
        (
            DeadFilter {
                reason: Some(Reason::Expired),
                ..all()
            },
            vec![],
        ),
        (
            DeadFilter {
                error_code: text("declined"),
                ..all()
            },
            vec![declined],
        ),
        (
            DeadFilter {
                error_code: text("decline"),
                ..all()
            },
            vec![],
        ),
        (
            DeadFilter {
                group: Some(late_group),
                ..all()
            },
            vec![late],
        ),
        (
            DeadFilter {
                key: Some(KeyFilter::Exactly("card-1".into())),
                ..all()
            },
            vec![declined],
        ),
        (
            DeadFilter {
                key: Some(KeyFilter::Exactly("card-".into())),
                ..all()
            },
            vec![],
        ),
        (
            DeadFilter {
                key: Some(KeyFilter::Prefix("card-".into())),
                ..all()
            },
            vec![declined, late],
        ),
        (
            DeadFilter {
                key: Some(KeyFilter::Prefix("order-1".into())),
                ..all()
            },
            vec![expired],
        ),
        (
            DeadFilter {
                died: Span {
                    from: Some(begin + 1),
                    until: None,
                },
                ..all()
            },
            vec![expired, taken, late],
        ),
        (
            DeadFilter {
                died: Span {
                    from: Some(begin),
                    until: Some(begin + 1),
                },
                ..all()
            },
            vec![declined],
        ),
        (
            DeadFilter {
                died: Span {
                    from: None,
                    until: Some(begin),
                },
                ..all()
            },
            vec![],
        ),
        (
            DeadFilter {
                published: Span {
                    from: Some(begin + 1),
                    until: Some(begin + 2 * SECOND),
                },
                ..all()
            },
            vec![late],
        ),
        (
            DeadFilter {
                attempts: Range {
                    min: Some(1),
                    max: None,
                },
                ..all()
            },
            vec![declined, expired, late],
        ),
        (
            DeadFilter {
                attempts: Range {
                    min: None,
                    max: Some(0),
                },
                ..all()
            },
            vec![taken],
        ),
        (
            DeadFilter {
                redrives: Range {
                    min: Some(1),
                    max: Some(1),
                },
                ..all()
            },
            vec![late],
        ),
        (
            DeadFilter {
                edited: Some(true),
                ..all()
            },
            vec![],
        ),
        (
            DeadFilter {
                edited: Some(false),
                reason: Some(Reason::MaxAttempts),
                ..all()
            },
            vec![late],
        ),
        (
            DeadFilter {
                key: Some(KeyFilter::Prefix("card".into())),
                reason: Some(Reason::PermanentFailure),
                error_code: text("declined"),
                ..all()
            },
            vec![declined],
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(queue.dead(filter.clone()).await, expected, "{filter:?}");
        let mut newest: Vec<MessageId> = queue
            .dead_listing(filter.clone(), true)
            .await
            .iter()
            .map(|l| l.message.envelope.id)
            .collect();
        newest.reverse();
        assert_eq!(newest, expected, "newest first: {filter:?}");
        let selection = queue.select(filter.clone()).await;
        assert_eq!(selection.figures.count, expected.len() as i64, "{filter:?}");
        let grouped: i64 = groups(f, Some(&[queue.uid]), &filter)
            .await
            .iter()
            .map(|g| g.count)
            .sum();
        assert_eq!(grouped, expected.len() as i64, "{filter:?}");
    }
}

/// §5 – a key prefix is compared byte by byte: `%`, `_` and what sorts last are ordinary.
async fn a_key_prefix_is_literal(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut made = Vec::new();
    for key in ["a%b", "aXb", "a_b", "é", "e", "\u{10ffff}z", "a"] {
        let id = queue
            .dead_with(|p| p.key = Some(key.into()), "E", "e")
            .await;
        made.push((key, id));
        f.pass(1);
    }
    for prefix in ["a", "a%", "a_", "é", "e", "\u{10ffff}", "b"] {
        let expected: Vec<MessageId> = made
            .iter()
            .filter(|(key, _)| key.starts_with(prefix))
            .map(|(_, id)| *id)
            .collect();
        let filter = DeadFilter {
            key: Some(KeyFilter::Prefix(prefix.into())),
            ..DeadFilter::default()
        };
        assert_eq!(queue.dead(filter).await, expected, "{prefix:?}");
    }
}

/// §5 – across queues, by time of death; a deleted or purged queue has none.
async fn dead_letters_are_listed_across_queues(f: &Fixture) {
    let (a, b) = (f.queue("a", |_| {}).await, f.queue("b", |_| {}).await);
    let c = f.queue("c", |_| {}).await;
    let first = a.dead_letter().await.id;
    f.pass(SECOND);
    let second = b.dead_letter().await.id;
    f.pass(SECOND);
    let gone = c.dead_letter().await.id;
    f.pass(SECOND);
    let third = a.dead_letter().await.id;
    let listed = async |queues: Option<Vec<QueueUid>>, newest_first| {
        let listing = DeadListing {
            queues,
            filter: DeadFilter::default(),
            after: None,
            newest_first,
            limit: 100,
        };
        let now = Some(f.now());
        let page = f.backend.dead_letters(&listing, now).await.unwrap();
        let ids: Vec<MessageId> = page.items.iter().map(|l| l.message.envelope.id).collect();
        ids
    };
    assert_eq!(listed(None, false).await, [first, second, gone, third]);
    assert_eq!(listed(None, true).await, [third, gone, second, first]);
    let some = Some(vec![a.uid, b.uid]);
    assert_eq!(listed(some.clone(), false).await, [first, second, third]);
    assert_eq!(listed(Some(vec![]), false).await, []);
    c.delete(true).await;
    b.purge(true).await;
    assert_eq!(listed(None, false).await, [first, third]);
    assert_eq!(listed(some, true).await, [third, first]);
    let counted = groups(f, None, &DeadFilter::default()).await;
    assert_eq!(counted.iter().map(|g| g.count).sum::<i64>(), 2);
}

/// §5 – what failed alike is one group: numbers and ids in the text do not count; the largest first.
async fn what_failed_alike_is_one_group(f: &Fixture) {
    let queue = f.plain_queue().await;
    let begin = f.now();
    let mut last = None;
    for (ms, order) in [(3_021, 981), (7, 4), (12_000, 17)] {
        let text = format!("timeout after {ms} ms for order {order}");
        last = Some(queue.dead_of("503", &text).await);
        f.pass(SECOND);
    }
    queue.dead_of("503", "connection refused").await;
    queue
        .dead_of("declined", "timeout after 7 ms for order 4")
        .await;
    queue
        .dead_of("declined", "timeout after 9 ms for order 5")
        .await;
    let found = groups(f, Some(&[queue.uid]), &DeadFilter::default()).await;
    let counts: Vec<(i64, Option<&str>)> = found
        .iter()
        .map(|g| (g.count, g.error_code.as_deref()))
        .collect();
    assert_eq!(
        counts,
        [(3, Some("503")), (2, Some("declined")), (1, Some("503"))]
    );
    let largest = &found[0];
    assert_eq!(largest.reason, Reason::PermanentFailure);
    assert_eq!(
        (largest.first_died_at, largest.last_died_at),
        (begin, begin + 2 * SECOND)
    );
    assert_eq!(Some(largest.example), last);
    let detail = largest.example_detail.as_deref();
    assert_eq!(detail, Some("timeout after 12000 ms for order 17"));
    let text = group::text(largest.reason, detail);
    assert_eq!(text.as_deref(), Some("timeout after # ms for order #"));

    let filter = DeadFilter {
        group: Some(largest.group),
        ..DeadFilter::default()
    };
    assert_eq!(queue.dead(filter).await.len(), 3);
    let now = Some(f.now());
    let two = f
        .backend
        .dead_groups(None, &DeadFilter::default(), 2, now)
        .await;
    let two = two.unwrap();
    assert_eq!((two.groups.len(), two.more), (2, true));
}

/// §5 – a group is counted by queue, and has the same number in all of them.
async fn a_group_has_one_number_in_all_queues(f: &Fixture) {
    let (a, b) = (f.queue("a", |_| {}).await, f.queue("b", |_| {}).await);
    a.dead_of("503", "timeout after 1 ms").await;
    a.dead_of("503", "timeout after 2 ms").await;
    b.dead_of("503", "timeout after 3 ms").await;
    let found = groups(f, None, &DeadFilter::default()).await;
    let seen: Vec<(QueueUid, i64)> = found.iter().map(|g| (g.queue, g.count)).collect();
    assert_eq!(seen, [(a.uid, 2), (b.uid, 1)]);
    assert_eq!(found[0].group, found[1].group);
}

/// §3, §4.5 – a late nack of a dead letter moves it to the group of what it says.
async fn a_late_nack_moves_a_dead_letter_to_its_group(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_lease_expirations = 1).await;
    let hand = queue.publish_and_take().await;
    f.pass_and_sweep(LEASE).await;
    let before = groups(f, None, &DeadFilter::default()).await;
    assert_eq!(before[0].reason, Reason::LeaseExpired);
    f.nack(&hand).await.unwrap();
    let after = groups(f, None, &DeadFilter::default()).await;
    assert_eq!((after.len(), after[0].count), (1, 1));
    assert_eq!(after[0].reason, Reason::MaxAttempts);
    assert_eq!(after[0].error_code.as_deref(), Some("E1"));
    assert_ne!(after[0].group, before[0].group);
}

/// §3 – what is decided is in no listing and no group any more.
async fn what_is_decided_is_listed_no_more(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (a, b) = (queue.dead_letter().await.id, queue.dead_letter().await.id);
    let c = queue.dead_letter().await.id;
    f.do_act(a, redrive(false)).await;
    f.do_act(b, discard()).await;
    assert_eq!(queue.dead(DeadFilter::default()).await, [c]);
    let found = groups(f, None, &DeadFilter::default()).await;
    assert_eq!((found.len(), found[0].count, found[0].example), (1, 1, c));
}

/// §3 – a decision is about one id, also among many that died in one moment.
async fn one_of_many_that_died_at_once_is_decided(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(queue.dead_letter().await.id);
    }
    let (redriven, discarded) = (ids.remove(7), ids.remove(11));
    f.do_act(redriven, redrive(false)).await;
    f.do_act(discarded, discard()).await;
    assert_eq!(queue.dead(DeadFilter::default()).await, ids);
    assert_eq!(queue.take().await.id, redriven);
}

on_every_store![
    one_of_many_that_died_at_once_is_decided,
    dead_letters_are_listed_both_ways,
    a_page_goes_on_behind_any_place,
    filters_mean_what_they_say,
    a_key_prefix_is_literal,
    dead_letters_are_listed_across_queues,
    what_failed_alike_is_one_group,
    a_group_has_one_number_in_all_queues,
    a_late_nack_moves_a_dead_letter_to_its_group,
    what_is_decided_is_listed_no_more,
];
