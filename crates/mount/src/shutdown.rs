//! Shutdown signal: a flag that is set once, when the kernel has ended the session, and that
//! threads can wait for.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct ShutdownSignal {
    flag: Mutex<bool>,
    changed: Condvar,
}

impl ShutdownSignal {
    pub(crate) fn set(&self) {
        *self.flag.lock() = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.flag.lock()
    }

    pub(crate) fn wait(&self) {
        let mut flag = self.flag.lock();
        self.changed.wait_while(&mut flag, |flag| !*flag);
    }

    /// Waits at most `limit`; false if the flag was not set by then.
    pub(crate) fn wait_for(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut flag = self.flag.lock();
        while !*flag {
            if self.changed.wait_until(&mut flag, end).timed_out() {
                return *flag;
            }
        }
        true
    }
}
