//! The table from refusals to errno and log level. For programs with descriptors of their own,
//! `posix` makes three exceptions.

use crate::{Object, Refusal};
use rustix::io::Errno;
use tracing::Level;

/// Errno for a program.
pub fn errno(refusal: &Refusal) -> Errno {
    errno_and_level(refusal).0
}

/// Errno for a program, and log level.
///
/// Debug: a normal answer for programs. Warn: a person may want to act. Error: something in
/// Tidemill, or below it, does not work.
pub fn errno_and_level(refusal: &Refusal) -> (Errno, Level) {
    match refusal {
        // The kernel knew an inode that was removed beside the mount. ESTALE makes the kernel look
        // the path up again.
        Refusal::NotFound(Object::File(_)) => (Errno::STALE, Level::DEBUG),
        Refusal::NotFound(_) => (Errno::NOENT, Level::DEBUG),
        Refusal::Exists(_) => (Errno::EXIST, Level::DEBUG),
        Refusal::NotDirectory(_) => (Errno::NOTDIR, Level::DEBUG),
        Refusal::IsDirectory(_) => (Errno::ISDIR, Level::DEBUG),
        Refusal::NotEmpty(_) => (Errno::NOTEMPTY, Level::DEBUG),
        Refusal::NameTooLong(_) => (Errno::NAMETOOLONG, Level::DEBUG),
        Refusal::Invalid { .. } => (Errno::INVAL, Level::DEBUG),
        Refusal::NotPermitted(_) => (Errno::PERM, Level::DEBUG),
        Refusal::BadHandle(_) => (Errno::BADF, Level::DEBUG),
        Refusal::CrossesPools => (Errno::XDEV, Level::DEBUG),
        Refusal::Unsupported { .. } => (Errno::OPNOTSUPP, Level::DEBUG),
        Refusal::Interrupted(_) => (Errno::INTR, Level::DEBUG),
        Refusal::NoAttribute(_) => (Errno::NODATA, Level::DEBUG),
        Refusal::AttributeTooLong { .. } => (Errno::TOOBIG, Level::DEBUG),
        Refusal::TooManyAttributes(_) => (Errno::NOSPC, Level::WARN),
        Refusal::Locked(_) => (Errno::AGAIN, Level::DEBUG),
        Refusal::Deadlock(_) => (Errno::DEADLK, Level::DEBUG),
        Refusal::TooManyLocks { .. } => (Errno::NOLCK, Level::WARN),
        Refusal::BeyondEnd(_) => (Errno::NXIO, Level::DEBUG),
        Refusal::ReadOnly(_) => (Errno::ROFS, Level::WARN),
        // Already logged by the node, with its usage and a hint.
        Refusal::NoSpace(_) => (Errno::NOSPC, Level::DEBUG),
        Refusal::TooLarge { .. } => (Errno::FBIG, Level::WARN),
        // Already logged once by the client, when the node stopped answering.
        Refusal::Unavailable { .. } => (Errno::IO, Level::DEBUG),
        Refusal::TooManyLinks { .. } => (Errno::MLINK, Level::DEBUG),
        Refusal::TooManyOpen { .. } => (Errno::NFILE, Level::WARN),
        Refusal::AlreadyPlaced(_) => (Errno::BUSY, Level::DEBUG),
        Refusal::Busy(_) => (Errno::BUSY, Level::WARN),
        Refusal::Stale(_) | Refusal::SessionEnded => (Errno::STALE, Level::WARN),
        Refusal::TimedOut(_) => (Errno::TIMEDOUT, Level::ERROR),
        Refusal::NotAdmitted { .. } => (Errno::ACCESS, Level::ERROR),
        Refusal::Incompatible { .. } => (Errno::PROTO, Level::ERROR),
        // Includes refusals added by a later version: a program must not continue as if the
        // operation had succeeded.
        _ => (Errno::IO, Level::ERROR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpaceShortage;
    use std::time::Duration;

    #[test]
    fn a_full_pool_is_no_space_and_the_node_alone_says_so() {
        let shortage = SpaceShortage { node: None, capacity: 1, used: 1, wanted: 1, waited: Duration::ZERO };
        assert_eq!(errno_and_level(&Refusal::NoSpace(shortage)), (Errno::NOSPC, Level::DEBUG));
    }

    #[test]
    fn a_failing_engine_is_an_error_that_no_program_can_overlook() {
        let failed = Refusal::Io { object: Object::Pool, why: "disk".into() };
        assert_eq!(errno_and_level(&failed), (Errno::IO, Level::ERROR));
    }
}
