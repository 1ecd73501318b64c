//! Pools for tests, and a thin file API over [`Client`]: names as bytes, paths, open files.

use crate::{BackingFd, Client, Connection, ExpectedLocation, InProcessConnection, Nodes, RetryPolicy};
use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use node::{Node, NodeSettings};
use placement::{FileId, NodeId, PartitionMap};
use std::{ops::Deref, sync::Arc, time::Duration};
use store::{Engine, ModelEngine};
use wire::{
    AllocateMode, Attributes, DirEntry, Extent, ExtentRequest, Kind, Mode, Name, NewInode, NewKind, OpenFlags, Outcome,
    Owner, Refusal, RenameFrom, RenameTo, SeekTo, WritePlace, XattrMode,
};

pub const OWNER: Owner = Owner { uid: 1000, gid: 100 };
/// Stripe length of tests; short, so that files have many stripes.
pub const STRIPE: u32 = 64 << 10;

/// Numbers of nodes over which a test runs.
pub const NODES: [u32; 4] = [1, 2, 4, 8];
/// Numbers of nodes for tests that take long.
pub const FEW_NODES: [u32; 2] = [1, 4];

/// Retry policy with few and short tries, so that tests of failures are fast.
pub const IMPATIENT: RetryPolicy =
    RetryPolicy { tries: 3, pause_first: Duration::from_micros(10), pause_max: Duration::from_micros(10) };

/// A pool of several nodes in this process.
#[derive(Clone)]
pub struct Pool(Vec<Arc<Node>>);

impl Pool {
    /// A pool of `nodes` nodes, each over its own engine.
    pub fn start(nodes: u32, settings: &NodeSettings, engine: impl Fn() -> Arc<dyn Engine>) -> Self {
        let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        let shares: Vec<(NodeId, u64)> = ids.iter().map(|id| (*id, 1)).collect();
        let map = PartitionMap::proportional(&shares, settings.partitions).unwrap();
        Self(ids.iter().map(|id| Node::in_pool(*id, map.clone(), settings.clone(), engine())).collect())
    }

    /// A pool over the model engine, whose directories split above `split_entries` entries.
    pub fn that_splits(nodes: u32, split_entries: u32) -> Self {
        let settings = NodeSettings { space_wait: Duration::ZERO, split_entries, ..settings() };
        Self::start(nodes, &settings, || Arc::new(ModelEngine::new(256 << 20, STRIPE)))
    }

    /// A pool over the model engine with plenty of memory.
    pub fn of(nodes: u32) -> Self {
        Self::that_splits(nodes, NodeSettings::default().split_entries)
    }

    /// A pool over arenas, with extent files if this process may have them. Small closed ones are
    /// demoted to inline immediately.
    pub fn of_arenas(nodes: u32, memory: u64) -> Self {
        let settings = NodeSettings { space_wait: Duration::ZERO, closed_extents_max: 0, ..settings() };
        let options = ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(memory) };
        Self::start(nodes, &settings, || Arc::new(Arena::new(options).unwrap()))
    }

    /// A client over connections that the test wraps around the in-process ones.
    pub async fn over<C: Connection + 'static>(
        &self,
        wrap: impl Fn(InProcessConnection) -> C,
        retry_policy: RetryPolicy,
    ) -> TestFs {
        let connection = |node: &Arc<Node>| (node.id(), Arc::new(wrap(direct(node))) as Arc<dyn Connection>);
        let nodes: Nodes = self.0.iter().map(connection).collect();
        TestFs(Client::connect_all(nodes, retry_policy).await.unwrap())
    }

    /// A client that reaches all nodes.
    pub async fn client(&self) -> TestFs {
        self.over(|node| node, IMPATIENT).await
    }

    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.0
    }
}

/// Default settings of the tests' pools.
pub fn settings() -> NodeSettings {
    NodeSettings { partitions: 64, stripe_bytes: STRIPE, owner: OWNER, ..NodeSettings::default() }
}

pub fn direct(node: &Arc<Node>) -> InProcessConnection {
    InProcessConnection(node.clone())
}

/// A node with `memory` bytes over the model engine.
pub fn node(memory: u64, space_wait: Duration) -> Arc<Node> {
    let settings = NodeSettings { space_wait, ..settings() };
    node::embedded(settings, Arc::new(ModelEngine::new(memory, STRIPE)))
}

/// A client over the test's own connection.
pub async fn over(connection: impl Connection + 'static, retry_policy: RetryPolicy) -> TestFs {
    TestFs(Client::connect(Arc::new(connection), retry_policy).await.unwrap())
}

/// `length` bytes of one value.
pub fn filled(byte: u8, length: u32) -> Vec<u8> {
    vec![byte; length as usize]
}

pub fn from(parent: FileId, text: &str) -> RenameFrom {
    RenameFrom { parent, name: Name::new(text.as_bytes()).unwrap() }
}

pub fn to(parent: FileId, text: &str) -> RenameTo {
    RenameTo { parent, name: Name::new(text.as_bytes()).unwrap() }
}

/// All entries of a directory, in the order of their cookies.
pub async fn all(fs: &TestFs, directory: FileId) -> Vec<DirEntry> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = fs.list(directory, after, 1000).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = last.cookie;
        all.extend(page);
    }
}

/// A client with calls that take names as bytes, and paths without links. The methods of [`Client`]
/// that take neither are its own.
#[derive(Clone, Debug)]
pub struct TestFs(pub Client);

/// An open file.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    file: FileId,
    flags: OpenFlags,
    extent: Option<Extent>,
}

impl Deref for TestFs {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

impl TestFs {
    pub async fn lookup(&self, parent: FileId, name: &[u8]) -> Outcome<Attributes> {
        self.0.lookup(parent, &Name::new(name)?).await
    }

    pub async fn make_directory(&self, parent: FileId, name: &[u8], mode: u32, owner: Owner) -> Outcome<Attributes> {
        self.0.make_directory(parent, &Name::new(name)?, Mode::from(mode), owner).await
    }

    pub async fn make_symlink(&self, parent: FileId, name: &[u8], target: &[u8], owner: Owner) -> Outcome<Attributes> {
        let inode = NewInode::new(NewKind::Symlink(Bytes::copy_from_slice(target)), 0o777, owner);
        Ok(self.0.create(parent, &Name::new(name)?, inode, false, ExtentRequest::None).await?.attributes)
    }

    pub async fn make_node(
        &self,
        parent: FileId,
        name: &[u8],
        kind: Kind,
        mode: u32,
        owner: Owner,
    ) -> Outcome<Attributes> {
        let kind = if kind == Kind::File { NewKind::File } else { NewKind::Node(kind) };
        Ok(self
            .0
            .create(parent, &Name::new(name)?, NewInode::new(kind, mode, owner), false, ExtentRequest::None)
            .await?
            .attributes)
    }

    pub async fn unlink(&self, parent: FileId, name: &[u8]) -> Outcome<()> {
        self.0.unlink(parent, &Name::new(name)?).await
    }

    pub async fn remove_directory(&self, parent: FileId, name: &[u8]) -> Outcome<()> {
        self.0.remove_directory(parent, &Name::new(name)?).await
    }

    pub async fn link(&self, file: FileId, parent: FileId, name: &[u8]) -> Outcome<Attributes> {
        self.0.link(file, parent, &Name::new(name)?).await
    }

    pub async fn expected_location(&self, directory: FileId, name: Option<&[u8]>) -> Outcome<ExpectedLocation> {
        self.0.expected_location(directory, name.map(Name::new).transpose()?.as_ref()).await
    }

    pub async fn xattr(&self, file: FileId, name: &[u8]) -> Outcome<Bytes> {
        self.0.xattr(file, Bytes::copy_from_slice(name)).await
    }

    pub async fn set_xattr(
        &self,
        file: FileId,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
        kill_set_group_id: bool,
    ) -> Outcome<()> {
        self.0.set_xattr(file, Bytes::copy_from_slice(name), value, mode, kill_set_group_id).await
    }

    pub async fn remove_xattr(&self, file: FileId, name: &[u8]) -> Outcome<()> {
        self.0.remove_xattr(file, Bytes::copy_from_slice(name)).await
    }

    /// Creates and opens a file, or opens the one that is there.
    pub async fn create(
        &self,
        parent: FileId,
        name: &[u8],
        mode: u32,
        owner: Owner,
        flags: OpenFlags,
    ) -> Outcome<(Attributes, OpenFile)> {
        let wish = if flags.use_extent { ExtentRequest::Any } else { ExtentRequest::None };
        let (name, inode) = (Name::new(name)?, NewInode::new(NewKind::File, mode, owner));
        let opened = match self.0.create(parent, &name, inode, true, wish).await {
            Err(Refusal::Exists(_)) => self.0.open(self.0.lookup(parent, &name).await?.file, flags).await?,
            made => made?,
        };
        let Attributes { file, extent, .. } = opened.attributes;
        Ok((opened.attributes, OpenFile { file, flags, extent }))
    }

    pub async fn create_unnamed(
        &self,
        parent: FileId,
        mode: u32,
        owner: Owner,
        flags: OpenFlags,
        linkable: bool,
    ) -> Outcome<(Attributes, OpenFile)> {
        let inode = NewInode::new(NewKind::File, mode, owner);
        let attributes = self.0.create_unnamed(parent, None, inode, linkable).await?.attributes;
        Ok((attributes, OpenFile { file: attributes.file, flags, extent: None }))
    }

    pub async fn open(&self, file: FileId, flags: OpenFlags) -> Outcome<OpenFile> {
        let Attributes { extent, .. } = self.0.open(file, flags).await?.attributes;
        Ok(OpenFile { file, flags, extent })
    }

    pub async fn close_file(&self, open: OpenFile) -> Outcome<()> {
        self.0.close_file(open.file).await
    }

    pub async fn read(&self, open: OpenFile, offset: u64, length: u32) -> Outcome<Bytes> {
        self.0.read(open.file, offset, length).await
    }

    pub async fn write(&self, open: OpenFile, offset: u64, data: Bytes) -> Outcome<u32> {
        let place = if open.flags.append { WritePlace::End } else { WritePlace::At(offset) };
        Ok(self.0.write(open.file, place, data, false).await?.length)
    }

    pub async fn allocate(&self, open: OpenFile, offset: u64, length: u64, mode: AllocateMode) -> Outcome<()> {
        self.0.allocate(open.file, offset, length, mode).await
    }

    pub async fn seek(&self, open: OpenFile, offset: u64, to: SeekTo) -> Outcome<u64> {
        self.0.seek(open.file, offset, to).await
    }

    pub fn backing(&self, open: OpenFile) -> Option<BackingFd> {
        self.0.backing(open.extent?, open.flags)
    }

    /// Attributes of the file at a path.
    pub async fn resolve(&self, path: &[u8]) -> Outcome<Attributes> {
        let mut current = self.stat(FileId::ROOT).await?;
        for name in path.split(|byte| *byte == b'/') {
            current = self.lookup(current.file, name).await?;
        }
        Ok(current)
    }

    /// Creates the missing directories of a path.
    pub async fn make_directories(&self, path: &[u8]) -> Outcome<Attributes> {
        let mut current = self.stat(FileId::ROOT).await?;
        for name in path.split(|byte| *byte == b'/') {
            current = match self.lookup(current.file, name).await {
                Err(Refusal::NotFound(_)) => self.make_directory(current.file, name, 0o755, current.owner).await?,
                found => found?,
            };
        }
        Ok(current)
    }

    pub async fn read_file(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        let file = self.resolve(path).await?.file;
        let mut bytes = Vec::new();
        loop {
            let part = self.0.read(file, bytes.len() as u64, 1 << 20).await?;
            if part.is_empty() {
                return Ok(bytes);
            }
            bytes.extend_from_slice(&part);
        }
    }

    /// Creates the file at a path, or replaces its bytes.
    pub async fn write_file(&self, path: &[u8], bytes: &[u8]) -> Outcome<Attributes> {
        let (above, name) = self.parent_of(path).await?;
        let flags = OpenFlags { truncate: true, ..OpenFlags::WRITE };
        let (made, open) = self.create(above.file, name, 0o644, above.owner, flags).await?;
        let written = self.write_all(open, bytes).await;
        self.close_file(open).await?;
        written?;
        self.stat(made.file).await
    }

    async fn write_all(&self, open: OpenFile, bytes: &[u8]) -> Outcome<()> {
        let mut done = 0;
        while done < bytes.len() {
            let part = Bytes::copy_from_slice(&bytes[done..bytes.len().min(done + (1 << 20))]);
            done += self.write(open, done as u64, part).await? as usize;
        }
        Ok(())
    }

    /// Removes the entry at a path with everything below it.
    pub async fn remove_tree(&self, path: &[u8]) -> Outcome<()> {
        let (above, name) = self.parent_of(path).await?;
        let found = self.lookup(above.file, name).await?;
        if found.kind != Kind::Directory {
            return self.unlink(above.file, name).await;
        }
        for entry in all(self, found.file).await {
            Box::pin(self.remove_tree(&[path, b"/", entry.name.as_bytes()].concat())).await?;
        }
        self.remove_directory(above.file, name).await
    }

    /// The directory of a path's last name, and that name.
    async fn parent_of<'a>(&self, path: &'a [u8]) -> Outcome<(Attributes, &'a [u8])> {
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => Ok((self.resolve(&path[..at]).await?, &path[at + 1..])),
            None => Ok((self.stat(FileId::ROOT).await?, path)),
        }
    }
}
