//! Tests of paths over several nodes.

use crate::{
    Client, PathHint, WalkedPath,
    pool_test::{IMPATIENT, NODES, OWNER, Pool},
    testing::CountingConnection,
};
use placement::FileId;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use wire::{
    Changes, Credentials, DirAccess, ExtentRequest, Name, NewInode, NewKind, OpenFlags, Refusal, RenameFrom,
    RenameMode, RenameTo,
};

const DEPTH: usize = 12;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn names() -> Vec<Name> {
    (0..DEPTH).map(|number| name(&format!("d{number}"))).collect()
}

fn as_user(uid: u32, access: DirAccess) -> Credentials {
    Credentials { uid, gid: uid, groups: Vec::new(), access }
}

/// A deep path, its directories, and a client that counts its messages.
struct DeepPath {
    fs: Client,
    calls: Arc<AtomicU64>,
    /// The directories, the root first.
    directories: Vec<FileId>,
}

impl DeepPath {
    async fn new(nodes: u32) -> Self {
        let calls = Arc::new(AtomicU64::new(0));
        let fs = Pool::of(nodes).over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT).await;
        let fs = Client::clone(&fs);
        let mut directories = vec![FileId::ROOT];
        for name in names() {
            let above = *directories.last().unwrap();
            directories.push(fs.make_directory(above, &name, 0o755.into(), OWNER).await.unwrap().file);
        }
        Self { fs, calls, directories }
    }

    async fn walk(&self, credentials: Option<&Credentials>) -> WalkedPath {
        self.fs.walk_path(FileId::ROOT, names(), credentials).await.unwrap()
    }

    /// The number of times that the path comes to a node, the first included.
    fn visits(&self) -> u64 {
        let homes = self.directories.iter().map(|directory| self.fs.router().home(directory.partition()));
        let mut homes: Vec<_> = homes.collect();
        homes.dedup();
        homes.len() as u64
    }

    /// The number of messages since the last call.
    fn messages(&self) -> u64 {
        self.calls.swap(0, Relaxed)
    }

    async fn make_file(&self, hint: PathHint<'_>) -> bool {
        let inode = NewInode::new(NewKind::File, 0o600, OWNER);
        let made = self.fs.create_at_hint(hint, &name("f"), inode).await.unwrap();
        match made {
            Some(made) => self.fs.close_file(made.attributes.file).await.is_ok(),
            None => false,
        }
    }

    async fn rename(&self, directory: usize, from: &str, to: &str) {
        let parent = self.directories[directory];
        let (from, to) = (RenameFrom { parent, name: name(from) }, RenameTo { parent, name: name(to) });
        self.fs.rename(from, to, RenameMode::Replace).await.unwrap();
    }
}

#[tokio::test]
async fn a_command_at_the_end_of_a_path_costs_a_message_for_each_node_that_the_path_comes_to() {
    for nodes in NODES {
        let deep = DeepPath::new(nodes).await;
        let path = deep.walk(None).await;
        assert!(path.is_whole() && path.directory() == deep.directories[DEPTH], "{nodes} nodes");
        let (owner, maker) = (as_user(OWNER.uid, DirAccess::Lookup), as_user(OWNER.uid, DirAccess::Create));
        for (lookup, create) in [(None, None), (Some(&owner), Some(&maker))] {
            let hint = |credentials| PathHint { path: &path, credentials };
            deep.messages();
            let missing = deep.fs.lookup_at_hint(hint(lookup), &name("f")).await.unwrap_err();
            assert!(matches!(missing, Refusal::NotFound(_)), "{missing}");
            assert_eq!(deep.messages(), deep.visits(), "{nodes} nodes");
            assert!(deep.make_file(hint(create)).await);
            assert_eq!(deep.messages(), deep.visits() + 1, "{nodes} nodes, with the close");
            let opened = deep.fs.open_at_hint(hint(lookup), &name("f"), OpenFlags::READ).await.unwrap().unwrap();
            assert_eq!(deep.messages(), deep.visits(), "{nodes} nodes");
            deep.fs.close_file(opened.attributes.file).await.unwrap();
            assert!(deep.fs.unlink_at_hint(hint(create), &name("f")).await.unwrap());
        }
    }
}

#[tokio::test]
async fn nothing_is_done_when_a_path_over_several_nodes_leads_elsewhere() {
    for nodes in NODES {
        let deep = DeepPath::new(nodes).await;
        let path = deep.walk(None).await;
        let hint = PathHint { path: &path, credentials: None };
        for moved in 0..DEPTH {
            let own = format!("d{moved}");
            deep.rename(moved, &own, "moved").await;
            assert!(!deep.make_file(hint).await, "{own} has another name, {nodes} nodes");
            let (above, other) = (deep.directories[moved], name(&own));
            deep.fs.make_directory(above, &other, 0o755.into(), OWNER).await.unwrap();
            assert!(!deep.make_file(hint).await, "another directory is {own}, {nodes} nodes");
            deep.fs.remove_directory(above, &other).await.unwrap();
            let file = NewInode::new(NewKind::File, 0o600, OWNER);
            deep.fs.create(above, &name("file"), file, false, ExtentRequest::None).await.unwrap();
            deep.rename(moved, "file", &own).await;
            assert!(!deep.make_file(hint).await, "a file is {own}, {nodes} nodes");
            deep.fs.unlink(above, &other).await.unwrap();
            deep.rename(moved, "moved", &own).await;
        }
        assert!(deep.fs.lookup(deep.directories[DEPTH], &name("f")).await.is_err(), "nothing was made");
        assert!(deep.make_file(hint).await, "everything has its name again");
    }
}

#[tokio::test]
async fn every_node_on_a_path_checks_the_user_at_its_own_directories() {
    for nodes in NODES {
        let deep = DeepPath::new(nodes).await;
        let (stranger, path) = (as_user(4321, DirAccess::Create), deep.walk(None).await);
        let hint = PathHint { path: &path, credentials: Some(&stranger) };
        assert!(!deep.make_file(hint).await, "the last directory is not open to others, {nodes} nodes");
        let chmod = async |directory: usize, mode| {
            let changes = Changes { mode: Some(mode), ..Changes::default() };
            deep.fs.change_attributes(deep.directories[directory], changes).await.unwrap();
        };
        chmod(DEPTH, 0o777).await;
        for closed in 0..DEPTH {
            chmod(closed, 0o700).await;
            assert!(!deep.make_file(hint).await, "d{closed} lets no other through, {nodes} nodes");
            let reached = deep.walk(Some(&stranger)).await;
            assert_eq!((reached.is_whole(), reached.directory()), (false, deep.directories[closed]), "{nodes} nodes");
            chmod(closed, 0o711).await;
        }
        assert!(deep.make_file(hint).await, "{nodes} nodes");
    }
}

#[tokio::test]
async fn a_walk_ends_before_what_is_missing_or_no_directory() {
    for nodes in NODES {
        let deep = DeepPath::new(nodes).await;
        let last = deep.directories[DEPTH];
        let file = NewInode::new(NewKind::File, 0o600, OWNER);
        deep.fs.create(last, &name("file"), file, false, ExtentRequest::None).await.unwrap();
        let walk = async |text: &str| {
            let further = names().into_iter().chain([name(text), name("further")]).collect();
            deep.fs.walk_path(FileId::ROOT, further, None).await
        };
        let missing = walk("none").await.unwrap_err();
        assert!(matches!(missing, Refusal::NotFound(_)), "{missing}");
        // Where one node walked all of it, the refusal is the answer.
        match walk("file").await {
            Ok(path) => assert!(!path.is_whole()),
            Err(refusal) => assert!(matches!(refusal, Refusal::NotDirectory(_)), "{refusal}"),
        }
    }
}
