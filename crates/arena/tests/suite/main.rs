//! Tests of the arena, all in one binary, which is linked once.

mod extent_files;
mod recv_buffers;
mod space;
mod threads;
mod write_segments;
