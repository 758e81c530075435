#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| engines::testing::mqtt(bytes));
