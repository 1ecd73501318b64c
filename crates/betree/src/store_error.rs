//! Errors of a store.

use std::{io, path::PathBuf};

/// The reason for which a store did not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file has something else.
    #[error(
        "{path} is no store: neither of its first two blocks is a superblock; give the path of a store, or of a file that does not exist yet"
    )]
    NoStore {
        /// The file.
        path: PathBuf,
    },
    /// A newer version has written it.
    #[error("{path} has format {found}, and this version knows formats up to {known}: use a newer version")]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that is known.
        known: u32,
    },
    /// Somebody has it open.
    #[error("{path} is open elsewhere: end that process, or open the store once")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Something in it is not as it was written.
    #[error("{what} is damaged: restore the store from a backup")]
    Damaged {
        /// The damaged part.
        what: String,
    },
    /// A key is too long.
    #[error("a key of {length} bytes is too long: keys have at most {max}")]
    KeyTooLong {
        /// Its length.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// A value is too long.
    #[error("a value of {length} bytes is too long: values have at most {max}")]
    ValueTooLong {
        /// Its length.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// There is no space for what was to be written. Nothing was.
    #[error("the device of the store is full: free some of its space, or delete what is not needed")]
    Full,
    /// A write or sync has failed before: nobody knows what reached the device.
    #[error("a write to the store has failed before ({why}): close it, look at the device, and open it again")]
    Failed {
        /// The first failure.
        why: String,
    },
    /// The device has failed.
    #[error("the device of the store: {0}")]
    Io(io::Error),
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::StorageFull { Self::Full } else { Self::Io(error) }
    }
}
