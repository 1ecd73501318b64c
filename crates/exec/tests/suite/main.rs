//! Tests of tools and their processes, all in one binary, which is linked once. Those that look at
//! the test's own process are beside it.

mod killed;
mod memory;
mod which;
