//! Node of this host, with clients in processes of their own: the test binary again, with one test
//! and its job in `CHILD`.

use super::{LONG, OWNER, remote, token};
use arena::{Arena, ArenaOptions};
use client::{Client, RetryPolicy};
use node::{Node, NodeSettings};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
};
use store::Engine;
use tempfile::TempDir;
use transport::{Address, Listener, Server, ServerLimits};
use vfs::Vfs;

/// Node served over a Unix socket.
pub struct Host {
    pub node: Arc<Node>,
    pub engine: Arc<Arena>,
    pub truth: Vfs,
    pub server: Server,
    _directory: TempDir,
}

impl Host {
    /// Returns `None`, with a message, if this process cannot have extent files.
    pub fn with_whole_files(memory: u64) -> Option<Self> {
        let host = Self::start(memory);
        if !host.node.supports_extent_files() {
            println!("skipped: no whole files without CAP_SYS_ADMIN or a user namespace");
            return None;
        }
        Some(host)
    }

    pub fn start(memory: u64) -> Self {
        Self::start_with(memory, ServerLimits::default())
    }

    pub fn start_with(memory: u64, limits: ServerLimits) -> Self {
        let engine = Arc::new(
            Arena::new(ArenaOptions { stripe_bytes: 1 << 16, ..ArenaOptions::with_capacity(memory) }).unwrap(),
        );
        let settings = NodeSettings {
            partitions: 16,
            stripe_bytes: 1 << 16,
            space_wait: LONG,
            owner: OWNER,
            closed_extents_max: 0,
            ..NodeSettings::default()
        };
        let node = node::embedded(settings, engine.clone());
        let directory = tempfile::tempdir().unwrap();
        let listener = Listener::bind(&Address::Unix(directory.path().join("pool"))).unwrap();
        let server = transport::serve(node.clone(), listener, &token(), limits).unwrap();
        let truth = Vfs::new(Client::embedded(node.clone()));
        Self { node, engine, truth, server, _directory: directory }
    }

    /// Number of extents in use.
    pub fn used(&self) -> u64 {
        self.node.usage();
        let (made, free) = self.engine.extents().unwrap().slot_counts();
        made - free
    }

    /// Unlinks the files that a child holds; they live as long as they are open.
    pub async fn remove(&self, files: u64) {
        for number in 0..files {
            self.truth.unlink(Vfs::root(), number.to_string().as_bytes()).await.unwrap();
        }
    }

    /// Starts a client, and waits until it is connected.
    pub fn child(&self, test: ChildTest, what: &str) -> ChildProcess {
        child_of(self.server.address(), test, what)
    }
}

/// Starts a client of a node, and waits until it is connected.
pub fn child_of(address: &Address, test: ChildTest, what: &str) -> ChildProcess {
    let mut command = Command::new(env::current_exe().unwrap());
    let (_crate, test) = test.0.split_once("::").unwrap();
    command.args(["--exact", test, "--nocapture"]);
    command.envs([("CHILD", what), ("ADDRESS", &address.to_string())]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut process = ChildProcess { child, stdin, stdout };
    process.expect_line("ready");
    process
}

/// Path of the test that a client's process runs, with the crate.
#[derive(Clone, Copy)]
pub struct ChildTest(pub &'static str);

/// Process of a client, killed on drop.
pub struct ChildProcess {
    child: Child,
    stdin: ChildStdin,
    pub stdout: BufReader<ChildStdout>,
}

impl ChildProcess {
    /// Waits for a line with this word.
    pub fn expect_line(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim_end() != word {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the child has ended before it said `{word}`");
        }
    }

    pub fn send_line(&mut self, word: &str) {
        writeln!(self.stdin, "{word}").unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub async fn connect(address: &Address) -> Vfs {
    let remote = Arc::new(remote(address));
    Vfs::new(Client::connect(remote, RetryPolicy::default()).await.unwrap())
}

/// In a process that [`Host::child`] has started: returns its client, its job, and the orders that
/// come.
pub async fn child_orders() -> Option<(Vfs, String, impl Iterator<Item = String> + Send + 'static)> {
    let (what, address) = (env::var("CHILD").ok()?, env::var("ADDRESS").ok()?);
    let vfs = connect(&address.parse().unwrap()).await;
    println!("\nready");
    Some((vfs, what, BufReader::new(std::io::stdin()).lines().map(Result::unwrap)))
}
