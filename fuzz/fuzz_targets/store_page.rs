//! libFuzzer's entry to the target `store_page`; what it checks is in `src/lib.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| timestone_fuzz::store_page(data));
