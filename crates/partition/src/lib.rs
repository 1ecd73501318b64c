//! Layer 2: one partition's metadata as a plain state machine: command in, answer out
