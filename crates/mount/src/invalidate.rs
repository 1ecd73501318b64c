//! Cache-invalidation callback of a mount: makes the kernel drop cached data that is no longer
//! valid.
//!
//! A change made elsewhere is answered only after every kernel that caches the changed data has
//! been notified:
//!
//! ```text
//!   node: invalidations -> mount --> notices to the mount's device --> the kernel has dropped them
//! ```
//!
//! No notice takes a directory's lock. Names are not dropped one by one: a new dentry epoch makes
//! all of them outdated, and each is looked up again when it is used. So storms of renames on
//! several mounts cannot block each other here.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use fuse_transport::Notifier;
use placement::FileId;
use wire::Recall;

use crate::kernel_state::KernelState;

/// Upper limit of the time that the kernel takes to add an inode from a reply; after it the inode
/// does not arrive.
const ARRIVAL_WAIT: Duration = Duration::from_secs(1);
/// Upper limit of the time that a listing answered before an invalidation of names takes to reach
/// the kernel.
const LISTING_ARRIVAL: Duration = Duration::from_millis(50);
/// Polling interval while an invalidation of everything waits for requests in flight.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Sends the invalidations to `kernel`; returns when it has dropped everything.
pub(crate) fn on_invalidate(kernel: &Arc<KernelState>, recalls: &[Recall]) {
    let notifier = kernel.notifier();
    let names = recalls.iter().any(|recall| matches!(recall, Recall::Names(_) | Recall::All));
    let listed = names && kernel.record_name_invalidation();
    for recall in recalls {
        match *recall {
            Recall::Attributes(file) => retry_until_known(kernel, file, || notifier.invalidate_attributes(file.0)),
            Recall::Bytes(file) => {
                store_last_byte(kernel, file);
                retry_until_known(kernel, file, || notifier.invalidate_bytes(file.0, 0, 0));
            }
            // A directory's cached listing consists of pages, like the bytes of a file.
            Recall::Names(directory) => {
                retry_until_known(kernel, directory, || notifier.invalidate_bytes(directory.0, 0, 0));
            }
            Recall::Removed(file) => kernel.schedule_prune(file),
            // The client has done that.
            Recall::Greet(_) => {}
            Recall::All => invalidate_all(kernel),
        }
    }
    if names {
        new_dentry_epoch(notifier);
        if listed {
            thread::sleep(LISTING_ARRIVAL);
            new_dentry_epoch(notifier);
        }
    }
}

/// Sends the kernel the length of a file that it has open.
///
/// A program that reads past the end known to its kernel makes the kernel ask for the length. The
/// kernel discards the reply if an invalidation of that inode came in between, and then treats the
/// old end as the file's. So the kernel must know each new length before its pages are invalidated.
/// The only notice that conveys a length stores bytes into the cache: it stores the file's last
/// byte, and the invalidation drops it again.
fn store_last_byte(kernel: &KernelState, file: FileId) {
    let Some((last, byte)) = kernel.last_byte(file) else { return };
    if let Err(error) = kernel.notifier().store(file.0, last, &[byte]) {
        tracing::debug!("the length of {file} could not be sent to the kernel: {error}");
    }
}

/// Invalidates everything that the kernel knows now, and everything that requests in flight hand
/// out.
fn invalidate_all(kernel: &KernelState) {
    let (in_flight, begin) = (kernel.requests_in_flight(), Instant::now());
    invalidate_known(kernel);
    if !in_flight.is_finished() {
        while !in_flight.is_finished() && begin.elapsed() < ARRIVAL_WAIT {
            thread::sleep(POLL_INTERVAL);
        }
        invalidate_known(kernel);
    }
}

fn invalidate_known(kernel: &KernelState) {
    let notifier = kernel.notifier();
    new_dentry_epoch(notifier);
    for file in kernel.inodes() {
        if let Err(error) = notifier.invalidate_bytes(file.0, 0, 0).and_then(|_| notifier.invalidate_attributes(file.0))
        {
            tracing::debug!("{file}: the kernel's cache could not be invalidated: {error}");
        }
    }
}

fn new_dentry_epoch(notifier: &Notifier) {
    if let Err(error) = notifier.increment_epoch() {
        tracing::debug!("the kernel's cached names could not be invalidated: {error}");
    }
}

/// Repeats a notice until it has reached the inode. The kernel may not know the inode yet, because
/// a reply in flight is handing it out. Stops when the inode was forgotten, or after a time limit.
fn retry_until_known(kernel: &KernelState, file: FileId, notice: impl Fn() -> std::io::Result<bool>) {
    let begin = Instant::now();
    loop {
        match notice() {
            Ok(true) => return,
            Ok(false) if !kernel.is_known(file) || begin.elapsed() > ARRIVAL_WAIT => return,
            Ok(false) => thread::yield_now(),
            Err(error) => return tracing::debug!("{file}: the kernel's cache could not be invalidated: {error}"),
        }
    }
}
