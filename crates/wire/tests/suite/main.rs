//! Tests of messages and their encoding, all in one binary, which is linked once.

mod document;
mod frames;
mod fuzz;
mod handshake;
mod round_trip;
mod samples;
mod values;
