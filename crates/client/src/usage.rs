//! Usage of the pool: all nodes are asked at once, and the last answer of each is kept.

use crate::{
    Client, Connection,
    client::poll_now,
    router::{nodes::NodeLink, send::call_until_answered},
};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use placement::{FileId, NodeId};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    future::{Future, poll_fn},
    task::Poll,
    time::{Duration, Instant},
};
use wire::{Answer, Command, DirectoryUsage, LIST_ENTRIES_MAX, Object, Outcome, Refusal, SpaceUsage, SubtreeUsage};

/// Interval at which nodes are asked again for placement by free memory. In between, the client
/// counts what it has placed itself.
const QUERY_INTERVAL: Duration = Duration::from_millis(100);
/// The interval after a node did not answer: with the shorter one, placement would wait for that
/// node most of the time.
const QUERY_INTERVAL_AFTER_TIMEOUT: Duration = Duration::from_secs(5);

/// Most directories, or files, that are asked about at once.
const DIRECTORIES_IN_FLIGHT_MAX: usize = 32;

/// The last answer of each node.
#[derive(Debug, Default)]
pub struct Usages {
    known: Mutex<BTreeMap<NodeId, NodeUsage>>,
    /// When all nodes are to be asked again, for placement by free memory; `None` before the first
    /// time.
    next: Mutex<Option<Instant>>,
}

/// The last answer of a node.
#[derive(Clone, Copy, Debug, Default)]
struct NodeUsage {
    /// Its usage; `None` if it never answered.
    usage: Option<SpaceUsage>,
    /// True if it did not answer when it was asked last.
    unavailable: bool,
    /// Bytes that were placed there by free memory since then, as far as that is known.
    placed: u64,
}

impl NodeUsage {
    fn free(&self) -> Option<u64> {
        let usage = self.usage.filter(|_| !self.unavailable)?;
        Some(usage.capacity.saturating_sub(usage.used).saturating_sub(self.placed))
    }
}

impl Usages {
    /// Stores new answers; returns the sum over all nodes that ever answered.
    fn update(&self, answered: impl IntoIterator<Item = (NodeId, SpaceUsage)>) -> SpaceUsage {
        let mut known = self.known.lock();
        let usages = answered.into_iter().map(|(node, usage)| (node, Some(usage)));
        known.extend(usages.map(|(node, usage)| (node, NodeUsage { usage, ..NodeUsage::default() })));
        known.values().filter_map(|node| node.usage.as_ref()).fold(SpaceUsage::default(), SpaceUsage::with)
    }

    fn is_unknown(&self) -> bool {
        self.known.lock().values().all(|node| node.usage.is_none())
    }

    /// The node with the most free memory, which gets `more` bytes; `None` if no node's is known.
    fn choose_emptiest(&self, more: u64) -> Option<NodeId> {
        let mut known = self.known.lock();
        let free = known.iter_mut().filter_map(|(node, usage)| Some((usage.free()?, *node, usage)));
        // Of equals the first.
        let (_, node, chosen) = free.max_by_key(|(free, node, _)| (*free, Reverse(*node)))?;
        chosen.placed += more;
        Some(node)
    }

    /// True if all nodes are to be asked now, by this caller.
    fn is_due(&self) -> bool {
        let (now, mut next) = (node::now(), self.next.lock());
        let due = next.is_none_or(|next| next <= now);
        if due {
            *next = Some(now + QUERY_INTERVAL);
        }
        due
    }

    /// Notes which nodes did not answer, after all were asked.
    fn record_unavailable(&self, answered: &[(NodeId, Outcome<SpaceUsage>)]) {
        let mut known = self.known.lock();
        for (node, answer) in answered {
            known.entry(*node).or_default().unavailable = answer.is_err();
        }
        if answered.iter().any(|(_, answer)| answer.is_err()) {
            *self.next.lock() = Some(node::now() + QUERY_INTERVAL_AFTER_TIMEOUT);
        }
    }
}

impl Usages {
    /// Forgets the nodes that have left the pool.
    fn keep(&self, present: &[&NodeLink]) {
        self.known.lock().retain(|node, _| present.iter().any(|link| link.node == *node));
    }
}

impl Client {
    /// Returns whether a node does not answer now, and how often one has ceased to so far. Nodes
    /// that nobody has called since do not count.
    pub fn outages(&self) -> (bool, u64) {
        (self.router().nodes.is_any_unavailable(), self.router().nodes.outages())
    }

    /// How full the pool is, over all its nodes. Nodes that answer at once, as those in this
    /// process do, are asked now; for others their last answer counts. A node without an answer to
    /// [`Self::query_usage`] or [`Self::usages`] so far counts as nothing.
    pub fn usage(&self) -> SpaceUsage {
        let links = self.router().nodes.links();
        self.inner.usages.keep(&links);
        let polled = links.iter().filter_map(|link| Some((link.node, self.poll_usage(&*link.connection)?)));
        self.inner.usages.update(polled)
    }

    /// Learns of nodes that have joined the pool, so that their usage counts. A client that uses
    /// their partitions learns of them by itself.
    pub async fn learn_nodes(&self) {
        self.router().refresh_map().await;
    }

    /// How full each node is, by ascending ids. All are asked at once. A node that does not answer
    /// is `Unavailable` after this client's tries.
    pub async fn usages(&self) -> Vec<(NodeId, Outcome<SpaceUsage>)> {
        let links = self.router().nodes.links();
        let queries = links.iter().map(|link| async move { (link.node, self.query_node_usage(link).await) });
        let answered = join_all(queries).await;
        self.inner.usages.keep(&self.router().nodes.links());
        self.inner.usages.update(answered.iter().filter_map(|(node, usage)| Some((*node, *usage.as_ref().ok()?))));
        answered
    }

    /// How full the pool is: asks all its nodes. A node that does not answer counts with its last
    /// answer. Refused as `Unavailable` if none ever answered.
    pub async fn query_usage(&self) -> Outcome<SpaceUsage> {
        let answered = self.usages().await;
        match answered.into_iter().find_map(|(_, usage)| usage.err()) {
            Some(refusal) if self.inner.usages.is_unknown() => Err(refusal),
            _ => Ok(self.inner.usages.update([])),
        }
    }

    /// The total capacity of some nodes, by their last answers; `None` if one of them never
    /// answered.
    pub(crate) fn known_capacity(&self, counts: impl Fn(NodeId) -> bool) -> Option<u64> {
        let (links, known) = (self.router().nodes.links(), self.inner.usages.known.lock());
        let counted = links.iter().filter(|link| counts(link.node));
        counted.map(|link| known.get(&link.node)?.usage.map(|usage| usage.capacity)).sum()
    }

    /// The node with the most free memory, as of a moment ago, which is to get `more` bytes; `None`
    /// if no node has answered.
    pub(crate) async fn choose_emptiest(&self, more: u64) -> Option<NodeId> {
        if self.inner.usages.is_due() {
            self.inner.usages.record_unavailable(&self.usages().await);
        }
        self.inner.usages.choose_emptiest(more)
    }

    async fn query_node_usage(&self, link: &NodeLink) -> Outcome<SpaceUsage> {
        let router = self.router();
        router.nodes.admit(link, || router.usage_request(), || Object::Pool).await?;
        let request = || router.usage_request();
        let answered = call_until_answered(&*link.connection, router.retry_policy, request).await;
        if let Err(Refusal::Unavailable { tries, why, .. }) = &answered {
            router.learn_from_others(&router.session_state(), link).await;
            router.nodes.record_outage(link, *tries, why);
        }
        answered?.usage()
    }

    fn poll_usage(&self, node: &dyn Connection) -> Option<SpaceUsage> {
        match poll_now(node.call(self.router().usage_request()))? {
            Ok(Answer::Usage(usage)) => Some(usage),
            _ => None,
        }
    }

    /// True if no node of the pool answers, as far as is known from calls.
    pub fn is_disconnected(&self) -> bool {
        self.router().nodes.are_all_unavailable()
    }
}

impl Client {
    /// Sums up all files below a directory, each inode once, whoever may read them. What is made or
    /// removed meanwhile may count or not. One message for each directory and 4,096 names, and for
    /// each file that is not with its name.
    pub async fn subtree_usage(&self, top: FileId) -> Outcome<SubtreeUsage> {
        let (mut total, mut seen, mut level) = (SubtreeUsage::default(), HashSet::new(), vec![top]);
        while !level.is_empty() {
            let mut pages = stream::iter(std::mem::take(&mut level))
                .map(|directory| async move { (directory, self.usage_pages(directory).await) })
                .buffer_unordered(DIRECTORIES_IN_FLIGHT_MAX);
            let mut others = Vec::new();
            while let Some((directory, pages)) = pages.next().await {
                let pages = match pages {
                    Err(Refusal::NotFound(_)) if directory != top => continue, // removed meanwhile
                    pages => pages?,
                };
                for DirectoryUsage { sum, others: more, directories, .. } in pages {
                    total = total.with(sum);
                    level.extend(directories);
                    others.extend(more.into_iter().filter(|file| seen.insert(*file)));
                }
            }
            let mut found =
                stream::iter(others).map(|file| self.stat(file)).buffer_unordered(DIRECTORIES_IN_FLIGHT_MAX);
            while let Some(found) = found.next().await {
                match found {
                    Err(Refusal::NotFound(_)) => {}
                    found => total = total.with(SubtreeUsage::of_file(&found?)),
                }
            }
        }
        Ok(total)
    }

    /// Usage of the entries of a directory, in all its fragments.
    async fn usage_pages(&self, directory: FileId) -> Outcome<Vec<DirectoryUsage>> {
        let (mut pages, mut after) = (Vec::new(), 0);
        let mut parts = self.fragments_of(directory).to_vec();
        if parts.is_empty() {
            parts.push(directory);
        }
        while let Some(part) = parts.last().copied() {
            match self.query(part.partition(), Command::usage_in(part, after, LIST_ENTRIES_MAX)).await {
                Err(Refusal::Split { directory, bits }) => {
                    self.learn_split(directory, bits).await?;
                    parts = self.fragments_of(directory).to_vec();
                }
                page => {
                    let page = page?;
                    after = page.next;
                    if after == 0 {
                        parts.pop();
                    }
                    pages.push(page);
                }
            }
        }
        Ok(pages)
    }
}

/// Runs all futures concurrently; returns their results in order.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, done) in waiting.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                *done = Some(value);
            }
        }
        if waiting.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, done)| done).collect()
}
