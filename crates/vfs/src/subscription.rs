//! Subscriptions: sessions of a kernel that caches names, attributes and bytes.

use crate::Vfs;
use client::OnInvalidate;
use placement::FileId;
use wire::Outcome;

impl Vfs {
    /// Opens another session of the same pool, with its own open files, locks and cache grants: for
    /// a second mount.
    pub fn new_session(&self) -> impl Future<Output = Outcome<Self>> + Send + use<> {
        let client = self.client.clone();
        async move { Ok(Self::new(client.new_session().await?)) }
    }

    /// Subscribes this session to cache invalidations. From now on it may cache the answers it gets
    /// until they are invalidated: names and their absence, attributes that are `cacheable`, and
    /// bytes.
    ///
    /// `on_invalidate` is the cache-invalidation callback, called on threads of the node. Its
    /// return is the acknowledgement: by then the kernel has dropped what was invalidated, and only
    /// then is the change that caused it answered. The callback must not wait for a pending answer
    /// of the node. The exception is dropping bytes, which may wait for reads and writes of the
    /// same file in that kernel; therefore `Bytes` invalidations have a thread of their own.
    ///
    /// When a connection to a node breaks, `on_invalidate` gets [`Recall::All`](wire::Recall::All),
    /// and the next session subscribes by itself.
    ///
    /// Refused with `TooManyOpen` if the number of subscribers is at its limit.
    pub fn subscribe(&self, on_invalidate: OnInvalidate) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.subscribe(&on_invalidate).await }
    }

    /// Declares that this session's kernel supports prune notices, which make it forget an unused
    /// inode. From now on an inode that the kernel knows is retained when another session removes
    /// it, so that an open in progress still finds it. `on_invalidate` then gets
    /// [`Recall::Removed`](wire::Recall::Removed), and [`Self::report_forgotten`] must follow.
    /// Call this before the kernel sends its first request.
    pub fn declare_prune_support(&self) {
        self.client.set_supports_prune();
    }

    /// Reports that this session's kernel has forgotten the inode. A removed inode that was
    /// retained for it is deleted now.
    pub fn report_forgotten(&self, file: FileId) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.report_forgotten(file).await }
    }

    /// Ends this session: closes its files, releases its locks, deletes inodes retained for its
    /// kernel and stops its invalidations.
    pub fn end_session(&self) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.end().await }
    }
}
