//! Tests of connecting to a pool by its pool file, and of the state that its nodes report.

use crate::{
    ConnectError, ConnectedPool, LocalEndpoint, PoolFile, Reactor, connect, connect_short_lived, connect_with_reactor,
    embedded, embedded_node, query_status, runtime, start,
};
use base::ByteSize;
use client::RetryPolicy;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};
use vfs::Vfs;

/// Policy of a client that gives up soon.
const FEW_TRIES: RetryPolicy =
    RetryPolicy { tries: 2, pause_first: Duration::from_millis(1), pause_max: Duration::from_millis(1) };

/// Pool in memory with a local endpoint.
struct TestPool {
    endpoint: LocalEndpoint,
    directory: tempfile::TempDir,
}

impl TestPool {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let node = embedded_node(ByteSize::mib(32), Duration::ZERO).unwrap();
        let endpoint = LocalEndpoint::open(&node, directory.path()).unwrap();
        Self { endpoint, directory }
    }

    /// Writes a pool file like the pool's own, with a change.
    fn file_with(&self, change: impl FnOnce(&mut Value)) -> PathBuf {
        let mut file: Value = serde_json::from_str(&fs::read_to_string(self.endpoint.file()).unwrap()).unwrap();
        change(&mut file);
        self.write(&file.to_string())
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.directory.path().join("other");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Writes a pool file whose node answers at no address.
    fn file_of_nobody(&self) -> PathBuf {
        let nobody = format!("unix:{}", self.directory.path().join("nobody").display());
        self.file_with(|file| file["nodes"][0]["addresses"] = json!([nobody]))
    }
}

fn refusal(path: &Path) -> ConnectError {
    connect_short_lived(path, FEW_TRIES).map(drop).unwrap_err()
}

#[test]
fn a_connection_that_fails_has_an_errno_for_a_program_and_words_for_a_person() {
    let pool = TestPool::start();
    let missing = refusal(&pool.directory.path().join("none"));
    assert_eq!(missing.errno, Errno::NOENT);
    assert!(missing.problem.to_string().contains("`tidemill pool start` starts a pool"), "{}", missing.problem);
    let cases: [(&dyn Fn() -> PathBuf, Errno, &str); 8] = [
        (&|| pool.write(""), Errno::NOTCONN, "is being started"),
        (&|| pool.write("no JSON"), Errno::INVAL, "is not a pool file"),
        (&|| pool.write(r#"{"tidemill_pool": 99}"#), Errno::PROTO, "version 99"),
        (&|| pool.file_with(|file| file["nodes"][0]["addresses"] = json!([])), Errno::INVAL, "no address of node"),
        (&|| pool.file_with(|file| file["certificate"] = json!("none")), Errno::INVAL, "other"),
        (&|| pool.file_with(|file| file["token"] = json!("f".repeat(64))), Errno::ACCESS, "refuses this client"),
        (&|| pool.file_of_nobody(), Errno::NOTCONN, "no node of the pool of"),
        (&|| pool.directory.path().to_owned(), Errno::ACCESS, "not a regular file"),
    ];
    for (path, errno, expected) in cases {
        let refused = refusal(&path());
        let text = refused.problem.to_string();
        assert!(refused.errno == errno && text.contains(expected), "{expected}: {:?} {text}", refused.errno);
    }
}

#[test]
fn a_pool_file_that_others_may_write_lets_nobody_in() {
    let pool = TestPool::start();
    let path = pool.file_with(|_| ());
    assert!(connect_short_lived(&path, FEW_TRIES).is_ok());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
    let refused = refusal(&path);
    assert_eq!(refused.errno, Errno::ACCESS);
    assert!(refused.problem.to_string().contains(&format!("chmod 600 {}", path.display())), "{}", refused.problem);
    assert!(PoolFile::read(&path).is_err());
}

#[test]
fn clients_with_a_reactor_and_with_a_runtime_see_one_pool() {
    let (pool, other) = (TestPool::start(), TestPool::start());
    let (client, reactor) = connect_short_lived(pool.endpoint.file(), FEW_TRIES).unwrap();
    let vfs = Vfs::new(client);
    reactor.block_on(vfs.write_file(b"tide", b"high")).unwrap();
    let runtime = runtime().unwrap();
    let again = runtime.block_on(connect(pool.endpoint.file(), FEW_TRIES)).unwrap();
    assert_eq!(runtime.block_on(Vfs::new(again).read_file(b"tide")).unwrap(), &b"high"[..]);
    let reactor = Reactor::new().unwrap();
    let pools = [&pool, &other].map(|pool| {
        let client = connect_with_reactor(&reactor, pool.endpoint.file(), FEW_TRIES).unwrap();
        reactor.block_on(Vfs::new(client).read_file(b"tide")).is_ok()
    });
    assert_eq!(pools, [true, false], "one reactor drives the connections to several pools");
}

#[test]
fn a_node_is_up_only_if_it_is_the_one_of_the_pool_file() {
    let pool = TestPool::start();
    let states = |path: &Path| {
        let file = PoolFile::read(path).unwrap();
        let states = query_status(path, &file).unwrap();
        states.iter().map(|node| (node.entry.id, format!("{:?}", node.state))).collect::<Vec<_>>()
    };
    let own = states(pool.endpoint.file());
    assert!(own.len() == 1 && own[0].1.starts_with("Up("), "{own:?}");
    assert!(own[0].1.contains("partitions: 4096"), "{own:?}");
    // A token is derived for each node, so a node does not answer as another one.
    let several = pool.file_with(|file| {
        let node = |id: u32| {
            let mut node = file["nodes"][0].clone();
            node["id"] = json!(id);
            node
        };
        let mut nodes = [9, 5, 7, 3, 8].map(node).to_vec();
        nodes.insert(2, file["nodes"][0].clone());
        file["nodes"] = json!(nodes);
    });
    let several = states(&several);
    let is_up = |(_, state): &(u32, String)| state.starts_with("Up(");
    let shown: Vec<(u32, bool)> = several.iter().map(|node| (node.0, is_up(node))).collect();
    let own = (own[0].0, true);
    assert_eq!(shown, [own, (3, false), (5, false), (7, false), (8, false), (9, false)], "in the order of ids");
    let stranger = states(&pool.file_with(|file| file["token"] = json!("f".repeat(64))));
    assert!(!is_up(&stranger[0]), "{stranger:?}");
    assert!(!is_up(&states(&pool.file_of_nobody())[0]));
}

#[test]
fn a_pool_has_ended_only_when_no_node_answers_and_its_file_is_gone() {
    let TestPool { endpoint, directory } = TestPool::start();
    let path = endpoint.file().to_owned();
    let connected = ConnectedPool::read(&path).unwrap();
    assert_eq!(connected.path(), path);
    let runtime = runtime().unwrap();
    let client = runtime.block_on(connect(&path, FEW_TRIES)).unwrap();
    assert!(!runtime.block_on(connected.has_ended(&client)));
    fs::rename(&path, directory.path().join("moved")).unwrap();
    assert!(!runtime.block_on(connected.has_ended(&client)), "its node still answers");
    fs::rename(directory.path().join("moved"), &path).unwrap();
    runtime.block_on(endpoint.close());
    assert!(runtime.block_on(connected.has_ended(&client)));
}

#[test]
fn no_pool_is_started_where_one_runs() {
    let pool = TestPool::start();
    let path = pool.endpoint.file();
    let before = fs::read(path).unwrap();
    let spec = crate::PoolSpec {
        target: crate::LaunchTarget::Local(1),
        memory: crate::Memory::Default,
        slots: None,
        port: None,
        metrics: None,
        max_nodes: None,
        partitions: 64,
        space_wait: Duration::ZERO,
        tls: false,
        program: "/none/such".into(),
    };
    let refused = start(path, &spec).map(drop).unwrap_err();
    assert_eq!(refused.message, format!("a pool runs at {}: 1 of its 1 nodes answer", path.display()));
    assert_eq!(fs::read(path).unwrap(), before);
    // Its process lives and does not answer.
    let silent = pool.file_of_nobody();
    let refused = start(&silent, &spec).map(drop).unwrap_err();
    assert!(refused.message.ends_with("and does not answer"), "{refused}");
    assert_eq!(refused.hint.as_deref(), Some("`tidemill pool stop` ends it"));
    let no_pool = pool.write("precious text");
    assert!(start(&no_pool, &spec).is_err());
    assert_eq!(fs::read_to_string(&no_pool).unwrap(), "precious text", "it is not a pool file, and stays");
}

#[test]
fn an_embedded_pool_needs_memory() {
    let refused = embedded(ByteSize(0), Duration::ZERO).map(drop).unwrap_err();
    assert_eq!(refused.message, "a pool needs memory");
    assert_eq!(refused.hint.as_deref(), Some("give it --memory"));
}
