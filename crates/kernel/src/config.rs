//! What is wished of the kernel, and what it agreed to.

/// The most that one request may carry: 256 pages, the kernel's own limit unless its administrator raised it.
pub(crate) const REQUEST_BYTES_MAX: u32 = 256 * PAGE;
/// The unit of `max_pages`.
pub(crate) const PAGE: u32 = 4096;

/// What is wished; the kernel may grant less.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
pub struct Config {
    /// Threads that read requests, at least one. Measured with `examples/nothing` on two processors: from one to four threads
    /// an operation costs the same within the noise, as the wake-up is what is paid for. They wait in the kernel: looking
    /// again for 20 microseconds before waiting doubled the server's processor time and gained nothing. A thread bound to each
    /// processor saves a third where nothing else runs, and costs as much again where two other programs compute.
    pub threads: usize,
    /// The most bytes of a single read or write; between one page and 1 MiB, rounded down to pages.
    pub request_bytes_max: u32,
    /// How many requests the kernel may have under way by itself (read ahead, direct I/O that does not wait).
    pub background_max: u16,
    /// How far the kernel reads ahead; it never does more than its own default (128 KiB) unless told in `/sys/class/bdi`.
    pub read_ahead_bytes: u32,
    /// Whether files may be read and written past us, through `Backings`.
    pub passthrough: bool,
    /// The kernel checks permissions by mode and POSIX ACLs, and asks for the ACL attributes.
    pub posix_acl: bool,
    /// Locks are asked for here; else the kernel keeps them by itself, for this mount alone.
    pub locks: bool,
    /// Cached bytes stay until the `Notifier` drops them, whatever times and sizes say; else a changed time drops them.
    pub explicit_invalidation: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threads: 2,
            request_bytes_max: REQUEST_BYTES_MAX,
            background_max: 64,
            read_ahead_bytes: REQUEST_BYTES_MAX,
            passthrough: true,
            posix_acl: true,
            locks: true,
            explicit_invalidation: false,
        }
    }
}

impl Config {
    /// The wished length of requests within its limits.
    pub(crate) fn request_bytes(&self) -> u32 {
        self.request_bytes_max.clamp(PAGE, REQUEST_BYTES_MAX) / PAGE * PAGE
    }
}

/// What the kernel agreed to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an agreement of its own")]
pub struct Granted {
    /// The minor version that both speak.
    pub minor: u32,
    /// The most bytes of a single read or write.
    pub request_bytes_max: u32,
    /// Files may be read and written past us.
    pub passthrough: bool,
    /// The kernel checks POSIX ACLs.
    pub posix_acl: bool,
    /// Who clears set-id bits on writes, truncation and changes of the owner: true says we, as requests tell (`kill_set_id`).
    pub kill_set_id: bool,
    /// Cached bytes stay until they are dropped by the `Notifier`.
    pub explicit_invalidation: bool,
    /// Shared mappings of files that are open for direct I/O are allowed.
    pub direct_mappings: bool,
    /// `Notifier::new_epoch` has an effect.
    pub epochs: bool,
    /// `Notifier::prune` has an effect.
    pub pruning: bool,
}
