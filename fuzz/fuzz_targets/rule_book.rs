//! Any bytes as a rule book.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = redrive_fuzz::laws::rule_book(bytes);
});
