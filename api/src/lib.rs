//! placeholder
pub mod demo;
