//! Tests of complete runs, all in one binary, which is linked once.

mod common;
mod drive;
mod growth;
mod memory;
mod panic;
