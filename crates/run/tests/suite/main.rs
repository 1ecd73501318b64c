//! Tests of complete runs, all in one binary, which is linked once.

mod drive;
mod memory;
mod panic;
