//! Questions about letters, asked of rows that were written by hand.
