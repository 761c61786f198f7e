//! The entry of the `timestone` binary; everything else is in the library of this crate.

use std::process::ExitCode;

/// Index, marks and cache are tables of many megabytes that are looked at everywhere.
#[global_allocator]
static ALLOCATOR: timestone_io::HugePageAllocator = timestone_io::HugePageAllocator;

fn main() -> ExitCode {
    timestone_cli::run()
}
