//! Model checks of every interleaving of threads, over the node's own sources: cache grants, which
//! are shared without a lock, and invalidation queues. The sources are compiled here once more,
//! with the checker's locks and atomics.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "of the sources the models use a part; a test that cannot go on has failed"
)]

use loom::{model::Builder, sync::Arc, thread};
use loom_shim::atomic::{AtomicBool, Ordering::Relaxed};
use partition::{CommandCaller, SubscriberId};
use std::collections::BTreeMap;
use wire::{Recall, Session};

/// The checker's locks with the interfaces of those that the node uses.
mod loom_shim {
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

#[path = "../src/invalidation_sender.rs"]
mod invalidation_sender;

/// Subscribers without threads of their own: the models take the steps.
mod subscriber {
    use crate::invalidation_sender::InvalidationSender;
    use std::{io, sync::Arc};
    use wire::Recall;

    pub type OnInvalidate = Arc<dyn Fn(&[Recall]) + Send + Sync>;

    #[derive(Debug)]
    pub struct SubscriberQueues(Arc<InvalidationSender>);

    #[derive(Debug)]
    pub struct AckWait(Vec<(Arc<InvalidationSender>, u64)>);

    impl SubscriberQueues {
        #[expect(clippy::unnecessary_wraps, reason = "as the real one, whose threads may be refused")]
        pub fn start(_: &OnInvalidate) -> io::Result<Self> {
            Ok(Self(Arc::default()))
        }

        pub fn senders(&self) -> impl Iterator<Item = &Arc<InvalidationSender>> {
            std::iter::once(&self.0)
        }

        pub fn sender(&self, _: Recall) -> &Arc<InvalidationSender> {
            &self.0
        }
    }

    impl AckWait {
        pub fn new(waits: Vec<(Arc<InvalidationSender>, u64)>) -> Option<Self> {
            (!waits.is_empty()).then_some(Self(waits))
        }
    }
}

#[path = "../src/subscriber_index.rs"]
mod subscriber_index;
#[path = "../src/subscriber_set.rs"]
mod subscriber_set;

use subscriber::OnInvalidate;

/// A node of one partition.
#[derive(Debug, Default)]
pub struct Node {
    subscribers: subscriber_set::SubscriberSet,
    partitions: Partitions,
}

#[derive(Debug, Default)]
struct Partitions(loom_shim::Mutex<Partition>);

impl Partitions {
    fn locked(&self) -> impl Iterator<Item = loom_shim::Guard<'_, Partition>> {
        std::iter::once(self.0.lock())
    }
}

/// The grants: session by subscriber number.
#[derive(Debug, Default)]
struct Partition(BTreeMap<usize, Session>);

impl Partition {
    fn grant(&mut self, caller: CommandCaller) {
        if let Some(subscriber) = caller.subscriber {
            self.0.insert(subscriber.number(), caller.session);
        }
    }

    fn remove_subscriber(&mut self, subscriber: SubscriberId) {
        self.0.remove(&subscriber.number());
    }
}

impl Node {
    fn add_subscriber(&self, session: Session) {
        self.subscribe(session, &(std::sync::Arc::new(|_: &[Recall]| ()) as OnInvalidate)).unwrap();
    }

    /// A lookup by the session, with a grant for what it sees.
    fn lookup(&self, session: Session) {
        let mut partition = self.partitions.0.lock();
        partition.grant(self.subscribers.caller(session));
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
        node.add_subscriber(ONE);
        let looks = thread::spawn({
            let node = node.clone();
            move || node.lookup(ONE)
        });
        let next = thread::spawn({
            let node = node.clone();
            move || {
                node.add_subscriber(TWO);
                node.lookup(TWO);
            }
        });
        node.unsubscribe(ONE);
        looks.join().unwrap();
        next.join().unwrap();
        let granted: Vec<Session> = node.partitions.0.lock().0.values().copied().collect();
        assert_eq!(granted, [TWO]);
    });
}

#[test]
fn a_change_knows_all_subscribers_to_whom_its_state_was_granted() {
    try_all(|| {
        let node = Arc::new(Node::default());
        let other = thread::spawn({
            let node = node.clone();
            move || {
                node.add_subscriber(ONE);
                node.lookup(ONE);
            }
        });
        let partition = node.partitions.0.lock();
        let caller = node.subscribers.caller(TWO);
        for number in partition.0.keys() {
            assert!(caller.others.has(SubscriberId::new(*number).unwrap()), "subscriber {number} is not notified");
        }
        drop(partition);
        other.join().unwrap();
    });
}

#[test]
fn what_is_no_longer_queued_has_been_acked_and_nothing_posted_is_slept_over() {
    const WHAT: Recall = Recall::Attributes(placement::FileId::ROOT);
    try_all(|| {
        let (sender, heard) =
            (Arc::new(invalidation_sender::InvalidationSender::default()), Arc::new(AtomicBool::new(false)));
        let changed = Arc::new(loom_shim::Mutex::<bool>::default());
        let teller = thread::spawn({
            let (sender, heard) = (sender.clone(), heard.clone());
            move || {
                // Sleeps until something is posted; a lost wake-up would be a deadlock.
                assert_eq!(sender.take_batch(), Some(vec![WHAT]));
                heard.store(true, Relaxed);
                sender.ack();
            }
        });
        let changer = thread::spawn({
            let (sender, changed) = (sender.clone(), changed.clone());
            move || {
                let mut partition = changed.lock();
                *partition = true;
                sender.post(WHAT);
            }
        });
        let partition = changed.lock();
        if *partition && sender.find_batch(WHAT).is_none() {
            assert!(heard.load(Relaxed), "it was neither waited for nor heard");
        }
        drop(partition);
        changer.join().unwrap();
        teller.join().unwrap();
    });
}
