//! Pure analysis on top of the rule book: simulation, backtest, doctor, conversion to and from other formats.

pub(crate) mod backtest;
pub(crate) mod convert;
pub(crate) mod doctor;
pub(crate) mod simulate;
