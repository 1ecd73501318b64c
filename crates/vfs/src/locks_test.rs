//! Locks between owners and sessions: waiting, order, and release.

use crate::{Handle, Vfs, pool_test::*};
use client::testing::CountingConnection;
use placement::FileId;
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use wire::{Lock, LockKind, LockOwner, LockStyle, OpenFlags, Outcome, Refusal};

type PendingLock = Pin<Box<dyn Future<Output = Outcome<()>> + Send>>;

/// Two sessions that have one file open.
struct LockSessions {
    vfs: [Vfs; 2],
    handles: [Handle; 2],
    file: FileId,
}

impl LockSessions {
    async fn over(nodes: u32) -> Self {
        let pool = Pool::of(nodes);
        let vfs = [pool.client().await, pool.client().await];
        vfs[0].make_directories(b"d").await.unwrap();
        let file = vfs[0].write_file(b"d/f", b"bytes").await.unwrap().file;
        let open = |vfs: &Vfs| vfs.open(file, OpenFlags::READ_WRITE);
        let handles = [open(&vfs[0]).await.unwrap(), open(&vfs[1]).await.unwrap()];
        Self { vfs, handles, file }
    }

    async fn now(&self, session: usize, lock: Lock) -> Outcome<()> {
        self.vfs[session].lock(self.handles[session], lock, false).await
    }

    /// Requests a lock that must wait, and polls it once.
    fn wait(&self, session: usize, lock: Lock) -> PendingLock {
        let mut waiting: PendingLock = Box::pin(self.vfs[session].lock(self.handles[session], lock, true));
        assert_eq!(poll(&mut waiting), None, "it waits");
        waiting
    }
}

fn poll(waiting: &mut PendingLock) -> Option<Outcome<()>> {
    match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

fn range(owner: u64, kind: LockKind, start: u64, end: u64) -> Lock {
    Lock { owner: LockOwner::Session(owner), kind, style: LockStyle::Range { start, end }, pid: 77 }
}

fn read(owner: u64) -> Lock {
    range(owner, LockKind::Read, 0, 9)
}

fn write(owner: u64) -> Lock {
    range(owner, LockKind::Write, 0, 9)
}

fn unlock(owner: u64) -> Lock {
    range(owner, LockKind::Unlock, 0, 9)
}

fn flock(owner: u64, kind: LockKind) -> Lock {
    Lock { owner: LockOwner::Session(owner), kind, style: LockStyle::Whole, pid: 77 }
}

#[tokio::test]
async fn a_lock_that_is_taken_is_refused_told_and_waited_for() {
    for nodes in NODES {
        let sessions = LockSessions::over(nodes).await;
        sessions.now(0, write(1)).await.unwrap();
        assert!(
            matches!(sessions.now(1, read(1)).await, Err(Refusal::Locked(_))),
            "the same number of another session"
        );
        let told = sessions.vfs[1].test_lock(sessions.handles[1], range(1, LockKind::Read, 5, 50)).await.unwrap();
        assert_eq!(told, Some(write(1)));
        assert_eq!(sessions.vfs[1].test_lock(sessions.handles[1], range(1, LockKind::Write, 10, 50)).await, Ok(None));
        let mut waiting = sessions.wait(1, read(1));
        sessions.now(0, range(1, LockKind::Unlock, 0, 4)).await.unwrap();
        assert_eq!(poll(&mut waiting), None, "a part of it is held still");
        sessions.now(0, range(1, LockKind::Read, 5, 9)).await.unwrap();
        assert_eq!(poll(&mut waiting), Some(Ok(())), "readers are among themselves");
    }
}

#[tokio::test]
async fn who_waits_first_is_served_first_and_newcomers_do_not_overtake() {
    for nodes in NODES {
        let sessions = LockSessions::over(nodes).await;
        sessions.now(0, read(1)).await.unwrap();
        let mut writer = sessions.wait(1, write(2));
        let mut newcomer = sessions.wait(0, read(3));
        sessions.now(0, unlock(1)).await.unwrap();
        assert_eq!(poll(&mut newcomer), None, "the writer came before");
        assert_eq!(poll(&mut writer), Some(Ok(())));
        sessions.now(1, unlock(2)).await.unwrap();
        assert_eq!(poll(&mut newcomer), Some(Ok(())));
    }
}

#[tokio::test]
async fn who_holds_a_lock_goes_past_those_who_wait() {
    for nodes in NODES {
        let sessions = LockSessions::over(nodes).await;
        sessions.now(0, read(1)).await.unwrap();
        let mut writer = sessions.wait(1, range(2, LockKind::Write, 0, 20));
        let more = sessions.vfs[0].lock(sessions.handles[0], range(1, LockKind::Read, 10, 20), true).await;
        assert_eq!(more, Ok(()), "the writer waits for him: he must not wait for the writer");
        sessions.vfs[0].unlock_all(sessions.file, LockOwner::Session(1), LockStyle::EVERYWHERE).await.unwrap();
        assert_eq!(poll(&mut writer), Some(Ok(())));
    }
}

#[tokio::test]
async fn who_is_dropped_while_waiting_leaves_nothing() {
    for nodes in NODES {
        let sessions = LockSessions::over(nodes).await;
        sessions.now(0, read(1)).await.unwrap();
        let writer = sessions.wait(1, write(2));
        let mut reader = sessions.wait(1, read(3));
        drop(writer);
        assert_eq!(poll(&mut reader), Some(Ok(())), "nobody waits before him any more");
        sessions.now(0, unlock(1)).await.unwrap();
        sessions.now(1, unlock(3)).await.unwrap();
        assert_eq!(sessions.now(0, write(4)).await, Ok(()), "the dropped one holds nothing");
    }
}

#[tokio::test]
async fn whoever_closes_a_circle_of_waiting_is_told() {
    for nodes in NODES {
        let sessions = LockSessions::over(nodes).await;
        let part = |owner, start| range(owner, LockKind::Write, start, start);
        for owner in 1..=3 {
            sessions.now(0, part(owner, owner)).await.unwrap();
        }
        let mut first = sessions.wait(0, part(1, 2));
        let second = sessions.wait(0, part(2, 3));
        let last = sessions.vfs[0].lock(sessions.handles[0], part(3, 1), true).await;
        assert!(matches!(last, Err(Refusal::Deadlock(_))), "{last:?}");
        drop(second);
        sessions.now(0, range(2, LockKind::Unlock, 2, 2)).await.unwrap();
        assert_eq!(poll(&mut first), Some(Ok(())), "the others go on");
    }
}

#[tokio::test]
async fn closing_ends_the_locks_that_were_made_through_the_handle() {
    for nodes in NODES {
        let sessions = LockSessions::over(nodes).await;
        sessions.now(0, flock(1, LockKind::Write)).await.unwrap();
        sessions.now(0, write(1)).await.unwrap();
        sessions.vfs[0].close(sessions.handles[0]).await.unwrap();
        sessions.now(1, flock(2, LockKind::Write)).await.unwrap();
        sessions.now(1, write(2)).await.unwrap();
        sessions.vfs[1].unlock_all(sessions.file, LockOwner::Session(2), LockStyle::EVERYWHERE).await.unwrap();
        let other = sessions.vfs[0].open(sessions.file, OpenFlags::READ).await.unwrap();
        assert_eq!(sessions.vfs[0].lock(other, write(1), false).await, Ok(()));
        let whole = sessions.vfs[0].lock(other, flock(1, LockKind::Read), false).await;
        assert!(matches!(whole, Err(Refusal::Locked(_))), "the other style stays");
    }
}

#[tokio::test]
async fn an_owner_that_never_locked_costs_no_message_when_it_closes() {
    let calls = Arc::new(AtomicU64::new(0));
    let node = node(8 << 20, Duration::ZERO);
    let vfs = over(CountingConnection::new(direct(&node), calls.clone()), client::RetryPolicy::default()).await;
    let file = vfs.write_file(b"f", b"").await.unwrap().file;
    let handle = vfs.open(file, OpenFlags::WRITE).await.unwrap();
    vfs.lock(handle, write(1), false).await.unwrap();
    let before = calls.load(Relaxed);
    vfs.unlock_all(file, LockOwner::Session(2), LockStyle::EVERYWHERE).await.unwrap();
    vfs.unlock_all(file, LockOwner::Session(1), LockStyle::Whole).await.unwrap();
    assert_eq!(calls.load(Relaxed), before);
    vfs.unlock_all(file, LockOwner::Session(1), LockStyle::EVERYWHERE).await.unwrap();
    vfs.unlock_all(file, LockOwner::Session(1), LockStyle::EVERYWHERE).await.unwrap();
    assert_eq!(calls.load(Relaxed), before + 1, "once, when it did");
}

#[tokio::test]
async fn a_session_takes_its_locks_and_its_waiters_with_it() {
    for nodes in NODES {
        let sessions = LockSessions::over(nodes).await;
        sessions.now(0, write(1)).await.unwrap();
        let mut heir = sessions.wait(1, write(2));
        let mut own = sessions.wait(0, write(3));
        sessions.vfs[0].client.close().await.unwrap();
        assert!(matches!(poll(&mut own), Some(Err(Refusal::Interrupted(_)))));
        assert_eq!(poll(&mut heir), Some(Ok(())));
    }
}

#[tokio::test]
async fn who_changes_the_kind_of_a_flock_and_must_wait_has_lost_the_old_one() {
    for nodes in NODES {
        let sessions = LockSessions::over(nodes).await;
        sessions.now(0, flock(1, LockKind::Read)).await.unwrap();
        sessions.now(1, flock(2, LockKind::Read)).await.unwrap();
        let mut first = sessions.wait(0, flock(1, LockKind::Write));
        let second = sessions.vfs[1].lock(sessions.handles[1], flock(2, LockKind::Write), true);
        let mut second: PendingLock = Box::pin(second);
        let (one, two) = (poll(&mut second), poll(&mut first));
        assert!(one.is_some() != two.is_some(), "one of them has it: {one:?} {two:?}");
    }
}

/// A waiter that is never woken would hang; the watchdog then ends the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_wait_at_once_each_has_the_lock_alone_and_none_is_forgotten() {
    const WATCHDOG: Duration = Duration::from_mins(1);
    const ROUNDS: u64 = 100;
    let sessions = Arc::new(LockSessions::over(4).await);
    let inside = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..8_u64)
        .map(|number| {
            let (sessions, inside) = (sessions.clone(), inside.clone());
            tokio::spawn(async move {
                let session = usize::from(!number.is_multiple_of(2));
                let vfs = sessions.vfs[session].clone();
                for round in 0..ROUNDS {
                    let whole = (number + round).is_multiple_of(3);
                    let lock = if whole { flock(number, LockKind::Write) } else { write(number) };
                    let unit = if whole { 1 << 32 } else { 1 };
                    vfs.lock(sessions.handles[session], lock, true).await.unwrap();
                    let before = inside.fetch_add(unit, Relaxed);
                    assert_eq!(before / unit % (1 << 32), 0, "alone");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(unit, Relaxed);
                    let unlock = Lock { kind: LockKind::Unlock, ..lock };
                    vfs.lock(sessions.handles[session], unlock, false).await.unwrap();
                }
            })
        })
        .collect();
    let all = async {
        for task in tasks {
            task.await.unwrap();
        }
    };
    tokio::time::timeout(WATCHDOG, all).await.expect("somebody waits for ever");
}
