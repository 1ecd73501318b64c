//! What a refusal is to the kernel, and in the log.

use rustix::io::Errno;
use tracing::Level;
use wire::Refusal;

/// The errno of a refusal of `operation`, which is logged here and nowhere else.
pub(crate) fn tell(operation: &'static str, refusal: &Refusal) -> Errno {
    let (errno, level) = vfs::meaning(refusal);
    match level {
        Level::ERROR => tracing::error!("{operation}: {refusal}"),
        Level::WARN => tracing::warn!("{operation}: {refusal}"),
        _ => tracing::debug!("{operation}: {refusal}"),
    }
    errno
}
