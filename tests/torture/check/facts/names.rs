//! Names as numbers.

use super::{Index, NONE};
use std::collections::HashMap;
use std::sync::Arc;

/// Every name once, numbered from 0.
#[derive(Default)]
pub(crate) struct Names {
    numbers: HashMap<Arc<str>, Index>,
    names: Vec<Arc<str>>,
}

impl Names {
    /// The number of a name, a new one if need be; [`NONE`] for the empty one.
    pub(crate) fn number(&mut self, name: &str) -> Index {
        if name.is_empty() {
            return NONE;
        }
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let (name, number): (Arc<str>, _) = (name.into(), self.names.len() as Index);
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// The name of a number; `?` for [`NONE`].
    pub(crate) fn of(&self, number: Index) -> &str {
        self.names.get(number as usize).map_or("?", AsRef::as_ref)
    }

    /// The number of a name that is there.
    pub(crate) fn find(&self, name: &str) -> Option<Index> {
        self.numbers.get(name).copied()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}
