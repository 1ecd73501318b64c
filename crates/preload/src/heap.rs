//! Memory of our own, straight from the kernel: a program's `malloc` may be in the middle of something when it comes to us, or come to us itself.

#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;
