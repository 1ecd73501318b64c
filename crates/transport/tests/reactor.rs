//! Reactor: threads that share one, waits that are cancelled, processes that fork, nodes that go.
//! In a binary of its own, because it forks and counts the threads of the process.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in a test a panic is the failure; processes talk by their output"
)]

#[path = "suite/common/mod.rs"]
mod common;

use client::{Client, RetryPolicy};
use common::{host::Host, *};
use futures_util::future::join_all;
use node::{Node, sleep_until};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, WaitOptions, waitpid},
};
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use transport::{Address, Reactor, Remote, Server};
use vfs::Vfs;
use wire::{Lock, LockKind, LockOwner, LockStyle, OpenFlags, Refusal};

const LOCK: Lock = Lock { owner: LockOwner::Session(1), kind: LockKind::Write, style: LockStyle::Whole, pid: 1 };

/// Node at a Unix socket, on threads of its own.
struct Served {
    node: Arc<Node>,
    server: Server,
    address: Address,
    /// Directory of its socket.
    directory: TempDir,
}

impl Served {
    fn new() -> Self {
        let (node, directory) = (node(), tempfile::tempdir().unwrap());
        let address = Address::Unix(directory.path().join("pool"));
        Self { server: serve(&node, &address), node, address, directory }
    }

    /// Stops the server and its socket, and serves the same node again.
    fn served_again(self) -> Self {
        let Self { node, server, address, directory } = self;
        stopped(server);
        Self { server: serve(&node, &address), node, address, directory }
    }
}

fn stopped(server: Server) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(server.stop());
}

fn connect(reactor: &Reactor, address: &Address) -> Vfs {
    let remote = Arc::new(Remote::with_reactor(reactor, address.clone(), &token(), None).unwrap());
    Vfs::new(reactor.block_on(Client::connect(remote, RetryPolicy::default())).unwrap())
}

/// Number of threads of this process that drive connections.
fn carriers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may have ended since it was listed.
    let name = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.unwrap().path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with("tidemill-remote")).count()
}

#[test]
fn a_thread_that_waits_needs_no_other() {
    for spin in [Duration::ZERO, Duration::from_micros(30)] {
        let (served, reactor) = (Served::new(), Reactor::with_spin(spin).unwrap());
        let vfs = connect(&reactor, &served.address);
        reactor.block_on(vfs.write_file(b"f", b"bytes")).unwrap();
        assert_eq!(reactor.block_on(vfs.read_file(b"f")).unwrap(), &b"bytes"[..]);
        let end = Instant::now() + Duration::from_millis(3);
        reactor.block_on(sleep_until(end));
        assert!(Instant::now() >= end);
        assert_eq!(carriers(), 0);
    }
}

#[test]
fn threads_that_share_a_hand_all_get_their_own_answers() {
    for spin in [Duration::ZERO, Duration::from_micros(30)] {
        let (served, reactor) = (Served::new(), Reactor::with_spin(spin).unwrap());
        let vfs = connect(&reactor, &served.address);
        thread::scope(|scope| {
            for thread in 0..8_u32 {
                let (reactor, vfs) = (&reactor, &vfs);
                scope.spawn(move || {
                    for round in 0..100_u32 {
                        let (path, bytes) = (format!("{thread}-{}", round % 7), [thread, round].map(u32::to_le_bytes));
                        reactor.block_on(vfs.write_file(path.as_bytes(), bytes.as_flattened())).unwrap();
                        let reads = join_all((0..5).map(|_| vfs.read_file(path.as_bytes())));
                        for read in reactor.block_on(reads) {
                            assert_eq!(read.unwrap(), bytes.as_flattened());
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn one_thread_waits_long_and_others_do_not_wait_for_it() {
    let (served, reactor) = (Served::new(), Reactor::new().unwrap());
    let (vfs, truth) = (connect(&reactor, &served.address), Vfs::new(Client::embedded(served.node.clone())));
    let file = reactor.block_on(vfs.write_file(b"f", b"bytes")).unwrap().file;
    let held = client::poll_now(truth.open(file, OpenFlags::READ_WRITE)).unwrap().unwrap();
    client::poll_now(truth.lock(held, LOCK, false)).unwrap().unwrap();
    let wanted = reactor.block_on(vfs.open(file, OpenFlags::READ_WRITE)).unwrap();
    thread::scope(|scope| {
        // The waiting thread leads first, or follows: both make progress, and another thread leads
        // after it.
        let waits = scope.spawn(|| reactor.block_on(vfs.lock(wanted, LOCK, true)));
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    reactor.block_on(vfs.stat(file)).unwrap();
                }
            });
        }
        for _ in 0..200 {
            reactor.block_on(vfs.stat(file)).unwrap();
        }
        client::poll_now(truth.close(held)).unwrap().unwrap();
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn who_gives_up_waits_no_longer_and_leaves_nothing_behind() {
    let (served, reactor) = (Served::new(), Reactor::new().unwrap());
    let (vfs, truth) = (connect(&reactor, &served.address), Vfs::new(Client::embedded(served.node.clone())));
    let file = reactor.block_on(vfs.write_file(b"f", b"bytes")).unwrap().file;
    let held = client::poll_now(truth.open(file, OpenFlags::READ_WRITE)).unwrap().unwrap();
    client::poll_now(truth.lock(held, LOCK, false)).unwrap().unwrap();
    let wanted = reactor.block_on(vfs.open(file, OpenFlags::READ_WRITE)).unwrap();
    let mut asked = 0;
    let waited = reactor.block_on_unless(vfs.lock(wanted, LOCK, true), || {
        asked += 1;
        asked == 2
    });
    assert!(waited.is_none() && asked == 2);
    // When the node answers a later request, it has handled the cancel: nobody gets the lock once
    // it is free.
    reactor.block_on(vfs.stat(file)).unwrap();
    client::poll_now(truth.close(held)).unwrap().unwrap();
    let other = client::poll_now(truth.open(file, OpenFlags::READ_WRITE)).unwrap().unwrap();
    client::poll_now(truth.lock(other, LOCK, false)).unwrap().unwrap();
}

#[test]
fn a_node_that_goes_while_somebody_waits_ends_the_wait_and_is_found_again() {
    let (served, reactor) = (Served::new(), Reactor::new().unwrap());
    let (vfs, truth) = (connect(&reactor, &served.address), Vfs::new(Client::embedded(served.node.clone())));
    let file = reactor.block_on(vfs.write_file(b"f", b"bytes")).unwrap().file;
    let held = client::poll_now(truth.open(file, OpenFlags::READ_WRITE)).unwrap().unwrap();
    client::poll_now(truth.lock(held, LOCK, false)).unwrap().unwrap();
    let wanted = reactor.block_on(vfs.open(file, OpenFlags::READ_WRITE)).unwrap();
    let served = thread::scope(|scope| {
        let waits = scope.spawn(|| reactor.block_on(vfs.lock(wanted, LOCK, true)));
        let served = served.served_again();
        let ended = waits.join().unwrap();
        assert!(matches!(ended, Err(Refusal::SessionEnded | Refusal::OutcomeUnknown(_))), "{ended:?}");
        served
    });
    assert_eq!(reactor.block_on(vfs.read_file(b"f")).unwrap(), &b"bytes"[..]);
    drop(served);
}

#[test]
fn what_is_changed_first_after_a_node_went_and_came_again_is_done_and_known_to_be() {
    let (mut served, reactor) = (Served::new(), Reactor::new().unwrap());
    let vfs = connect(&reactor, &served.address);
    for round in 0..5 {
        reactor.block_on(vfs.make_directories(format!("d{round}").as_bytes())).unwrap();
        served = served.served_again();
        thread::yield_now(); // nobody drives the connection while it breaks
        reactor.block_on(vfs.write_file(format!("d{round}/f").as_bytes(), b"bytes")).unwrap();
    }
}

#[test]
fn a_node_that_is_not_there_is_unavailable_after_the_patience() {
    let (served, reactor) = (Served::new(), Reactor::new().unwrap());
    let vfs = connect(&reactor, &served.address);
    stopped(served.server);
    let refused = reactor.block_on(vfs.read_file(b"f")).unwrap_err();
    assert!(matches!(refused, Refusal::Unavailable { .. }), "{refused}");
}

#[test]
fn a_loop_that_watches_a_descriptor_turns_what_it_polls() {
    let (served, reactor) = (Served::new(), Reactor::new().unwrap());
    let vfs = connect(&reactor, &served.address);
    let watched = reactor.descriptor().unwrap();
    for round in 0..20_u8 {
        let bytes = vec![round; 100_000];
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        let mut written = pin!(vfs.write_file(b"f", &bytes));
        loop {
            let polled = reactor.poll(written.as_mut(), &mut Context::from_waker(&waker));
            if let Poll::Ready(written) = polled {
                assert_eq!(written.unwrap().size, 100_000);
                break;
            }
            while !woken.0.swap(false, SeqCst) {
                let next = reactor.poll_io().map(|next| next.saturating_duration_since(Instant::now()));
                if woken.0.load(SeqCst) {
                    continue;
                }
                let next = next.map(|next| Timespec::try_from(next).unwrap());
                poll(&mut [PollFd::new(&watched, PollFlags::IN)], next.as_ref()).unwrap();
            }
        }
    }
}

struct Woken(AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// Forks, and runs `what` in the child; returns whether it came to its end.
#[expect(unsafe_code, reason = "a fork")]
fn in_child(reactor: &Reactor, what: impl FnOnce()) -> bool {
    reactor.before_fork();
    // SAFETY: the child does nothing that needs a thread of this process or a lock that one may
    // hold: it prints nothing, and the system's allocator may be used in a child.
    let child = unsafe { libc::fork() };
    reactor.after_fork(child == 0).unwrap();
    if child == 0 {
        let done = catch_unwind(AssertUnwindSafe(what)).is_ok();
        // SAFETY: the child ends here, without the exit handlers that others have registered.
        unsafe { libc::_exit(i32::from(!done)) }
    }
    let ended = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap();
    ended.is_some_and(|(_, status)| status.exit_status() == Some(0))
}

#[test]
fn a_brief_client_is_shown_memory_when_it_has_asked_for_bytes_and_others_at_once() {
    let (host, reactor) = (Host::start(64 << 20), Reactor::new().unwrap());
    for (short_lived, firsts_are_views) in [(false, true), (true, false)] {
        let remote = Remote::with_reactor(&reactor, host.server.address().clone(), &token(), None).unwrap();
        let remote = Arc::new(if short_lived { remote.short_lived() } else { remote });
        let vfs = Vfs::new(reactor.block_on(Client::connect(remote, RetryPolicy::default())).unwrap());
        let file = reactor.block_on(vfs.write_file(b"f", &vec![7; STRIPE as usize])).unwrap().file;
        let handle = reactor.block_on(vfs.open(file, OpenFlags::READ)).unwrap();
        let get = || is_view(&reactor.block_on(vfs.read(handle, 0, STRIPE)).unwrap());
        assert_eq!((get(), get()), (firsts_are_views, true), "short_lived: {short_lived}");
        reactor.block_on(vfs.close(handle)).unwrap();
    }
}

#[test]
fn a_child_connects_anew_and_its_parents_connection_stays() {
    let (host, reactor) = (Host::start(64 << 20), Reactor::new().unwrap());
    let remote = Arc::new(Remote::with_reactor(&reactor, host.server.address().clone(), &token(), None).unwrap());
    let client = reactor.block_on(Client::connect(remote, RetryPolicy::default())).unwrap();
    let vfs = Vfs::new(client.clone());
    let bytes = vec![7; 3 * STRIPE as usize];
    let file = reactor.block_on(vfs.write_file(b"f", &bytes)).unwrap().file;
    let handle = reactor.block_on(vfs.open(file, OpenFlags::READ)).unwrap();
    let (session, stops) = (client.session(), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stops.load(SeqCst) {
                    assert_eq!(reactor.block_on(vfs.read_file(b"f")).unwrap(), bytes);
                }
            });
        }
        for child in 0..8 {
            let view = reactor.block_on(vfs.read(handle, 0, STRIPE)).unwrap();
            let path = format!("child{child}");
            let succeeded = in_child(&reactor, || {
                drop(view.clone()); // not read: the content is preserved for the parent alone
                assert_eq!(reactor.block_on(vfs.read(handle, 0, 1)), Err(Refusal::SessionEnded), "it is the parent's");
                reactor.block_on(vfs.write_file(path.as_bytes(), &bytes)).unwrap();
                assert_eq!(reactor.block_on(vfs.read_file(path.as_bytes())).unwrap(), bytes);
                assert_ne!(client.session(), session);
            });
            assert!(succeeded, "child {child}");
            assert_eq!(reactor.block_on(vfs.read_file(path.as_bytes())).unwrap(), bytes);
            assert!(view.iter().all(|byte| *byte == 7));
        }
        stops.store(true, SeqCst);
    });
    reactor.block_on(vfs.close(handle)).unwrap();
    assert_eq!(client.session(), session, "nothing was said on the parent's connection");
}
