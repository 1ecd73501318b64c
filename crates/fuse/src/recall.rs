//! Making the kernel forget what it keeps and may keep no longer.
//!
//! A change that was made elsewhere is answered only when every kernel that keeps what it changed was told:
//!
//! ```text
//!   node: "forget these" ----> here ----> notices written to this mount's device ----> the kernel has forgotten
//! ```
//!
//! No notice takes a lock of a directory: names are not dropped one by one, but all get older than the connection's new epoch
//! and are asked for again when they are used. So storms of renames from several mounts cannot block each other here.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use kernel::Notifier;
use placement::FileId;
use wire::Recall;

use crate::known::Known;

/// A kernel that has been handed an inode takes it in within this time, or never.
const ARRIVAL_WAIT: Duration = Duration::from_secs(1);
/// After names were recalled a listing that was answered before may still be on its way into the kernel for this long.
const LISTING_ARRIVAL: Duration = Duration::from_millis(50);
/// While all is to be forgotten, it is looked so often whether what was under way is through.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Tells the kernel of `known` what to forget.
pub(crate) fn hear(known: &Arc<Known>, recalls: &[Recall]) {
    let notifier = known.notifier();
    let names = recalls.iter().any(|recall| matches!(recall, Recall::Names(_) | Recall::All));
    let listed = names && known.recalls_names();
    for recall in recalls {
        match *recall {
            Recall::Attributes(file) => until_known(known, file, || notifier.drop_attributes(file.0)),
            Recall::Bytes(file) => {
                tell_length(known, file);
                until_known(known, file, || notifier.drop_bytes(file.0, 0, 0));
            }
            // Its listing is kept like the bytes of a file.
            Recall::Names(directory) => until_known(known, directory, || notifier.drop_bytes(directory.0, 0, 0)),
            Recall::Removed(file) => known.was_removed(file),
            Recall::All => forget_all(known),
        }
    }
    if names {
        new_epoch(notifier);
        if listed {
            thread::sleep(LISTING_ARRIVAL);
            new_epoch(notifier);
        }
    }
}

/// Tells the kernel how long a file is that it reads.
///
/// A program that reads behind the end that its kernel knows makes it ask for the length. A kernel drops that answer when a notice of the same
/// inode came in between, and takes the old end for the file's. So it must know of every length before it is told to forget
/// pages, and the one notice that tells a length is a byte to be kept: the file's last one, which goes with the pages.
fn tell_length(known: &Known, file: FileId) {
    let Some((last, byte)) = known.last_byte(file) else { return };
    if let Err(error) = known.notifier().store(file.0, last, &[byte]) {
        tracing::debug!("the length of {file} is not told: {error}");
    }
}

/// What is known now, and what was under way by now.
fn forget_all(known: &Known) {
    let (under_way, begin) = (known.under_way(), Instant::now());
    forget_known(known);
    if !under_way.is_over() {
        while !under_way.is_over() && begin.elapsed() < ARRIVAL_WAIT {
            thread::sleep(LOOK_AGAIN);
        }
        forget_known(known);
    }
}

fn forget_known(known: &Known) {
    let notifier = known.notifier();
    new_epoch(notifier);
    for file in known.all() {
        if let Err(error) = notifier.drop_bytes(file.0, 0, 0).and_then(|_| notifier.drop_attributes(file.0)) {
            tracing::debug!("{file} is not forgotten: {error}");
        }
    }
}

fn new_epoch(notifier: &Notifier) {
    if let Err(error) = notifier.new_epoch() {
        tracing::debug!("names are not forgotten: {error}");
    }
}

/// An inode that the kernel does not know yet may be in an answer that is on its way there: then the notice is repeated until it
/// has arrived, or was given back.
fn until_known(known: &Known, file: FileId, notice: impl Fn() -> std::io::Result<bool>) {
    let begin = Instant::now();
    loop {
        match notice() {
            Ok(true) => return,
            Ok(false) if !known.is_known(file) || begin.elapsed() > ARRIVAL_WAIT => return,
            Ok(false) => thread::yield_now(),
            Err(error) => return tracing::debug!("{file} is not forgotten: {error}"),
        }
    }
}
