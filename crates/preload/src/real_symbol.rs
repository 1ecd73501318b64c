//! Next definitions of the functions that this library defines (`dlsym` with `RTLD_NEXT`), which a
//! program would call without it. Each is looked up on its first call.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Function of the libraries after this one.
#[derive(Debug)]
pub struct RealSymbol {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl RealSymbol {
    /// Makes a lookup of a name.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the address; null if no later library has the function, as an older C library has no
    /// `statx`.
    pub fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.look_up() } else { found }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name is nul-terminated. Two threads may look it up at once, and find the same
        // address.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}
