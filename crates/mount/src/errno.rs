//! Maps refusals to an errno for the kernel and a log message.

use rustix::io::Errno;
use tracing::Level;
use wire::{Object, Refusal};

/// Returns the errno of a refusal of `operation`, and logs the refusal; nothing else logs it.
pub(crate) fn log_and_map(operation: &'static str, refusal: &Refusal) -> Errno {
    let (errno, level) = wire::errno_and_level(refusal);
    match level {
        Level::ERROR => tracing::error!("{}", message(operation, refusal)),
        Level::WARN => tracing::warn!("{}", message(operation, refusal)),
        _ => tracing::debug!("{operation}: {refusal}"),
    }
    errno
}

/// Log message for a person. The kernel's request names an inode by number, and no path can be
/// derived from that. The mount shows equal numbers, so the message says how to find the path.
fn message(operation: &'static str, refusal: &Refusal) -> String {
    let place = match object(refusal) {
        Some(Object::File(file) | Object::Entry { parent: file, .. }) => {
            format!(" (`find -inum {file}` in the mount shows where {file} is)")
        }
        _ => String::new(),
    };
    format!("{operation}: {refusal}{place}")
}

/// The object of a refusal that is logged as a warning or error, if it has one.
fn object(refusal: &Refusal) -> Option<&Object> {
    match refusal {
        Refusal::ReadOnly(object)
        | Refusal::TooManyAttributes(object)
        | Refusal::TooManyLocks { object, .. }
        | Refusal::TooLarge { object, .. }
        | Refusal::TooManyOpen { object, .. }
        | Refusal::Busy(object)
        | Refusal::Stale(object)
        | Refusal::TimedOut(object)
        | Refusal::OutcomeUnknown(object)
        | Refusal::Io { object, .. } => Some(object),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::FileId;
    use wire::Name;

    #[test]
    fn a_message_that_names_an_inode_by_its_number_says_how_to_find_its_path() {
        let file = message("write", &Refusal::Busy(Object::File(FileId(4711))));
        assert!(file.starts_with("write: file 4711: ") && file.contains("`find -inum 4711`"), "{file}");
        let entry = Object::entry(FileId(7), &Name::new(b"name").unwrap());
        let entry = message("create", &Refusal::Io { object: entry, why: "it broke".into() });
        assert!(entry.starts_with("create: `name` in directory 7: ") && entry.contains("`find -inum 7`"), "{entry}");
        assert!(!message("statfs", &Refusal::SessionEnded).contains("find"));
    }
}
