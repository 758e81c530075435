#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qos::testing::contract(bytes));
