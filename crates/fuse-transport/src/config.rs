//! The requested and the negotiated options of a connection.

/// Maximum bytes of a request: 256 pages, the kernel's limit unless its administrator raised it.
pub(crate) const REQUEST_BYTES_MAX: u32 = 256 * PAGE;
/// Page size, the unit of `max_pages`.
pub(crate) const PAGE: u32 = 4096;

/// Requested options; the kernel may grant less.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each option is independent of the others")]
pub struct Config {
    /// Threads that read requests, at least one. Measured with `examples/nothing` on two
    /// processors: one to four threads have the same cost per operation within the noise, because
    /// the wake-up dominates. Threads wait in the kernel: polling for 20 microseconds before
    /// waiting doubled the server's CPU time without a gain. Pinning a thread to each processor
    /// saves a third on an idle machine, but costs as much more while two other programs compute.
    pub threads: usize,
    /// Maximum bytes of a read or write; from one page to 1 MiB, rounded down to pages.
    pub request_bytes_max: u32,
    /// Maximum number of background requests of the kernel (read-ahead, asynchronous direct I/O).
    pub background_max: u16,
    /// Maximum read-ahead in bytes. The kernel limits it to its default (128 KiB) unless
    /// `/sys/class/bdi` says more.
    pub read_ahead_bytes: u32,
    /// Allow passthrough of files through `Backings`.
    pub passthrough: bool,
    /// Let the kernel check permissions by mode and POSIX ACLs; it then requests the ACL
    /// attributes.
    pub posix_acl: bool,
    /// Forward lock requests to the file system; otherwise the kernel handles locks within this
    /// mount.
    pub locks: bool,
    /// Keep cached bytes until the `Notifier` invalidates them, regardless of times and sizes.
    /// Otherwise a changed modification time invalidates them.
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
    /// The requested maximum request length, clamped to its limits.
    pub(crate) fn request_bytes(&self) -> u32 {
        self.request_bytes_max.clamp(PAGE, REQUEST_BYTES_MAX) / PAGE * PAGE
    }
}

/// Negotiated options.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each option is negotiated by itself")]
pub struct Negotiated {
    /// The common minor version.
    pub minor: u32,
    /// Maximum bytes of a read or write.
    pub request_bytes_max: u32,
    /// Passthrough is available.
    pub passthrough: bool,
    /// The kernel checks POSIX ACLs.
    pub posix_acl: bool,
    /// The file system must clear set-id bits on writes, truncation and changes of the owner, where
    /// a request says so (`kill_set_id`). If false, the kernel clears them.
    pub kill_set_id: bool,
    /// Cached bytes stay until the `Notifier` invalidates them.
    pub explicit_invalidation: bool,
    /// Files open for direct I/O may be mapped shared.
    pub direct_mappings: bool,
    /// `Notifier::increment_epoch` has an effect.
    pub epochs: bool,
    /// `Notifier::prune` has an effect.
    pub pruning: bool,
}
