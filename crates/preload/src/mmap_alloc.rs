//! Allocator of the library, on memory from mmap(2). The program's `malloc` may be interrupted when
//! the library is called, or may call the library itself.
//!
//! A signal handler that interrupted an allocation would deadlock on it, so signals are blocked
//! meanwhile.

use crate::call::SignalMask;
use dlmalloc::GlobalDlmalloc;
use std::alloc::{GlobalAlloc, Layout};

#[global_allocator]
static ALLOCATOR: MmapAllocator = MmapAllocator;

struct MmapAllocator;

// SAFETY: every method forwards to `GlobalDlmalloc`.
unsafe impl GlobalAlloc for MmapAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _signal_mask = SignalMask::block_all();
        // SAFETY: forwards the caller's arguments.
        unsafe { GlobalDlmalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _signal_mask = SignalMask::block_all();
        // SAFETY: forwards the caller's arguments.
        unsafe { GlobalDlmalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let _signal_mask = SignalMask::block_all();
        // SAFETY: forwards the caller's arguments.
        unsafe { GlobalDlmalloc.realloc(at, layout, bytes) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let _signal_mask = SignalMask::block_all();
        // SAFETY: forwards the caller's arguments.
        unsafe { GlobalDlmalloc.dealloc(at, layout) }
    }
}
