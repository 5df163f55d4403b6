//! API keys as the store sees them: stored, rotated, revoked, and when they were last used.

use quita_storage::backend::{Call, KeyRecord};
use quita_tests::fixture::SECOND;
use quita_tests::{Fixture, on_every_store};

fn key(id: &str, first_byte: u8) -> KeyRecord {
    KeyRecord {
        id: id.into(),
        secret_hash: [first_byte; 32],
        description: "é ' ci".into(),
        scope: "admin".into(),
        created_at: 5,
        revoked_at: None,
        expires_at: None,
        last_used_at: None,
    }
}

/// Keys – stored as given; the first one only while there is none.
async fn a_key_is_stored_as_given(f: &Fixture) {
    assert!(f.backend.keys().await.unwrap().is_empty());
    assert!(
        f.backend
            .add_key(&Call::by("test"), key("k1", 1), true)
            .await
            .unwrap()
    );
    assert!(
        !f.backend
            .add_key(&Call::by("test"), key("k2", 2), true)
            .await
            .unwrap()
    );
    assert!(
        f.backend
            .add_key(&Call::by("test"), key("k2", 2), false)
            .await
            .unwrap()
    );
    let keys = f.backend.keys().await.unwrap();
    assert_eq!(keys, [key("k1", 1), key("k2", 2)]);
}

/// Keys – a successor is stored and the old one ends, both or neither; the last use only moves on.
async fn a_key_is_rotated_and_its_use_noted(f: &Fixture) {
    let (backend, call) = (&f.backend, Call::by("test"));
    let rotate = async |id: &str, ends_at, new: KeyRecord| {
        backend.rotate_key(&call, id, ends_at, new).await.unwrap()
    };
    assert!(!rotate("k1", 90, key("k2", 2)).await);
    assert!(backend.add_key(&call, key("k1", 1), false).await.unwrap());
    assert!(rotate("k1", 90, key("k2", 2)).await);
    assert!(!rotate("k1", 50, key("k2", 3)).await);
    // It never ends later than it would have.
    assert!(rotate("k1", 95, key("k3", 3)).await);
    let used = |at| [("k2".into(), at), ("nobody".into(), at)];
    backend.touch_keys(&used(60_000)).await.unwrap();
    backend.touch_keys(&used(0)).await.unwrap();
    let old = KeyRecord {
        expires_at: Some(90),
        ..key("k1", 1)
    };
    let used = KeyRecord {
        last_used_at: Some(60_000),
        ..key("k2", 2)
    };
    assert_eq!(backend.keys().await.unwrap(), [old, used, key("k3", 3)]);
    assert!(backend.revoke_key(&call, "k1", None).await.unwrap());
    assert!(!rotate("k1", 10, key("k4", 4)).await);
    assert_eq!(backend.keys().await.unwrap().len(), 3);
}

/// Keys – revoked once, and listed with the time.
async fn a_key_is_revoked_once(f: &Fixture) {
    f.backend
        .add_key(&Call::by("test"), key("k1", 1), false)
        .await
        .unwrap();
    f.pass(SECOND);
    let now = Some(f.now());
    assert!(
        f.backend
            .revoke_key(&Call::by("test"), "k1", now)
            .await
            .unwrap()
    );
    assert!(
        !f.backend
            .revoke_key(&Call::by("test"), "k1", now)
            .await
            .unwrap()
    );
    assert!(
        !f.backend
            .revoke_key(&Call::by("test"), "k2", now)
            .await
            .unwrap()
    );
    let keys = f.backend.keys().await.unwrap();
    assert_eq!(keys[0].revoked_at, now);
    assert!(
        !f.backend
            .add_key(&Call::by("test"), key("k2", 2), true)
            .await
            .unwrap()
    );
}

on_every_store![
    a_key_is_stored_as_given,
    a_key_is_rotated_and_its_use_noted,
    a_key_is_revoked_once,
];
