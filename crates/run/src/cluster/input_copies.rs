//! Copies of shared inputs at the node of one host: attempts read them in place of inputs that lie
//! elsewhere.
//!
//! ```text
//! n2/Part.1/a, b  --a is shared--> n<node>/cache/n2/Part.1/a   a copy, for all attempts
//!                 --b is not-----> n<node>/cache/n2/Part.1/b   a link, while an attempt runs
//! ```
//!
//! Tools look for their other inputs beside one, so an attempt finds all its inputs of one
//! directory in one: where they lie, or here. Nothing here makes a task fail: without a copy it
//! reads the source.

use super::copy_table::{Acquired, CopyId, CopyKind, CopyTable, SourceVersion};
use super::messages::HeldCopy;
use crate::data_places::FULL_PERCENT;
use crate::layout;
use crate::order::{AttemptOrder, InputPlace};
use crate::usage_refresh::NodeUsages;
use crate::workspace::{Workspace, WorkspaceBase, WorkspaceError, copy, remove_from_pool};
use flow::DataId;
use parking_lot::Mutex;
use placement::NodeId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;
use wire::SpaceUsage;

/// Share of a node's memory that copies may take, in percent: the rest is for what tasks write.
const COPIES_PERCENT: u64 = 25;
/// Share of a node's memory above which copies go, in percent.
const RELIEF_PERCENT: u64 = 80;

// Copies go before outputs of tasks lie elsewhere because a node is full.
const _: () = assert!(COPIES_PERCENT < RELIEF_PERCENT && RELIEF_PERCENT < FULL_PERCENT);

/// The copies at the node of this host.
#[derive(Debug)]
pub struct InputCopies {
    base: WorkspaceBase,
    directory: PathBuf,
    node: NodeId,
    usages: NodeUsages,
    table: Mutex<CopyTable>,
    changes: watch::Sender<()>,
}

/// The copies that an attempt reads in place of its inputs, until it ends.
#[derive(Debug, Default)]
pub struct UsedCopies {
    used: Vec<CopyId>,
    /// Inputs of which there was a copy before the attempt.
    pub cached: Vec<DataId>,
}

/// An input of an attempt with what may stand in for it.
struct Substitute<'a> {
    input: &'a InputPlace,
    /// Version of the input; `None` if no copy of it is wanted.
    source: Option<SourceVersion>,
    copy: Option<CopyId>,
    /// True if another attempt has the copy made.
    was_there: bool,
}

impl InputCopies {
    /// No copies yet, at a node.
    pub fn new(pool: Vfs, node: NodeId, usages: NodeUsages) -> Arc<Self> {
        let capacity = usages.of(node).map_or(0, |usage| usage.capacity);
        Arc::new(Self {
            base: WorkspaceBase::new(pool, CancellationToken::new()),
            directory: Path::new(&layout::node_dir(node)).join(layout::COPIES),
            node,
            usages,
            table: Mutex::new(CopyTable::new(capacity / 100 * COPIES_PERCENT)),
            changes: watch::Sender::new(()),
        })
    }

    /// The copies that are complete.
    pub fn held(&self) -> Vec<HeldCopy> {
        self.table.lock().held()
    }

    /// Receives each change of the copies.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Lets an attempt read copies, and makes those that are wanted and have room. Waits for those
    /// that are being made, unless the attempt is ended.
    pub async fn acquire(
        self: &Arc<Self>,
        order: &mut AttemptOrder,
        workspace: &Workspace,
        cancel: &CancellationToken,
    ) -> UsedCopies {
        let mut directories: BTreeMap<PathBuf, Vec<Substitute>> = BTreeMap::new();
        for input in order.inputs.iter().filter(|input| input.bound.is_none()) {
            let source = self.source(input).await;
            let above = input.place.parent().unwrap_or(Path::new("")).to_owned();
            directories.entry(above).or_default().push(Substitute { input, source, copy: None, was_there: false });
        }
        directories.retain(|_, inputs| inputs.iter().any(|input| input.source.is_some()));
        for input in directories.values_mut().flatten() {
            self.substitute(input, &|place| workspace.link_target(order, place));
        }
        let mut used = UsedCopies::default();
        let mut places = BTreeMap::new();
        for inputs in directories.into_values() {
            let is_complete = self.wait(&inputs, workspace.is_staged(order), cancel).await;
            for Substitute { input, copy, was_there, .. } in inputs {
                let Some(copy) = copy else { continue };
                used.used.push(copy);
                if is_complete {
                    used.cached.extend(was_there.then_some(input.data));
                    places.insert(input.data, self.directory.join(&input.place));
                }
            }
        }
        for input in &mut order.inputs {
            input.copy = places.remove(&input.data);
        }
        used
    }

    /// The state of an input of which a copy is wanted or known.
    async fn source(&self, input: &InputPlace) -> Option<SourceVersion> {
        if !input.is_shared && !self.table.lock().has(&input.place) {
            return None;
        }
        self.version(&input.place).await
    }

    async fn version(&self, place: &Path) -> Option<SourceVersion> {
        self.base.find(place).await.ok().flatten().map(|found| SourceVersion::from(&found))
    }

    /// Finds or makes the copy of an input; where tasks follow links, a link if there is none.
    fn substitute(self: &Arc<Self>, wanted: &mut Substitute, target: &dyn Fn(&Path) -> Option<String>) {
        let Substitute { input: InputPlace { data, place, .. }, source, .. } = *wanted;
        let bytes = source.map(|source| (CopyKind::Bytes(source), None));
        let link = target(place).map(|target| (CopyKind::Link, Some(target)));
        for (kind, target) in bytes.into_iter().chain(link) {
            let room = self.room();
            let (was_there, acquired) = {
                let mut table = self.table.lock();
                (table.has(place), table.acquire((place, *data), kind, room))
            };
            match acquired {
                Acquired::Existing(copy) => (wanted.copy, wanted.was_there) = (Some(copy), was_there),
                Acquired::New(copy, evicted) => {
                    wanted.copy = Some(copy.clone());
                    let (copies, source) = (self.clone(), source.filter(|_| target.is_none()));
                    tokio::spawn(async move { copies.make(copy, (source, target), evicted).await });
                }
                Acquired::Refused(evicted) => self.remove_soon(evicted),
            }
            if wanted.copy.is_some() {
                return;
            }
        }
    }

    /// Waits until all copies of one directory can be used. Returns false if one cannot, or if an
    /// input has none although all are needed.
    async fn wait(&self, inputs: &[Substitute<'_>], is_staged: bool, cancel: &CancellationToken) -> bool {
        let mut changes = self.changes();
        for input in inputs {
            let Some(copy) = &input.copy else {
                if is_staged {
                    continue;
                }
                return false;
            };
            loop {
                changes.mark_unchanged();
                let ready = self.table.lock().is_ready(copy);
                match ready {
                    Some(true) => break,
                    Some(false) => return false,
                    None => tokio::select! {
                        biased;
                        () = cancel.cancelled() => return false,
                        _ = changes.changed() => {}
                    },
                }
            }
        }
        true
    }

    /// Makes a copy, or a link if it has a target.
    async fn make(self: Arc<Self>, copy: CopyId, of: (Option<SourceVersion>, Option<String>), evicted: Vec<CopyId>) {
        self.remove(evicted).await;
        let target = self.directory.join(&copy.place);
        let made = match of {
            (_, Some(leads)) => self.base.link(&target, Path::new(&leads)).await.map(|()| true),
            (source, None) => self.copy(&copy.place, source, &target).await,
        };
        let is_good = made.unwrap_or_else(|error| {
            tracing::info!(path = %copy.place.display(), %error, "an input is not copied to this node");
            false
        });
        if !is_good || self.table.lock().complete(&copy) {
            self.remove(vec![copy]).await;
        }
        self.changes.send_replace(());
    }

    /// Copies a file; returns whether it was the same from the beginning to the end.
    async fn copy(&self, place: &Path, source: Option<SourceVersion>, target: &Path) -> Result<bool, WorkspaceError> {
        let copied = copy::within_pool(&self.base, place, target).await?;
        Ok(source.is_some_and(|source| source.size == copied) && self.version(place).await == source)
    }

    /// Ends the use of copies by an attempt.
    pub async fn release(&self, used: UsedCopies) {
        let leaving: Vec<CopyId> = {
            let mut table = self.table.lock();
            used.used.into_iter().filter(|copy| table.release(copy)).collect()
        };
        self.remove(leaving).await;
    }

    /// Removes the copies of members, as soon as nobody uses them.
    pub fn drop_data(self: &Arc<Self>, data: &[DataId]) {
        let leaving = self.table.lock().drop_data(data);
        self.remove_soon(leaving);
    }

    /// Removes copies if the node is nearly full, or a writer waits for space. Called often.
    pub fn relieve(self: &Arc<Self>) {
        let Some(usage) = self.usages.of(self.node) else { return };
        let leaving = {
            let mut table = self.table.lock();
            let bytes = excess(&usage).saturating_sub(table.leaving());
            table.evict(bytes)
        };
        self.remove_soon(leaving);
    }

    /// Bytes that copies may take now.
    fn room(&self) -> u64 {
        let usage = self.usages.of(self.node).filter(|usage| usage.waiting == 0);
        usage.map_or(0, |usage| limit(&usage).saturating_sub(usage.used))
    }

    fn remove_soon(self: &Arc<Self>, leaving: Vec<CopyId>) {
        if !leaving.is_empty() {
            let copies = self.clone();
            tokio::spawn(async move { copies.remove(leaving).await });
        }
    }

    async fn remove(&self, leaving: Vec<CopyId>) {
        if leaving.is_empty() {
            return;
        }
        for copy in leaving {
            let place = self.directory.join(&copy.place);
            match remove_from_pool(&self.base.pool, &place).await {
                Ok(()) => self.table.lock().remove(&copy),
                // Its path is not used again.
                Err(refusal) => tracing::warn!(path = %place.display(), %refusal, "a copy stays in the pool"),
            }
        }
        self.changes.send_replace(());
    }
}

/// Bytes of a node above which copies go.
fn limit(usage: &SpaceUsage) -> u64 {
    usage.capacity / 100 * RELIEF_PERCENT
}

/// Bytes of copies that should go.
fn excess(usage: &SpaceUsage) -> u64 {
    if usage.waiting > 0 { u64::MAX } else { usage.used.saturating_sub(limit(usage)) }
}

#[cfg(test)]
#[path = "input_copies_test.rs"]
mod tests;
