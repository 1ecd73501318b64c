//! State that ends with a connection, and changes that are not done twice after it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::common::*;
use bytes::Bytes;
use client::Connection;
use placement::{Epoch, FileId, PartitionId};
use std::{sync::Arc, time::Duration};
use test_support::until_polled;
use transport::{Address, Remote};
use vfs::Vfs;
use wire::{
    Answer, Body, Command, Failure, HelloReply, Kind, Lock, LockKind, LockOwner, LockStyle, OpenFlags, Refusal,
    Request, RequestId, Session, WritePlace,
};

const LOCK: Lock = Lock { owner: LockOwner::Session(1), kind: LockKind::Write, style: LockStyle::Whole, pid: 1 };

#[tokio::test]
async fn what_a_client_holds_that_is_cut_off_ends_and_others_go_on() {
    let node = node();
    let mut server = serve(&node, &any_port());
    let relay = Relay::to(&mut server);
    let (mortal, other) = (vfs(&relay.address).await, vfs(server.address()).await);
    let before = other.list(Vfs::root(), 0, 9).await.unwrap().len();
    let files = node.usage().files;
    if !WITH_REACTOR {
        mortal.subscribe(Arc::new(|_| {})).await.unwrap();
    }
    let gone = mortal.write_file(b"gone", &vec![7; 200_000]).await.unwrap().file;
    let locked = mortal.write_file(b"locked", b"bytes").await.unwrap().file;
    mortal.open(gone, OpenFlags::READ).await.unwrap();
    other.unlink(Vfs::root(), b"gone").await.unwrap();
    let mine = mortal.open(locked, OpenFlags::READ_WRITE).await.unwrap();
    mortal.lock(mine, LOCK, false).await.unwrap();
    let yours = other.open(locked, OpenFlags::READ_WRITE).await.unwrap();
    assert_eq!(other.lock(yours, LOCK, false).await, Err(Refusal::Locked(wire::Object::File(locked))));
    let waiting = tokio::spawn(other.lock(yours, LOCK, true));
    relay.cut();
    waiting.await.unwrap().unwrap();
    other.close(yours).await.unwrap();
    other.unlink(Vfs::root(), b"locked").await.unwrap();
    until_polled("the file is gone", || node.usage().files == files).await;
    assert!(matches!(other.stat(gone).await, Err(Refusal::NotFound(_))));
    assert_eq!(other.list(Vfs::root(), 0, 9).await.unwrap().len(), before);
    server.stop().await;
}

#[tokio::test]
async fn a_write_that_waits_for_space_ends_when_nobody_wants_it_any_more() {
    let node = node_of(1 << 20);
    let server = serve(&node, &any_port());
    let (one, other) = (vfs(server.address()).await, vfs(server.address()).await);
    let (_, handle) = one.create(Vfs::root(), b"f", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    let writing = one.clone();
    let waiting = tokio::spawn(async move { writing.write(handle, 0, Bytes::from(vec![7; 2 << 20])).await });
    until_polled("the writer waits", || node.usage().waiting > 0).await;
    other.list(Vfs::root(), 0, 9).await.unwrap();
    waiting.abort();
    let _ = waiting.await;
    until_polled("nobody waits any more", || node.usage().waiting == 0).await;
    one.list(Vfs::root(), 0, 9).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_is_dropped_ends_what_its_clients_hold_and_leaves_no_file() {
    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    let address = Address::Unix(directory.path().join("pool"));
    let files = node.usage().files;
    let handle = tokio::runtime::Handle::current();
    for own in [true, false] {
        let server = if own {
            serve(&node, &address)
        } else {
            let listener = transport::Listener::bind(&address).unwrap();
            transport::serve_on(&handle, node.clone(), listener, &token(), transport::ServerLimits::default(), None)
                .unwrap()
        };
        let vfs = vfs(&address).await;
        vfs.create(Vfs::root(), b"f", 0o600, OWNER, OpenFlags::WRITE).await.unwrap();
        vfs.unlink(Vfs::root(), b"f").await.unwrap();
        drop(server);
        until_polled("the file and the socket are gone", || {
            node.usage().files == files && !directory.path().join("pool").exists()
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_is_stopped_leaves_no_file_and_a_socket_left_by_a_dead_one_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = serve(&node(), &Address::Unix(path.clone()));
    vfs(server.address()).await.write_file(b"f", b"bytes").await.unwrap();
    assert!(transport::Listener::bind(server.address()).unwrap_err().to_string().contains("cannot listen at unix:/"));
    server.stop().await;
    assert!(!path.exists());
}

/// Session without a client, so that its requests are known exactly.
struct HelloSession {
    remote: Remote,
    welcome: HelloReply,
}

impl HelloSession {
    async fn new(address: &Address) -> Self {
        let remote = remote(address);
        let hello = Request {
            epoch: Epoch::FIRST,
            session: Session::NONE,
            skip_ack: false,
            partition: PartitionId(0),
            body: Body::Hello,
        };
        let Ok(Answer::Hello(welcome)) = remote.call(hello).await else { panic!("no welcome") };
        Self { remote, welcome }
    }

    fn request(&self, file: FileId, number: u64, command: Command) -> Request {
        let (session, epoch) = (self.welcome.session, Epoch::FIRST);
        let request_id = command.is_mutation().then_some(RequestId { session, number, settled: 1 });
        let body = Body::Meta { request_id, command };
        Request { epoch, session, skip_ack: false, partition: file.partition(), body }
    }

    fn append(&self, file: FileId) -> Request {
        let data = Bytes::from_static(b"once;");
        self.request(file, 1, Command::Write { file, place: WritePlace::End, length: 5, data, kill_set_id: false })
    }
}

#[tokio::test]
async fn a_change_that_is_sent_again_over_another_connection_is_not_done_twice() {
    let node = node();
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Unix(directory.path().join("pool"));
    let server = serve(&node, &address);
    let truth = Vfs::new(client::Client::embedded(node.clone()));
    let file = truth.make_node(Vfs::root(), b"f", Kind::File, 0o600, OWNER).await.unwrap().file;
    let held = truth.open(file, OpenFlags::READ_WRITE).await.unwrap();
    truth.lock(held, LOCK, false).await.unwrap();
    let session = HelloSession::new(&address).await;
    session.remote.call(session.append(file)).await.unwrap();
    session.remote.call(session.append(file)).await.unwrap();
    assert_eq!(truth.stat(file).await.unwrap().size, 5, "sent again on the same connection");
    let waiting = session.remote.call(session.request(file, 2, Command::Lock { file, lock: LOCK, wait: true }));
    session.remote.call(session.request(file, 0, Command::Stat { file })).await.unwrap();
    server.stop().await;
    assert!(matches!(waiting.await, Err(Failure::Lost(_))), "it was sent");
    let unreachable = session.remote.call(session.append(file)).await;
    assert!(matches!(unreachable, Err(Failure::Unreachable(_))), "{unreachable:?}");
    let server = serve(&node, &address);
    let again = loop {
        match session.remote.call(session.append(file)).await {
            Err(Failure::Unreachable(_)) => tokio::task::yield_now().await,
            answered => break answered,
        }
    };
    assert_eq!(again, Err(Failure::Refused(Refusal::SessionEnded)));
    assert_eq!(truth.read_file(b"f").await.unwrap(), &b"once;"[..]);
    drop(session);
    server.stop().await;
}

#[tokio::test]
async fn a_connection_that_was_not_there_is_made_when_its_server_is() {
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Unix(directory.path().join("pool"));
    let remote = Arc::new(remote(&address));
    let retry_policy = client::RetryPolicy { tries: 2, pause_first: Duration::ZERO, pause_max: Duration::ZERO };
    let refused = client::Client::connect(remote.clone(), retry_policy).await.unwrap_err();
    assert!(refused.to_string().contains("pool"), "{refused}");
    let server = serve(&node(), &address);
    Vfs::new(client::Client::connect(remote, client::RetryPolicy::default()).await.unwrap());
    server.stop().await;
}

#[test]
fn calls_over_a_runtime_that_has_ended_fail_at_once() {
    let threads = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (servers, clients) = (threads(), threads());
    let server = {
        let _entered = servers.enter();
        serve(&node(), &any_port())
    };
    let remote = Remote::on_runtime(clients.handle(), server.address().clone(), &token());
    let usage = || {
        let (epoch, session, partition) = (Epoch::FIRST, Session::NONE, PartitionId(0));
        remote.call(Request { epoch, session, skip_ack: false, partition, body: Body::Usage })
    };
    assert!(matches!(servers.block_on(usage()), Ok(Answer::Usage(_))));
    let under_way = usage();
    drop(clients);
    for call in [under_way, usage(), usage()] {
        match servers.block_on(call) {
            Ok(Answer::Usage(_)) | Err(Failure::Lost(_) | Failure::Unreachable(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(servers.block_on(usage()), Err(Failure::Unreachable(_))));
    servers.block_on(server.stop());
}
