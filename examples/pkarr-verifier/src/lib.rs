//! Verifies contacts: does the owner of this key say that this address is theirs?
//!
//! A contact has a key and an address such as `alice@example.test`. The owner of the key signs a small packet of
//! records that names the address, and publishes it in a distributed table; relays in front of the table answer
//! over HTTP. This service looks the packet up, checks it and answers.
//!
//! Relays are slow, busy and sometimes away. [`code`] names what may go wrong, [`lookup`] asks and reports what it
//! saw, `rules.yaml` says what follows from it, and [`verify`] puts it together.

pub mod api;
pub mod code;
pub mod counters;
pub mod lookup;
pub mod relay;
pub mod verify;
