//! The set of subscribers: passes the partitions' invalidations to the subscribers concerned.

use crate::loom_shim::RwLock;
use crate::{
    Node, OnInvalidate,
    subscriber::{AckWait, SubscriberQueues},
    subscriber_index::SubscriberIndex,
};
use partition::{CommandCaller, Invalidation, SubscriberId};
use placement::NodeId;
use std::collections::HashMap;
use wire::{Object, Outcome, Recall, Refusal, Session};

/// All subscribers of a node.
#[derive(Debug, Default)]
pub struct SubscriberSet {
    index: SubscriberIndex,
    /// Queues by number, as many as there ever were at one time.
    table: RwLock<Vec<Option<SubscriberQueues>>>,
}

impl SubscriberSet {
    /// Returns the caller's context for partitions; see [`SubscriberIndex::caller`].
    pub fn caller(&self, session: Session) -> CommandCaller {
        self.index.caller(session)
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
                let Some(Some(queues)) = table.get(subscriber.number()) else { continue };
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
        let queues = caller.others.iter().filter_map(|subscriber| table.get(subscriber.number())?.as_ref());
        let senders = queues.flat_map(SubscriberQueues::senders);
        AckWait::new(senders.filter_map(|sender| Some((sender.clone(), sender.last_unacked_batch()?))).collect())
    }

    /// The outstanding acks for this invalidation, of any subscriber, the caller's own too.
    pub fn pending_acks_of(&self, recall: Recall) -> Option<AckWait> {
        if self.index.is_empty() {
            return None;
        }
        let table = self.table.read();
        let senders = table.iter().flatten().map(|queues| queues.sender(recall));
        AckWait::new(senders.filter_map(|sender| Some((sender.clone(), sender.find_batch(recall)?))).collect())
    }

    /// Asks all subscribers to subscribe at another node; returns their acks.
    pub fn introduce(&self, node: NodeId) -> Option<AckWait> {
        let (table, recall) = (self.table.read(), Recall::Greet(node));
        let senders = table.iter().flatten().map(|queues| queues.sender(recall));
        AckWait::new(senders.map(|sender| (sender.clone(), sender.post(recall))).collect())
    }

    /// True if this is the number of the client of the session, which is subscribed.
    pub fn is(&self, subscriber: SubscriberId, session: Session) -> bool {
        let _table = self.table.read();
        self.index.find(session) == Some(subscriber)
    }

    /// Returns the subscribers, with their sessions.
    pub fn sessions(&self) -> Vec<(SubscriberId, Session)> {
        let _table = self.table.read();
        self.index.sessions().collect()
    }

    /// Returns the numbers here of the subscribers of another node, by their numbers there; and the
    /// session of one that is not subscribed here, if there is any.
    pub fn own_numbers(&self, of_other: &[(SubscriberId, Session)]) -> (HashMap<usize, SubscriberId>, Option<Session>) {
        let _table = self.table.read();
        let (mut numbers, mut missing) = (HashMap::new(), None);
        for (known, session) in of_other {
            match self.index.find(*session) {
                Some(own) => drop(numbers.insert(known.number(), own)),
                None => missing = Some(*session),
            }
        }
        (numbers, missing)
    }

    fn add(&self, session: Session, on_invalidate: &OnInvalidate) -> Outcome<()> {
        let mut table = self.table.write();
        if let Some(subscriber) = self.index.find(session) {
            if self.index.renew(subscriber, session) == session {
                return Err(Refusal::invalid(Object::Pool, "this session is subscribed already"));
            }
            table[subscriber.number()] = Some(start(on_invalidate)?);
            return Ok(());
        }
        let limit = SubscriberId::MAX as u64;
        let free = self.index.free_number().ok_or(Refusal::TooManyOpen { object: Object::Pool, limit })?;
        let queues = start(on_invalidate)?;
        if table.len() <= free.number() {
            table.resize_with(free.number() + 1, || None);
        }
        table[free.number()] = Some(queues);
        self.index.insert(free, session);
        Ok(())
    }

    fn declare_prune_support(&self, session: Session) {
        let _table = self.table.write();
        self.index.declare_prune_support(session);
    }

    /// Ends a subscriber, unless its client has subscribed again in a later session. Its number
    /// stays taken until [`SubscriberIndex::free`].
    fn remove(&self, session: Session) -> Option<SubscriberId> {
        let mut table = self.table.write();
        let subscriber = self.index.end(session)?;
        table[subscriber.number()] = None;
        Some(subscriber)
    }
}

impl Node {
    /// Subscribes the client of a session: it may cache what it is answered, in whichever of its
    /// sessions, from now on, until `on_invalidate` is called to invalidate it. The callback runs
    /// on threads of the node, before the change is answered. If the client was subscribed in an
    /// earlier session, whose connection broke, this callback takes the place of the earlier one.
    /// At most [`SubscriberId::MAX`] clients subscribe at one time, with two threads each.
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
        self.subscribers.index.find(session).is_some()
    }

    /// Unsubscribes the client of a session that has ended: nothing more is granted to it, and
    /// nobody waits for it. Does nothing if the client has subscribed again in a later session.
    pub fn unsubscribe(&self, session: Session) {
        let Some(subscriber) = self.subscribers.remove(session) else { return };
        for mut partition in self.partitions.locked() {
            partition.remove_subscriber(subscriber);
        }
        self.subscribers.index.free(subscriber);
    }
}

fn start(on_invalidate: &OnInvalidate) -> Outcome<SubscriberQueues> {
    SubscriberQueues::start(on_invalidate).map_err(|error| Refusal::Io {
        object: Object::Pool,
        why: format!("no thread for cache invalidations: {error}").into(),
    })
}
