//! Connection that a reactor drives, from the connect to its end.

use crate::reactor::ReactorInner;
use node::LocalTime;
use parking_lot::Mutex;
use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

/// Connection, as its user implements it.
pub trait Driven: fmt::Debug + Send + Sync {
    /// Makes all progress that is possible now; ready once, when the connection has ended. Called
    /// by one thread at a time: when the socket is ready, a timer of `time` is due, or the waker
    /// was woken, as it must be for output that is queued. `input`: whether there may be something
    /// to read; else an open connection need not try, since that costs a system call.
    fn poll(&self, input: Input, time: &LocalTime, context: &mut Context<'_>) -> Poll<()>;

    /// Returns whether replies are pending.
    fn has_pending(&self) -> bool;

    /// Called in a forked child: closes the child's copies of the descriptors and sends nothing.
    /// Another thread of the parent may have been in [`Self::poll`].
    fn abandon(&self);
}

/// Knowledge of the input of a connection's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing is known to have come. If something has, the poller reports it.
    Unknown,
    /// Something may have come.
    Possible,
}

/// Connection, as its reactor sees it.
#[derive(Debug)]
pub struct DrivenConnection {
    pub number: u64,
    driven: Box<dyn Driven>,
    /// Held by the thread that drives the connection.
    driving: Mutex<()>,
    /// True if the connection must be driven: output was queued.
    needs_drive: AtomicBool,
    /// True if the next thread that drives the connection must read.
    needs_read: AtomicBool,
    time: LocalTime,
    reactor: Weak<ReactorInner>,
}

impl DrivenConnection {
    /// Creates a connection that is still to be opened.
    pub fn new(number: u64, driven: Box<dyn Driven>, reactor: &Arc<ReactorInner>) -> Arc<Self> {
        Arc::new(Self {
            number,
            driven,
            driving: Mutex::new(()),
            needs_drive: AtomicBool::new(true),
            needs_read: AtomicBool::new(false),
            time: reactor.time.clone(),
            reactor: Arc::downgrade(reactor),
        })
    }

    /// Returns whether output was queued that nobody has handled.
    pub fn needs_drive(&self) -> bool {
        self.needs_drive.load(SeqCst)
    }

    /// Returns whether output or a pending reply needs the connection to be driven.
    pub fn has_work(&self) -> bool {
        self.needs_drive() || self.driven.has_pending()
    }

    /// Makes all progress that is possible now; leaves it to another thread that is driving the
    /// connection.
    pub fn drive(self: &Arc<Self>, input: Input) {
        if input == Input::Possible {
            self.needs_read.store(true, SeqCst);
        }
        self.needs_drive.store(true, SeqCst);
        while self.needs_drive() {
            let Some(_driving) = self.driving.try_lock() else { return };
            self.needs_drive.store(false, SeqCst);
            let input = if self.needs_read.swap(false, SeqCst) { Input::Possible } else { Input::Unknown };
            let waker = Waker::from(self.clone());
            if self.driven.poll(input, &self.time, &mut Context::from_waker(&waker)).is_ready()
                && let Some(reactor) = self.reactor.upgrade()
            {
                reactor.remove(self.number);
            }
        }
    }

    /// Called in a forked child, which has none of the threads that used the connection.
    pub fn abandon(self: Arc<Self>) {
        self.driven.abandon();
        // Leaked: another thread of the parent may have been using the state.
        std::mem::forget(self);
    }
}

impl Wake for DrivenConnection {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Drives the connection: the thread that queues output also writes it.
    fn wake_by_ref(self: &Arc<Self>) {
        self.needs_drive.store(true, SeqCst);
        if let Some(reactor) = self.reactor.upgrade() {
            reactor.drive_soon(self);
        }
    }
}
