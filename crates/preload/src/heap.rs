//! Memory of our own, straight from the kernel: a program's `malloc` may be in the middle of something when it comes to us, or come to us itself.
//!
//! A handler that comes while its thread takes memory would wait for that thread, so signals wait meanwhile.

use crate::guard::Quiet;
use dlmalloc::GlobalDlmalloc;
use std::alloc::{GlobalAlloc, Layout};

#[global_allocator]
static HEAP: Heap = Heap;

struct Heap;

// SAFETY: all is done by the allocator that is asked.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _quiet = Quiet::begin();
        // SAFETY: as we were asked.
        unsafe { GlobalDlmalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _quiet = Quiet::begin();
        // SAFETY: as we were asked.
        unsafe { GlobalDlmalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let _quiet = Quiet::begin();
        // SAFETY: as we were asked.
        unsafe { GlobalDlmalloc.realloc(at, layout, bytes) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let _quiet = Quiet::begin();
        // SAFETY: as we were asked.
        unsafe { GlobalDlmalloc.dealloc(at, layout) }
    }
}
