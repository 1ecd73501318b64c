//! Sessions with a kernel behind them: what it keeps is recalled, and what it knows is kept.

use crate::Vfs;
use client::Hear;
use placement::FileId;
use wire::Outcome;

impl Vfs {
    /// Another session of the same pool, with open files, locks and grants of its own: for a second mount.
    pub fn another(&self) -> impl Future<Output = Outcome<Self>> + Send + use<> {
        let client = self.client.clone();
        async move { Ok(Self::new(client.another().await?)) }
    }

    /// From now on this session may keep what it is answered, until it is recalled: names, and their absence; attributes that
    /// say that they are `lasting`; bytes.
    ///
    /// `hear` is told what to forget, on threads of the node, and has made the kernel forget it when it returns: no change of
    /// that by others is answered before. It must not wait for what the node has not answered yet, except that dropping bytes may
    /// wait for reads and writes of the same file that are under way in that kernel: `Bytes` are told on a thread of their own.
    ///
    /// When a connection to a node breaks, `hear` is told [`Recall::All`](wire::Recall::All), and the next session watches by itself.
    ///
    /// Refused with `TooManyOpen` when as many sessions watch as can be told apart.
    pub fn watch(&self, hear: Hear) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.watch(&hear).await }
    }

    /// The kernel of this session can be made to let go of an inode that nobody uses. From now on a removed inode that it knows
    /// stays for it, so that an open on its way still finds it; `hear` is told [`Recall::Removed`](wire::Recall::Removed), and
    /// [`Self::forgotten`] must follow. Before the kernel asks for anything.
    pub fn prunes(&self) {
        self.client.prunes();
    }

    /// The kernel of this session knows the inode no more: one that was removed meanwhile goes now.
    pub fn forgotten(&self, file: FileId) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.forgotten(file).await }
    }

    /// Ends this session: what it holds open, its locks, what is kept for its kernel. It is not told anything any more.
    pub fn end(&self) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.end().await }
    }
}
