//! The `redrive` command.
fn main() {
    println!("{}", redrive::core::limits::RETRY_AFTER_MAX.as_secs());
}
