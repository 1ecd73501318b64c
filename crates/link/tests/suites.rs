//! Suites of `vfs`, over sockets: the same tests, each connection a server and a `Remote`.

mod common;

use vfs::{Handle, Vfs};

#[path = "../../vfs/src/message_test.rs"]
mod message_test;

/// What the suite takes from its own crate, with sockets below.
mod pool_test {
    use super::common;
    pub use super::common::{OWNER, STRIPE};
    use client::{Client, Connection, Hear, Patience};
    use link::{Remote, Server};
    use node::{Node, Reply, Settings};
    use placement::FileId;
    use std::{sync::Arc, time::Duration};
    use store::Model;
    use vfs::Vfs;
    use wire::{Name, Outcome, RenameFrom, RenameTo, Request, Session};

    pub const IMPATIENT: Patience =
        Patience { tries: 3, pause_first: Duration::from_micros(10), pause_max: Duration::from_micros(10) };

    /// A connection with its server.
    #[derive(Debug)]
    pub struct Served {
        remote: Remote,
        _server: Server,
    }

    impl Connection for Served {
        fn call(&self, request: Request) -> Reply {
            self.remote.call(request)
        }

        fn watch(&self, session: Session, hear: &Hear) -> Outcome<()> {
            self.remote.watch(session, hear)
        }

        fn unwatch(&self, session: Session) {
            self.remote.unwatch(session);
        }
    }

    pub fn direct(node: &Arc<Node>) -> Served {
        let server = common::serve(node, &common::any_port());
        Served { remote: Remote::new(server.address().clone(), &common::token()), _server: server }
    }

    pub fn node(memory: u64, space_wait: Duration) -> Arc<Node> {
        let settings =
            Settings { partitions: 64, stripe_bytes: STRIPE, space_wait, owner: OWNER, ..Settings::default() };
        node::embedded(settings, Arc::new(Model::new(memory, STRIPE)))
    }

    pub fn node_that_splits(split_entries: u32) -> Arc<Node> {
        let settings =
            Settings { partitions: 64, stripe_bytes: STRIPE, owner: OWNER, split_entries, ..Settings::default() };
        node::embedded(settings, Arc::new(Model::new(256 << 20, STRIPE)))
    }

    /// In this process: what is promised of it holds of memory.
    pub fn pool() -> Vfs {
        Vfs::new(Client::embedded(node(64 << 20, Duration::ZERO)))
    }

    pub async fn over(connection: impl Connection + 'static, patience: Patience) -> Vfs {
        Vfs::new(Client::connect(Arc::new(connection), patience).await.unwrap())
    }

    pub fn from(parent: FileId, text: &str) -> RenameFrom {
        RenameFrom { parent, name: Name::new(text.as_bytes()).unwrap() }
    }

    pub fn to(parent: FileId, text: &str) -> RenameTo {
        RenameTo { parent, name: Name::new(text.as_bytes()).unwrap() }
    }
}
