//! The subscribers' sessions and numbers, which every request looks at, without a lock.
//!
//! While nobody subscribes, a request costs one atomic load. Otherwise it costs a few, however many
//! subscribe: the others are all but the caller, who is found by the hash of its client. A client
//! keeps its number when it starts another session.
//!
//! A set of subscribers has more bits than an atomic word, so its words are read one after the
//! other. That is enough: whoever looks for a subscriber needs that bit alone. A partition's lock
//! orders a grant before the change that must find its subscriber.
//!
//! The writer holds the lock of the subscribers' table.

use crate::loom_shim::atomic::{AtomicU64, Ordering::SeqCst};
use partition::{CommandCaller, SUBSCRIBER_WORDS, SubscriberId, SubscriberIds};
use std::array::from_fn;
use wire::Session;

/// Number of hash values of clients. With it one or two subscribers share a hash, of a hundred.
const HASHES: usize = 64;

/// The sessions and numbers of all subscribers.
#[derive(Debug)]
pub struct SubscriberIndex {
    /// Number of subscribers. Readers look no further if there are none.
    count: AtomicU64,
    live: AtomicSubscriberIds,
    /// Subscribers whose kernels support prune notices.
    pruning: AtomicSubscriberIds,
    /// Latest session of each number; [`Session::NONE`] if it has ended.
    sessions: [AtomicU64; SubscriberId::MAX],
    /// Subscribers by the hash of their client.
    by_hash: [AtomicSubscriberIds; HASHES],
}

/// A set of subscribers that threads share.
#[derive(Debug, Default)]
struct AtomicSubscriberIds([AtomicU64; SUBSCRIBER_WORDS]);

impl AtomicSubscriberIds {
    fn load(&self) -> SubscriberIds {
        SubscriberIds::from_words(from_fn(|word| self.0[word].load(SeqCst)))
    }

    fn insert(&self, subscriber: SubscriberId) {
        let (word, bit) = Self::place(subscriber);
        self.0[word].fetch_or(bit, SeqCst);
    }

    fn remove(&self, subscriber: SubscriberId) {
        let (word, bit) = Self::place(subscriber);
        self.0[word].fetch_and(!bit, SeqCst);
    }

    fn place(subscriber: SubscriberId) -> (usize, u64) {
        let bits = u64::BITS as usize;
        (subscriber.number() / bits, 1 << (subscriber.number() % bits))
    }
}

impl Default for SubscriberIndex {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            live: AtomicSubscriberIds::default(),
            pruning: AtomicSubscriberIds::default(),
            sessions: from_fn(|_| AtomicU64::new(Session::NONE.0)),
            by_hash: from_fn(|_| AtomicSubscriberIds::default()),
        }
    }
}

impl SubscriberIndex {
    /// Returns the caller's context for partitions: its session, its subscriber number, and the
    /// other subscribers. Must be called under the lock of the partition, so that no grant is made
    /// there after [`Node::unsubscribe`](crate::Node::unsubscribe) has visited it.
    pub fn caller(&self, session: Session) -> CommandCaller {
        if self.is_empty() {
            return CommandCaller::unsubscribed(session);
        }
        let live = self.live.load();
        // Without its bit, a change would not find it.
        let subscriber = self.find(session).filter(|own| live.has(*own));
        let others = subscriber.map_or(live, |own| live.without(own));
        CommandCaller { session, subscriber, others, pruning: self.pruning.load() }
    }

    /// Returns true if nobody subscribes.
    pub fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    /// Returns the number of a session's client, if it is subscribed.
    pub fn find(&self, session: Session) -> Option<SubscriberId> {
        let alike = self.by_hash[hash(session)].load();
        alike.iter().find(|subscriber| self.session(*subscriber).client() == session.client())
    }

    fn session(&self, subscriber: SubscriberId) -> Session {
        Session(self.sessions[subscriber.number()].load(SeqCst))
    }

    /// Returns each subscriber with its session. One that is just ending caches nothing any more,
    /// and is left out.
    pub fn sessions(&self) -> impl Iterator<Item = (SubscriberId, Session)> {
        let all = self.live.load().iter();
        let all = all.map(|subscriber| (subscriber, self.session(subscriber)));
        all.filter(|(_, session)| *session != Session::NONE)
    }

    /// Returns the lowest number that is free; `None` if there is none.
    pub fn free_number(&self) -> Option<SubscriberId> {
        let live = self.live.load();
        SubscriberIds::ALL.iter().find(|free| !live.has(*free))
    }

    /// Adds a subscriber, by a free number.
    pub fn insert(&self, subscriber: SubscriberId, session: Session) {
        self.sessions[subscriber.number()].store(session.0, SeqCst);
        self.by_hash[hash(session)].insert(subscriber);
        self.count.fetch_add(1, SeqCst);
        self.live.insert(subscriber);
    }

    /// Records another session of a subscriber's client; returns the earlier one.
    pub fn renew(&self, subscriber: SubscriberId, session: Session) -> Session {
        Session(self.sessions[subscriber.number()].swap(session.0, SeqCst))
    }

    /// Records that the kernel of a session supports prune notices.
    pub fn declare_prune_support(&self, session: Session) {
        if let Some(subscriber) = self.find(session) {
            self.pruning.insert(subscriber);
        }
    }

    /// Ends the subscriber of a session, unless its client has a later one. Returns its number,
    /// which stays taken until [`Self::free`].
    pub fn end(&self, session: Session) -> Option<SubscriberId> {
        let subscriber = self.find(session).filter(|subscriber| self.session(*subscriber) <= session)?;
        self.pruning.remove(subscriber);
        self.by_hash[hash(session)].remove(subscriber);
        self.sessions[subscriber.number()].store(Session::NONE.0, SeqCst);
        Some(subscriber)
    }

    /// Frees the number of a subscriber that has ended, when nothing is granted to it any more.
    pub fn free(&self, subscriber: SubscriberId) {
        self.live.remove(subscriber);
        self.count.fetch_sub(1, SeqCst);
    }
}

/// Returns the hash of a session's client. Nodes count clients up, so many differ in few bits.
fn hash(session: Session) -> usize {
    // Fibonacci hashing: the highest byte of the product depends on all bits.
    let [highest, ..] = session.client().0.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    usize::from(highest) % HASHES
}
