//! The one table from refusals to errno, with how loud each is in the log.

use fuser::Errno;
use tracing::Level;
use wire::{Object, Refusal};

/// What a program is told, and how loud the log says it.
///
/// Debug: programs ask for such answers all the time. Warn: a person may want to act. Error: something of ours, or under us,
/// does not work.
fn meaning(refusal: &Refusal) -> (Errno, Level) {
    match refusal {
        // The kernel knew an inode that is gone, because a name was removed beside the mount: told so, it looks the path up anew.
        Refusal::NotFound(Object::File(_)) => (Errno::ESTALE, Level::DEBUG),
        Refusal::NotFound(_) => (Errno::ENOENT, Level::DEBUG),
        Refusal::Exists(_) => (Errno::EEXIST, Level::DEBUG),
        Refusal::NotDirectory(_) => (Errno::ENOTDIR, Level::DEBUG),
        Refusal::IsDirectory(_) => (Errno::EISDIR, Level::DEBUG),
        Refusal::NotEmpty(_) => (Errno::ENOTEMPTY, Level::DEBUG),
        Refusal::NameTooLong(_) => (Errno::ENAMETOOLONG, Level::DEBUG),
        Refusal::Invalid { .. } => (Errno::EINVAL, Level::DEBUG),
        Refusal::NotPermitted(_) => (Errno::EPERM, Level::DEBUG),
        Refusal::BadHandle(_) => (Errno::EBADF, Level::DEBUG),
        Refusal::CrossesPools => (Errno::EXDEV, Level::DEBUG),
        Refusal::Unsupported { .. } => (Errno::EOPNOTSUPP, Level::DEBUG),
        Refusal::Interrupted(_) => (Errno::EINTR, Level::DEBUG),
        Refusal::NoAttribute(_) => (Errno::ENODATA, Level::DEBUG),
        Refusal::AttributeTooLong { .. } => (Errno::E2BIG, Level::DEBUG),
        Refusal::TooManyAttributes(_) => (Errno::ENOSPC, Level::WARN),
        Refusal::Locked(_) => (Errno::EAGAIN, Level::DEBUG),
        Refusal::Deadlock(_) => (Errno::EDEADLK, Level::DEBUG),
        Refusal::TooManyLocks { .. } => (Errno::ENOLCK, Level::WARN),
        Refusal::BeyondEnd(_) => (Errno::ENXIO, Level::DEBUG),
        Refusal::ReadOnly(_) => (Errno::EROFS, Level::WARN),
        // The node has said it, with how full it is and what to do.
        Refusal::NoSpace(_) => (Errno::ENOSPC, Level::DEBUG),
        Refusal::TooLarge { .. } => (Errno::EFBIG, Level::WARN),
        Refusal::TooManyLinks { .. } => (Errno::EMLINK, Level::DEBUG),
        Refusal::TooManyOpen { .. } => (Errno::ENFILE, Level::WARN),
        Refusal::Busy(_) => (Errno::EBUSY, Level::WARN),
        Refusal::Stale(_) => (Errno::ESTALE, Level::WARN),
        Refusal::TimedOut(_) => (Errno::ETIMEDOUT, Level::ERROR),
        // Also what a later version adds: a program must not go on as if it had worked.
        _ => (Errno::EIO, Level::ERROR),
    }
}

/// The errno of a refusal of `operation`, which is logged here and nowhere else.
pub(crate) fn tell(operation: &'static str, refusal: &Refusal) -> Errno {
    let (errno, level) = meaning(refusal);
    match level {
        Level::ERROR => tracing::error!("{operation}: {refusal}"),
        Level::WARN => tracing::warn!("{operation}: {refusal}"),
        _ => tracing::debug!("{operation}: {refusal}"),
    }
    errno
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use wire::Shortage;

    #[test]
    fn a_full_pool_is_no_space_and_the_node_alone_says_so() {
        let shortage = Shortage { capacity: 1, used: 1, wanted: 1, waited: Duration::ZERO };
        assert_eq!(meaning(&Refusal::NoSpace(shortage)), (Errno::ENOSPC, Level::DEBUG));
    }

    #[test]
    fn a_failing_engine_is_an_error_that_no_program_can_overlook() {
        let failed = Refusal::Io { object: Object::Pool, why: "disk".into() };
        assert_eq!(meaning(&failed), (Errno::EIO, Level::ERROR));
    }
}
