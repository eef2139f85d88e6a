//! Any bytes as a request with events, in every form.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = redrive_fuzz::laws::event(bytes);
});
