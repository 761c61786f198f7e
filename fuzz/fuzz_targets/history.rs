//! libFuzzer's entry to the target `history`; what it checks is in `src/text.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| timestone_fuzz::history(data));
