//! quita
fn main() {}
