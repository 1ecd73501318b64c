//! Subscriptions: sessions of a kernel that caches names, attributes and bytes.

use crate::Vfs;
use client::OnInvalidate;
use placement::FileId;
use wire::Outcome;

impl Vfs {
    /// Opens another session of the same pool, with its own open files, locks and cache grants: for
    /// a second mount.
    pub fn another(&self) -> impl Future<Output = Outcome<Self>> + Send + use<> {
        let client = self.client.clone();
        async move { Ok(Self::new(client.new_session().await?)) }
    }

    /// Subscribes this session to cache invalidations. From now on it may cache the answers it gets
    /// until they are invalidated: names and their absence, attributes that are `cacheable`, and
    /// bytes.
    ///
    /// `hear` is the cache-invalidation callback, called on threads of the node. Its return is the
    /// acknowledgement: by then the kernel has dropped what was invalidated, and only then is the
    /// change that caused it answered. The callback must not wait for a pending answer of the node.
    /// The exception is dropping bytes, which may wait for reads and writes of the same file in
    /// that kernel; therefore `Bytes` invalidations have a thread of their own.
    ///
    /// When a connection to a node breaks, `hear` gets [`Recall::All`](wire::Recall::All), and the
    /// next session subscribes by itself.
    ///
    /// Refused with `TooManyOpen` if the number of subscribers is at its limit.
    pub fn watch(&self, hear: OnInvalidate) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.subscribe(&hear).await }
    }

    /// Declares that this session's kernel supports prune notices, which make it forget an unused
    /// inode. From now on an inode that the kernel knows is retained when another session removes
    /// it, so that an open in progress still finds it. `hear` then gets
    /// [`Recall::Removed`](wire::Recall::Removed), and [`Self::forgotten`] must follow. Call this
    /// before the kernel sends its first request.
    pub fn prunes(&self) {
        self.client.set_supports_prune();
    }

    /// Reports that this session's kernel has forgotten the inode. A removed inode that was
    /// retained for it is deleted now.
    pub fn forgotten(&self, file: FileId) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.report_forgotten(file).await }
    }

    /// Ends this session: closes its files, releases its locks, deletes inodes retained for its
    /// kernel and stops its invalidations.
    pub fn end(&self) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.end().await }
    }
}
