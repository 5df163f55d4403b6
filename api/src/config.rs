//! Settings.

/// Every setting.
#[derive(Clone, Debug, Default)]
pub struct Config;
