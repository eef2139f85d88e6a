//! Any bytes as a request in the easy form.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = redrive_fuzz::laws::easy_event(bytes);
});
