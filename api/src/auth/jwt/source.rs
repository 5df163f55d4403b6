//! Where the keys of one issuer come from, and how old they may get.
//!
//! Keys from a file or a URL are read again every [`REFRESH`], and once more when a token names a key that is not there, but
//! never twice within [`REFETCH`]: tokens with invented names cost the issuer nothing. When reading fails the last
//! good keys count for [`STALE`]; after that nobody knows which keys were withdrawn, and every token is refused.

use super::Now;
use super::fetch::{Fetch, MAX_JWKS_BYTES};
use super::keys::KeySet;
use super::reason::Reason;
use parking_lot::RwLock;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How often keys are read again.
pub const REFRESH: Duration = Duration::from_mins(5);
/// Shortest time between two tries.
pub const REFETCH: Duration = Duration::from_secs(30);
/// How long keys count after the last time they could be read.
pub const STALE: Duration = Duration::from_hours(1);

/// Where keys come from.
pub(super) enum Place {
    /// They are in the settings, and never change.
    Settings,
    /// A JWK set in a file.
    File(PathBuf),
    /// A JWK set behind a URL.
    Url(String, Arc<dyn Fetch>),
}

struct State {
    keys: Arc<KeySet>,
    /// `None`: never yet.
    good_at: Option<Instant>,
    tried_at: Option<Instant>,
    /// Why the last try failed.
    problem: Option<Box<str>>,
}

/// Keeps the keys of one issuer.
pub(super) struct Source {
    issuer: Box<str>,
    place: Place,
    state: RwLock<State>,
    /// Held by the one that reads.
    turn: Arc<Mutex<()>>,
}

impl Source {
    pub(super) fn fixed(issuer: &str, keys: KeySet) -> Self {
        Self::new(issuer, Place::Settings, keys)
    }

    /// Without keys until it was read once.
    pub(super) fn at(issuer: &str, place: Place) -> Self {
        Self::new(issuer, place, KeySet::default())
    }

    fn new(issuer: &str, place: Place, keys: KeySet) -> Self {
        Self {
            issuer: issuer.into(),
            place,
            state: RwLock::new(State {
                keys: Arc::new(keys),
                good_at: None,
                tried_at: None,
                problem: None,
            }),
            turn: Arc::default(),
        }
    }

    /// The keys, if they may be trusted now.
    pub(super) fn keys(&self, now: Instant) -> Result<Arc<KeySet>, Reason> {
        let state = self.state.read();
        if self.is_fresh(&state, now) {
            return Ok(state.keys.clone());
        }
        let why = state.problem.clone();
        Err(Reason::KeysUnavailable(
            why.unwrap_or_else(|| "they were not read yet".into()),
        ))
    }

    /// Whether [`Source::keys`] has an answer.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        self.is_fresh(&self.state.read(), now)
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        let fresh = |at: Instant| now.saturating_duration_since(at) <= STALE;
        matches!(self.place, Place::Settings) || state.good_at.is_some_and(fresh)
    }

    /// Reads again for a token whose key is not among `seen`, or because there are no keys. Whoever comes while somebody
    /// reads waits for what is read.
    pub(super) async fn renew(self: &Arc<Self>, seen: Option<&Arc<KeySet>>, now: Now) {
        if matches!(self.place, Place::Settings) || !self.is_worth(seen, now.ticks) {
            return;
        }
        let turn = self.turn.clone().lock_owned().await;
        if !self.is_worth(seen, now.ticks) {
            return;
        }
        let source = self.clone();
        // The one that asked may leave; what is read is kept all the same, and the turn lasts as long as the reading.
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            source.read(now.ticks);
        });
        if reading.await.is_err() {
            tracing::error!(issuer = &*self.issuer, "reading the keys was cut short");
        }
    }

    /// Reads again if it is time to.
    pub(super) async fn refresh(self: &Arc<Self>, now: Now) {
        let due = {
            let state = self.state.read();
            let pause = if state.problem.is_some() {
                REFETCH
            } else {
                REFRESH
            };
            state
                .tried_at
                .is_none_or(|at| now.ticks.saturating_duration_since(at) >= pause)
        };
        if due {
            self.renew(None, now).await;
        }
    }

    fn is_worth(&self, seen: Option<&Arc<KeySet>>, now: Instant) -> bool {
        let state = self.state.read();
        seen.is_none_or(|seen| Arc::ptr_eq(seen, &state.keys))
            && state
                .tried_at
                .is_none_or(|at| now.saturating_duration_since(at) >= REFETCH)
    }

    /// Reads and keeps. Blocks.
    pub(super) fn read(&self, now: Instant) {
        match self.document().and_then(|bytes| KeySet::from_jwks(&bytes)) {
            Ok(keys) => self.keep(keys, now),
            Err(why) => {
                tracing::warn!(issuer = &*self.issuer, %why, "could not read the keys of a token issuer");
                let mut state = self.state.write();
                state.tried_at = Some(now);
                state.problem = Some(why);
            }
        }
    }

    fn keep(&self, keys: KeySet, now: Instant) {
        let mut state = self.state.write();
        let keys = keys.after(&state.keys);
        tracing::debug!(
            issuer = &*self.issuer,
            keys = keys.len(),
            unfit = ?keys.unfit(),
            "read the keys of a token issuer"
        );
        state.keys = Arc::new(keys);
        // Noted when all is done: whoever comes meanwhile waits for its turn and finds what was read.
        state.tried_at = Some(now);
        state.good_at = Some(now);
        state.problem = None;
    }

    fn document(&self) -> Result<Vec<u8>, Box<str>> {
        match &self.place {
            Place::Settings => Err("its keys never change".into()),
            Place::Url(url, fetch) => fetch
                .fetch(url)
                .map_err(|error| format!("{url}: {error}").into()),
            Place::File(path) => {
                let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
                let mut bytes = Vec::new();
                let file = File::open(path).map_err(|error| failed(&error))?;
                file.take(MAX_JWKS_BYTES + 1)
                    .read_to_end(&mut bytes)
                    .map_err(|error| failed(&error))?;
                if bytes.len() as u64 > MAX_JWKS_BYTES {
                    return Err(failed(&"it is too large").into());
                }
                Ok(bytes)
            }
        }
    }

    /// Why the last reading failed, if it did.
    pub(super) fn problem(&self) -> Option<Box<str>> {
        self.state.read().problem.clone()
    }
}
