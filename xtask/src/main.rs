//! Checks and fixes of the workspace.
fn main() {}
