//! The set of subscribers: maps sessions to small numbers, and passes the partitions' invalidations
//! to the subscribers concerned.
//!
//! While nobody but the caller subscribes, all this costs one atomic load.

use crate::loom_shim::{
    RwLock,
    atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
};
use crate::{
    Node, OnInvalidate,
    subscriber::{AckWait, SubscriberQueues},
};
use partition::{CommandCaller, Invalidation, SubscriberId};
use wire::{Object, Outcome, Recall, Refusal, Session};

/// All subscribers of a node.
#[derive(Debug, Default)]
pub struct SubscriberSet {
    /// A bit for each subscriber that exists, readable without a lock.
    live: AtomicU32,
    /// A bit for each subscriber whose kernel supports prune notices.
    supports_prune: AtomicU32,
    sessions: [AtomicU64; SubscriberId::MAX],
    table: RwLock<[Option<SubscriberQueues>; SubscriberId::MAX]>,
}

impl SubscriberSet {
    /// The caller's context for partitions: its session, its subscriber number, and the other
    /// subscribers. Must be called under the lock of the partition, so that no grant is made there
    /// after [`Node::unsubscribe`] has visited it.
    pub fn caller(&self, session: Session) -> CommandCaller {
        match self.live.load(SeqCst) {
            0 => CommandCaller::unsubscribed(session),
            live => self.caller_among(live, session),
        }
    }

    fn caller_among(&self, live: u32, session: Session) -> CommandCaller {
        let mut caller = CommandCaller::unsubscribed(session);
        let supports_prune = self.supports_prune.load(SeqCst);
        let mut left = live;
        while left != 0 {
            let number = left.trailing_zeros() as usize;
            left &= left - 1;
            let subscriber = SubscriberId::new(number).expect("only valid numbers are in the set");
            if supports_prune & 1 << number != 0 {
                caller.pruning = caller.pruning.with(subscriber);
            }
            if Session(self.sessions[number].load(SeqCst)).client() == session.client() {
                caller.subscriber = Some(subscriber);
            } else {
                caller.others = caller.others.with(subscriber);
            }
        }
        caller
    }

    /// Queues the invalidations for the subscribers that must get them; returns the acks that the
    /// answer waits for. Must be called under the partition's lock, so that a request that sees the
    /// change also finds the invalidation queued. Nobody waits for the ack of a removal: the file
    /// is gone for every request, and only its space is freed later.
    pub fn invalidate(&self, caller: CommandCaller, invalidations: &[Invalidation]) -> Option<AckWait> {
        if invalidations.is_empty() {
            return None;
        }
        let table = self.table.read();
        let mut waits = Vec::new();
        for invalidation in invalidations {
            let waited = !matches!(invalidation.recall, Recall::Removed(_));
            let own = caller.subscriber.filter(|_| invalidation.seen);
            let subscribers = if waited { caller.others.union(invalidation.notify) } else { invalidation.notify };
            for subscriber in subscribers.iter().chain(own) {
                let Some(queues) = &table[subscriber.number()] else { continue };
                let sender = queues.sender(invalidation.recall);
                let batch = if invalidation.notify.has(subscriber) {
                    Some(sender.post(invalidation.recall))
                } else {
                    sender.find_batch(invalidation.recall)
                };
                waits.extend(batch.filter(|_| waited).map(|batch| (sender.clone(), batch)));
            }
        }
        AckWait::new(waits)
    }

    /// The outstanding acks of all other subscribers.
    pub fn pending_acks(&self, caller: CommandCaller) -> Option<AckWait> {
        if caller.others.is_empty() {
            return None;
        }
        let table = self.table.read();
        let queues = caller.others.iter().filter_map(|subscriber| table[subscriber.number()].as_ref());
        let senders = queues.flat_map(SubscriberQueues::senders);
        AckWait::new(senders.filter_map(|sender| Some((sender.clone(), sender.last_unacked_batch()?))).collect())
    }

    /// The outstanding acks for this invalidation, of any subscriber, the caller's own too.
    pub fn pending_acks_of(&self, recall: Recall) -> Option<AckWait> {
        if self.live.load(SeqCst) == 0 {
            return None;
        }
        let table = self.table.read();
        let senders = table.iter().flatten().map(|queues| queues.sender(recall));
        AckWait::new(senders.filter_map(|sender| Some((sender.clone(), sender.find_batch(recall)?))).collect())
    }

    /// Returns the number of each subscriber here and at another node. Fails with the session of
    /// one that is not subscribed there.
    pub fn numbers_at(&self, other: &Self) -> Result<Vec<(SubscriberId, SubscriberId)>, Session> {
        let _table = self.table.read();
        let live = self.live.load(SeqCst);
        let subscribed = (0..SubscriberId::MAX).filter(|number| live & 1 << number != 0);
        let subscribed = subscribed.filter_map(SubscriberId::new).filter_map(|subscriber| {
            let session = Session(self.sessions[subscriber.number()].load(SeqCst));
            // One that is just ending caches nothing any more.
            (session != Session::NONE).then_some((subscriber, session))
        });
        subscribed
            .map(|(subscriber, session)| Ok((subscriber, other.caller(session).subscriber.ok_or(session)?)))
            .collect()
    }

    fn add(&self, session: Session, on_invalidate: &OnInvalidate) -> Outcome<()> {
        let mut table = self.table.write();
        if let Some(subscriber) = self.caller(session).subscriber {
            let earlier = self.sessions[subscriber.number()].swap(session.0, SeqCst);
            if earlier == session.0 {
                return Err(Refusal::invalid(Object::Pool, "this session is subscribed already"));
            }
            table[subscriber.number()] = Some(start(on_invalidate)?);
            return Ok(());
        }
        let limit = SubscriberId::MAX as u64;
        // A subscriber that is just ending has left its slot in the table, but its number is still
        // taken.
        let live = self.live.load(SeqCst);
        let free = (0..SubscriberId::MAX).find(|free| table[*free].is_none() && live & 1 << free == 0);
        let free = free.ok_or(Refusal::TooManyOpen { object: Object::Pool, limit })?;
        table[free] = Some(start(on_invalidate)?);
        self.sessions[free].store(session.0, SeqCst);
        self.live.fetch_or(1 << free, SeqCst);
        Ok(())
    }

    fn declare_prune_support(&self, session: Session) {
        let _table = self.table.write();
        if let Some(subscriber) = self.caller(session).subscriber {
            self.supports_prune.fetch_or(1 << subscriber.number(), SeqCst);
        }
    }

    /// Ends a subscriber, unless its client has subscribed again in a later session. Its number
    /// stays taken until [`Self::free_number`].
    fn remove(&self, session: Session) -> Option<SubscriberId> {
        let mut table = self.table.write();
        let subscriber = self.caller(session).subscriber?;
        if self.sessions[subscriber.number()].load(SeqCst) > session.0 {
            return None;
        }
        self.supports_prune.fetch_and(!(1 << subscriber.number()), SeqCst);
        self.sessions[subscriber.number()].store(Session::NONE.0, SeqCst);
        table[subscriber.number()] = None;
        Some(subscriber)
    }

    fn free_number(&self, subscriber: SubscriberId) {
        self.live.fetch_and(!(1 << subscriber.number()), SeqCst);
    }
}

impl Node {
    /// Subscribes the client of a session: it may cache what it is answered, in whichever of its
    /// sessions, from now on, until `on_invalidate` is called to invalidate it. The callback runs
    /// on threads of the node, before the change is answered. If the client was subscribed in an
    /// earlier session, whose connection broke, this callback takes the place of the earlier one.
    /// At most 16 clients subscribe at one time.
    pub fn subscribe(&self, session: Session, on_invalidate: &OnInvalidate) -> Outcome<()> {
        self.subscribers.add(session, on_invalidate)
    }

    /// Records that the kernel of this subscriber supports prune notices. From now on it is
    /// notified of inodes that others remove, and such an inode is kept until that kernel has
    /// forgotten it.
    pub fn declare_prune_support(&self, session: Session) {
        self.subscribers.declare_prune_support(session);
    }

    /// Returns true if the client of a session is subscribed.
    pub fn is_subscribed(&self, session: Session) -> bool {
        self.subscribers.caller(session).subscriber.is_some()
    }

    /// Unsubscribes the client of a session that has ended: nothing more is granted to it, and
    /// nobody waits for it. Does nothing if the client has subscribed again in a later session.
    pub fn unsubscribe(&self, session: Session) {
        let Some(subscriber) = self.subscribers.remove(session) else { return };
        for mut partition in self.partitions.locked() {
            partition.remove_subscriber(subscriber);
        }
        self.subscribers.free_number(subscriber);
    }
}

fn start(on_invalidate: &OnInvalidate) -> Outcome<SubscriberQueues> {
    SubscriberQueues::start(on_invalidate).map_err(|error| Refusal::Io {
        object: Object::Pool,
        why: format!("no thread for cache invalidations: {error}").into(),
    })
}
