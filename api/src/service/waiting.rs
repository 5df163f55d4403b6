//! Places for receives that wait: bounded in all, and for each caller if so set.

use super::{Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    taken: AtomicUsize,
    max: usize,
    max_per_caller: Option<usize>,
    /// By caller; whoever waits with none is not in it. Not used without a bound.
    by_caller: Mutex<HashMap<Arc<str>, usize>>,
}

/// A place that is taken until it is dropped.
#[derive(Debug)]
pub(super) struct WaitingPlace<'a> {
    places: &'a Places,
    caller: Option<Arc<str>>,
}

impl Places {
    pub(super) fn new(max: usize, max_per_caller: Option<usize>) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            max,
            max_per_caller,
            by_caller: Mutex::default(),
        }
    }

    /// Places taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// A place for `caller`.
    pub(super) fn take(&self, caller: &Arc<str>) -> Result<WaitingPlace<'_>> {
        let before = self.taken.fetch_add(1, Relaxed);
        let mut place = WaitingPlace {
            places: self,
            caller: None,
        };
        if before >= self.max {
            return Err(Error::TooManyWaiting);
        }
        if let Some(max) = self.max_per_caller {
            let mut by_caller = self.by_caller.lock();
            let own = by_caller.entry(caller.clone()).or_default();
            if *own >= max {
                return Err(Error::TooManyWaitingOfKey);
            }
            *own += 1;
            place.caller = Some(caller.clone());
        }
        Ok(place)
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Relaxed);
        let Some(caller) = &self.caller else { return };
        let mut by_caller = self.places.by_caller.lock();
        if let Some(own) = by_caller.get_mut(caller) {
            *own -= 1;
            if *own == 0 {
                by_caller.remove(caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_its_own_bound_and_all_have_one() {
        let places = Places::new(3, Some(2));
        let (a, b) = ("a".into(), "b".into());
        let first = places.take(&a).unwrap();
        let second = places.take(&a).unwrap();
        assert!(matches!(places.take(&a), Err(Error::TooManyWaitingOfKey)));
        let third = places.take(&b).unwrap();
        assert!(matches!(places.take(&b), Err(Error::TooManyWaiting)));
        drop(first);
        assert_eq!(places.taken(), 2);
        drop((places.take(&a).unwrap(), second, third));
        assert_eq!(places.taken(), 0);
        assert!(places.by_caller.lock().is_empty());
    }
}
