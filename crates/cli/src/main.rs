//! The `timestone` binary.
fn main() {}
