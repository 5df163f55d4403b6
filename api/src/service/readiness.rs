//! Whether the store answers, asked once for all who want to know: anybody may ask `/readyz`, and each look would otherwise
//! stand in the store's line of writers.

use super::Result;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long an answer is good, whatever it says.
const GOOD_FOR: Duration = Duration::from_millis(500);

/// The last answer, and a place for one who looks for the next.
#[derive(Default)]
pub(super) struct Readiness {
    last: Mutex<Option<(Instant, Result<()>)>>,
}

impl Readiness {
    /// The last answer if it is good at `now`, that of a look which others wait for already, or what `look` finds.
    pub(super) async fn at(
        &self,
        now: Instant,
        look: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let mut last = self.last.lock().await;
        if let Some((found, answer)) = &*last
            && now.saturating_duration_since(*found) < GOOD_FOR
        {
            return answer.clone();
        }
        let answer = look.await;
        // The look may have taken long.
        *last = Some((Instant::now().max(now), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::super::Error;
    use super::*;
    use futures_util::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn many_who_ask_at_once_look_once_and_the_answer_is_good_for_a_while() {
        for answer in [Ok(()), Err(Error::QueueBusy)] {
            let (readiness, looks) = (Readiness::default(), AtomicUsize::new(0));
            let ask = |now| {
                let look = async {
                    looks.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    answer.clone()
                };
                readiness.at(now, look)
            };
            let now = Instant::now();
            for got in join_all((0..100).map(|_| ask(now))).await {
                assert_eq!(got.is_ok(), answer.is_ok());
            }
            assert_eq!(looks.load(Ordering::Relaxed), 1);
            assert_eq!(ask(Instant::now()).await.is_ok(), answer.is_ok());
            assert_eq!(looks.load(Ordering::Relaxed), 1);
            let _ = ask(Instant::now() + GOOD_FOR).await;
            assert_eq!(looks.load(Ordering::Relaxed), 2);
        }
    }

    #[tokio::test]
    async fn one_who_goes_away_while_looking_holds_up_nobody() {
        let readiness = Readiness::default();
        let gone = readiness.at(Instant::now(), std::future::pending());
        assert!(futures_util::FutureExt::now_or_never(gone).is_none());
        let next = readiness.at(Instant::now(), std::future::ready(Ok(())));
        assert!(next.await.is_ok());
    }
}
