//! Tests of mounts of the real kernel, all in one binary, which is linked once.

mod common;
mod files;
mod full;
mod life;
mod locks;
mod opens;
mod posix;
mod random;
mod two_mounts;
mod two_mounts_removal;
