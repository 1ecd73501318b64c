//! Model checks of every interleaving of threads, over the node's own sources: cache grants, which
//! are shared without a lock, and invalidation queues. The sources are compiled here once more,
//! with the checker's locks and atomics.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "of the sources the models use a part; a test that cannot go on has failed"
)]

use loom::{model::Builder, sync::Arc, thread};
use partition::{Asker, Watcher};
use std::collections::BTreeMap;
use sync::atomic::{AtomicBool, Ordering::Relaxed};
use wire::{Recall, Session};

/// The checker's locks with the interfaces of those that the node uses.
mod sync {
    pub use loom::sync::atomic;
    use std::ops::{Deref, DerefMut};

    #[derive(Debug, Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    /// Empty only while a condition variable waits.
    pub struct Guard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    #[derive(Debug, Default)]
    pub struct Condvar(loom::sync::Condvar);

    #[derive(Debug, Default)]
    pub struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> Mutex<T> {
        pub fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    impl Condvar {
        pub fn wait<T>(&self, guard: &mut Guard<'_, T>) {
            guard.0 = Some(self.0.wait(guard.0.take().unwrap()).unwrap());
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    impl<T> RwLock<T> {
        pub fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap()
        }

        pub fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap()
        }
    }
}

mod timer {
    pub use node::sleep_until;
}

#[path = "../src/lane.rs"]
mod lane;

/// Subscribers without threads of their own: the models take the steps.
mod watch {
    use crate::lane::Lane;
    use std::{io, sync::Arc};
    use wire::Recall;

    pub type Hear = Arc<dyn Fn(&[Recall]) + Send + Sync>;

    #[derive(Debug)]
    pub struct Watch(Arc<Lane>);

    #[derive(Debug)]
    pub struct Hearing(Vec<(Arc<Lane>, u64)>);

    impl Watch {
        #[expect(clippy::unnecessary_wraps, reason = "as the real one, whose threads may be refused")]
        pub fn start(_: &Hear) -> io::Result<Self> {
            Ok(Self(Arc::default()))
        }

        pub fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
            std::iter::once(&self.0)
        }

        pub fn lane(&self, _: Recall) -> &Arc<Lane> {
            &self.0
        }
    }

    impl Hearing {
        pub fn of(waits: Vec<(Arc<Lane>, u64)>) -> Option<Self> {
            (!waits.is_empty()).then_some(Self(waits))
        }
    }
}

#[path = "../src/grants.rs"]
mod grants;

use watch::Hear;

/// A node of one partition.
#[derive(Debug, Default)]
pub struct Node {
    watches: grants::Watches,
    partitions: [sync::Mutex<Partition>; 1],
}

/// The grants: session by subscriber number.
#[derive(Debug, Default)]
struct Partition(BTreeMap<usize, Session>);

impl Partition {
    fn grant(&mut self, asker: Asker) {
        if let Some(watcher) = asker.watcher {
            self.0.insert(watcher.number(), asker.session);
        }
    }

    fn watcher_ended(&mut self, watcher: Watcher) {
        self.0.remove(&watcher.number());
    }
}

impl Node {
    fn watched(&self, session: Session) {
        self.watch(session, &(std::sync::Arc::new(|_: &[Recall]| ()) as Hear)).unwrap();
    }

    /// A lookup by the session, with a grant for what it sees.
    fn look(&self, session: Session) {
        let mut partition = self.partitions[0].lock();
        partition.grant(self.watches.asker(session));
    }
}

const ONE: Session = Session(1);
const TWO: Session = Session(2);

/// Tries all interleavings with up to three preemptions; more find nothing new and take minutes.
fn try_all(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn nothing_is_granted_to_a_session_after_it_has_ended_nor_lost_by_the_next() {
    try_all(|| {
        let node = Arc::new(Node::default());
        node.watched(ONE);
        let looks = thread::spawn({
            let node = node.clone();
            move || node.look(ONE)
        });
        let next = thread::spawn({
            let node = node.clone();
            move || {
                node.watched(TWO);
                node.look(TWO);
            }
        });
        node.unwatch(ONE);
        looks.join().unwrap();
        next.join().unwrap();
        let granted: Vec<Session> = node.partitions[0].lock().0.values().copied().collect();
        assert_eq!(granted, [TWO]);
    });
}

#[test]
fn who_changes_something_knows_all_to_whom_it_was_granted() {
    try_all(|| {
        let node = Arc::new(Node::default());
        let other = thread::spawn({
            let node = node.clone();
            move || {
                node.watched(ONE);
                node.look(ONE);
            }
        });
        let partition = node.partitions[0].lock();
        let asker = node.watches.asker(TWO);
        for number in partition.0.keys() {
            assert!(asker.others.has(Watcher::new(*number).unwrap()), "watcher {number} is not told");
        }
        drop(partition);
        other.join().unwrap();
    });
}

#[test]
fn what_is_found_no_more_has_been_heard_and_nothing_posted_is_slept_over() {
    const WHAT: Recall = Recall::Attributes(placement::FileId::ROOT);
    try_all(|| {
        let (lane, heard) = (Arc::new(lane::Lane::default()), Arc::new(AtomicBool::new(false)));
        let changed = Arc::new(sync::Mutex::<bool>::default());
        let teller = thread::spawn({
            let (lane, heard) = (lane.clone(), heard.clone());
            move || {
                // Sleeps until something is posted; a lost wake-up would be a deadlock.
                assert_eq!(lane.take(), Some(vec![WHAT]));
                heard.store(true, Relaxed);
                lane.done();
            }
        });
        let changer = thread::spawn({
            let (lane, changed) = (lane.clone(), changed.clone());
            move || {
                let mut partition = changed.lock();
                *partition = true;
                lane.post(WHAT);
            }
        });
        let partition = changed.lock();
        if *partition && lane.find(WHAT).is_none() {
            assert!(heard.load(Relaxed), "it was neither waited for nor heard");
        }
        drop(partition);
        changer.join().unwrap();
        teller.join().unwrap();
    });
}
