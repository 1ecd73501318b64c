//! Tests of the reactor over a connection that counts the bytes that its peer sends.

use crate::{Driven, Input, PollEntry, RawSocket, Reactor, nonblocking::poll_now};
use node::LocalTime;
use parking_lot::Mutex;
use std::{
    fmt,
    future::{Future, poll_fn},
    io::Write,
    os::unix::net::{UnixListener, UnixStream},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

/// Bytes that have come, and who waits for more.
#[derive(Default)]
struct Received {
    count: AtomicUsize,
    wanted: AtomicUsize,
    waiters: Mutex<Vec<Waker>>,
    /// Number of polls that were told of input.
    told: AtomicUsize,
    abandoned: AtomicBool,
    ended: AtomicBool,
}

impl Received {
    /// Waits until so many bytes have come in all.
    async fn wait(&self, count: usize) {
        self.wanted.fetch_max(count, SeqCst);
        poll_fn(|context| {
            self.waiters.lock().push(context.waker().clone());
            if self.count.load(SeqCst) >= count { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

enum Stage {
    Opening(Pin<Box<dyn Future<Output = std::io::Result<RawSocket>> + Send>>),
    Open(RawSocket),
}

/// Connection that counts bytes.
struct Counter {
    received: Arc<Received>,
    stage: Mutex<Stage>,
}

impl Driven for Counter {
    fn poll(&self, input: Input, time: &LocalTime, context: &mut Context<'_>) -> Poll<()> {
        let mut stage = self.stage.lock();
        self.received.told.fetch_add(usize::from(input == Input::Possible), SeqCst);
        if let Stage::Opening(opening) = &mut *stage {
            let _time = time.enter();
            match opening.as_mut().poll(context) {
                Poll::Ready(socket) => *stage = Stage::Open(socket.unwrap()),
                Poll::Pending => return Poll::Pending,
            }
        }
        let Stage::Open(socket) = &*stage else { return Poll::Pending };
        let mut room = [0; 16];
        while let Poll::Ready(count) = poll_now(|| Ok(rustix::io::read(socket, &mut room)?)) {
            let count = count.unwrap();
            if count == 0 {
                self.received.ended.store(true, SeqCst);
                return Poll::Ready(());
            }
            self.received.count.fetch_add(count, SeqCst);
            self.received.waiters.lock().drain(..).for_each(Waker::wake);
        }
        Poll::Pending
    }

    fn has_pending(&self) -> bool {
        self.received.count.load(SeqCst) < self.received.wanted.load(SeqCst)
    }

    fn abandon(&self) {
        self.received.abandoned.store(true, SeqCst);
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Counter")
    }
}

/// Connects a reactor; returns what comes there, and the peer.
fn connect(reactor: &Reactor) -> (Arc<Received>, UnixStream) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let received = Arc::new(Received::default());
    reactor.drive(|entry: Arc<PollEntry>| Counter {
        received: received.clone(),
        stage: Mutex::new(Stage::Opening(Box::pin(async move { RawSocket::connect_unix(&path, &entry).await }))),
    });
    (received, listener.accept().unwrap().0)
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn each_waiting_thread_gets_what_it_waits_for_whoever_leads() {
    let reactor = Reactor::new().unwrap();
    let (received, mut peer) = connect(&reactor);
    thread::scope(|scope| {
        let waits: Vec<_> = (1..=8)
            .map(|count| {
                scope.spawn({
                    let (reactor, received) = (&reactor, &received);
                    move || reactor.block_on(received.wait(count))
                })
            })
            .collect();
        for _ in 0..8 {
            peer.write_all(b"x").unwrap();
        }
        for wait in waits {
            wait.join().unwrap();
        }
    });
    assert_eq!(received.count.load(SeqCst), 8);
}

#[test]
fn a_thread_that_sleeps_tells_a_connection_of_each_input_once() {
    let reactor = Reactor::with_spin(Duration::ZERO).unwrap();
    let (received, mut peer) = connect(&reactor);
    for count in 1..=5 {
        peer.write_all(b"x").unwrap();
        reactor.block_on(received.wait(count));
    }
    assert_eq!(received.told.load(SeqCst), 5);
}

#[test]
fn who_cancels_gets_nothing_and_the_connection_goes_on() {
    let reactor = Reactor::new().unwrap();
    let (received, mut peer) = connect(&reactor);
    assert_eq!(reactor.block_on_unless(received.wait(1), || true), None);
    peer.write_all(b"x").unwrap();
    assert_eq!(reactor.block_on_unless(received.wait(1), || false), Some(()));
}

#[test]
fn an_event_loop_polls_a_future_without_a_thread_that_waits() {
    let reactor = Reactor::new().unwrap();
    let (received, mut peer) = connect(&reactor);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut wait = pin!(received.wait(1));
    assert!(reactor.poll(wait.as_mut(), &mut Context::from_waker(&waker)).is_pending());
    peer.write_all(b"x").unwrap();
    let descriptor = reactor.descriptor().unwrap();
    let mut watched = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut watched, None).unwrap(), 1);
    reactor.poll_io();
    assert!(woken.0.load(SeqCst) && reactor.poll(wait, &mut Context::from_waker(&waker)).is_ready());
}

#[test]
fn a_connection_that_has_ended_is_polled_no_more() {
    let reactor = Reactor::new().unwrap();
    let (received, peer) = connect(&reactor);
    drop(peer);
    reactor.poll_io();
    assert!(received.ended.swap(false, SeqCst));
    reactor.poll_io();
    assert!(!received.ended.load(SeqCst));
}

#[test]
fn a_child_abandons_the_connections_of_its_parent_and_makes_its_own() {
    let reactor = Reactor::new().unwrap();
    let (received, _peer) = connect(&reactor);
    reactor.before_fork();
    reactor.after_fork(false).unwrap();
    assert!(!received.abandoned.load(SeqCst) && reactor.generation() == 0, "this is the parent");
    reactor.before_fork();
    reactor.after_fork(true).unwrap();
    assert!(received.abandoned.load(SeqCst) && reactor.generation() == 1);
    let (received, mut peer) = connect(&reactor);
    peer.write_all(b"x").unwrap();
    reactor.block_on(received.wait(1));
}
