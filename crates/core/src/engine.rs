//! The engine.

mod absence;
mod port;

pub use self::absence::Absences;
pub use self::port::{
    Bounds, Call, CallId, Command, Death, Effect, Ending, Fate, Input, Load, Next, Page, QueueName,
    Settlement, Setup, Signal, Waiting, Wanted,
};
