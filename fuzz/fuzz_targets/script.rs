//! libFuzzer's entry to the target `script`; what it checks is in `src/text.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| timestone_fuzz::script(data));
