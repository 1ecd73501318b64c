//! Files whose bytes are at this host while their inodes are at other nodes, and the work that this
//! node leaves to others.
//!
//! ```text
//!   node of the inode             client                        node of the bytes
//!   answers `Hosted`  --------->  sends `Finish`  ----------->  reads, changes, fills in
//!   the file is closed or gone: `NoteUnused` ---------------->  asks the inode's node: frees the
//!                                                               extent, demotes the file, or
//!                                                               copies it to stripes
//!                                                               (`evacuation`)
//! ```
//!
//! A partition takes its inodes along when it moves. What the kernel or a program may have open or
//! mapped stays: extents, bound files, descriptors of programs. So do the owners of locks that
//! outlive sessions, whose ends only their host notices.
//!
//! A node has no connections of its own: a client in its process does the work that needs other
//! nodes (`client::Client::do_host_work`).

use crate::{
    Node, ReplyFuture, clock,
    evacuation::FrozenEvacuation,
    execute::ReadRange,
    extent_ops::{ExtentOp, attributes_of, is_touched},
    extents::{ExtentPin, ExtentSlots},
    space::EngineFull,
};
use bytes::Bytes;
use parking_lot::Mutex;
use partition::{HostedBytes, ReplyCache};
use placement::{FileId, NodeId, PartitionId};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};
use store::{EngineError, Slot};
use tokio::sync::Notify;
use wire::{
    Answer, Command, Content, Extent, FILE_BYTES_MAX, FoundObject, INLINE_BYTES_MAX, LockOwner, Object, OpenLeaseId,
    Outcome, RangeContent, Refusal, RequestId, Session, Times, Timestamp,
};

/// A time before any that an inode can have.
const NEVER: Timestamp = Timestamp { secs: i64::MIN, nanos: 0 };

/// Files of this host whose inodes are at other nodes.
#[derive(Debug, Default)]
pub struct HostedFiles {
    files: Mutex<HashMap<FileId, HostedBytes>>,
    /// Demotions whose outcome is not known: their extents stay as they are.
    demotions: Mutex<HashMap<FileId, HostedDemotion>>,
    /// Copied files of which the same is true.
    pub(crate) evacuations: Mutex<HashMap<FileId, FrozenEvacuation>>,
    /// Replies to changes of extents, by the partition whose numbers they have.
    replies: Mutex<HashMap<PartitionId, ReplyCache>>,
    work: Mutex<BTreeSet<HostWork>>,
    /// Number of things for other nodes that were taken to be done, and are not done yet.
    under_way: AtomicUsize,
    /// Owners whose locks are to be released; also while that is under way.
    unlocking: Mutex<BTreeSet<(LockOwner, FileId)>>,
    /// Notified when there is more work.
    added: Notify,
}

/// Work that needs other nodes, in the order in which it is done: each thing once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostWork {
    /// Release all locks of an owner that has ended.
    Unlock {
        /// The file.
        file: FileId,
        /// The owner.
        owner: LockOwner,
    },
    /// Close a file whose open lease has ended.
    Release {
        /// The file.
        file: FileId,
        /// The session that has it open.
        session: Session,
        /// The lease.
        lease: OpenLeaseId,
    },
    /// Tell the node that has the bytes of a file that nobody has the file open any more.
    NoteUnused {
        /// That node.
        node: NodeId,
        /// The file.
        file: FileId,
    },
    /// End a session where a partition of this node with something of it has moved.
    EndSession {
        /// That node.
        node: NodeId,
        /// The session.
        session: Session,
        /// True if it has ended only because this node leaves the pool.
        left: bool,
    },
    /// Find out whether a file of this host is still there, and have its bytes leave the host. The
    /// last kind, because it may take long.
    Settle(FileId),
}

impl HostWork {
    /// True if other nodes, or their clients, wait for it.
    fn is_for_others(self) -> bool {
        !matches!(self, Self::Settle(_))
    }
}

/// The bytes of a small file that is to be demoted by the node of its inode. Until
/// [`Node::end_demotion`] nobody can pin the extent.
#[derive(Clone, Debug)]
pub struct HostedDemotion {
    /// Its extent.
    pub extent: Extent,
    /// All its bytes.
    pub bytes: Bytes,
    /// Its times in the extent.
    pub times: Times,
}

/// A request to finish an answer, kept until there is space for it.
#[derive(Debug)]
pub struct FinishCall {
    pub request_id: Option<RequestId>,
    pub file: FileId,
    pub command: Command,
    pub answer: Answer,
}

impl HostedFiles {
    fn get(&self, file: FileId) -> Option<HostedBytes> {
        self.files.lock().get(&file).cloned()
    }

    /// The extent of a file whose inode is elsewhere.
    pub fn extent(&self, file: FileId) -> Option<Extent> {
        match self.get(file) {
            Some(HostedBytes::Extent(extent)) => Some(extent),
            _ => None,
        }
    }

    /// Keeps files whose partition leaves; they are settled soon.
    pub fn add(&self, files: impl Iterator<Item = (FileId, HostedBytes)>) {
        let mut held = self.files.lock();
        let before = held.len();
        let due: Vec<HostWork> = files
            .map(|(file, hosted)| {
                held.insert(file, hosted);
                HostWork::Settle(file)
            })
            .collect();
        debug_assert!(held.len() == before + due.len(), "the inode of a file was at two nodes");
        drop(held);
        self.push_all(due);
    }

    /// Takes the files of a partition that is served here.
    pub fn take_partition(&self, partition: PartitionId) -> Vec<(FileId, HostedBytes)> {
        self.files.lock().extract_if(|file, _| file.partition() == partition).collect()
    }

    /// True if the locks of an owner on a file are being released.
    pub fn is_unlocking(&self, owner: LockOwner, file: FileId) -> bool {
        self.unlocking.lock().contains(&(owner, file))
    }

    /// The reply to this change of a file, if it was executed before.
    fn reply(&self, file: FileId, request_id: RequestId) -> Option<Outcome<Answer>> {
        self.replies.lock().get(&file.partition())?.get(request_id)
    }

    /// Drops the replies to a session that has ended.
    pub fn end_session(&self, session: Session) {
        self.replies.lock().retain(|_, replies| {
            replies.end(session);
            replies.sessions().next().is_some()
        });
    }

    /// Adds work that needs other nodes.
    pub fn push(&self, work: HostWork) {
        self.push_all([work]);
    }

    fn push_all(&self, work: impl IntoIterator<Item = HostWork>) {
        let mut waiting = self.work.lock();
        for work in work {
            if let HostWork::Unlock { file, owner } = work {
                self.unlocking.lock().insert((owner, file));
            }
            waiting.insert(work);
        }
        drop(waiting);
        self.added.notify_one();
    }

    /// All files of this host whose inodes are at other nodes.
    pub fn all(&self) -> Vec<(FileId, HostedBytes)> {
        self.files.lock().iter().map(|(file, bytes)| (*file, bytes.clone())).collect()
    }

    /// Number of files of this host whose inodes are at other nodes.
    pub fn files(&self) -> usize {
        self.files.lock().len()
    }

    /// Amount of work that waits.
    pub fn waiting(&self) -> usize {
        self.work.lock().len()
    }

    /// Amount of work that waits or is being done, but for that on files of this host.
    pub fn undone(&self) -> usize {
        let waiting = self.work.lock();
        waiting.iter().filter(|work| work.is_for_others()).count() + self.under_way.load(SeqCst)
    }

    /// Counts work that is taken to be done.
    fn count_taken<'a>(&self, taken: impl Iterator<Item = &'a HostWork>) {
        self.under_way.fetch_add(taken.filter(|work| work.is_for_others()).count(), SeqCst);
    }

    fn count_ended(&self, work: HostWork) {
        self.under_way.fetch_sub(usize::from(work.is_for_others()), SeqCst);
    }
}

impl Node {
    /// Waits until there may be work that needs other nodes. One caller may wait.
    pub async fn host_work_added(&self) {
        self.hosted.added.notified().await;
    }

    /// True if there is work that needs other nodes.
    pub fn has_host_work(&self) -> bool {
        self.hosted.waiting() > 0
    }

    /// Takes the work that needs other nodes.
    pub fn take_host_work(&self) -> impl Iterator<Item = HostWork> + use<> {
        let mut waiting = self.hosted.work.lock();
        self.hosted.count_taken(waiting.iter());
        std::mem::take(&mut *waiting).into_iter()
    }

    /// Takes the work that does not wait for copies of files.
    pub fn take_short_host_work(&self) -> impl Iterator<Item = HostWork> + use<> {
        let mut waiting = self.hosted.work.lock();
        let settling = waiting.split_off(&HostWork::Settle(FileId(0)));
        self.hosted.count_taken(waiting.iter());
        std::mem::replace(&mut *waiting, settling).into_iter()
    }

    /// Returns work that could not be done yet, without a notice.
    pub fn put_back_host_work(&self, work: HostWork) {
        let mut waiting = self.hosted.work.lock();
        waiting.insert(work);
        self.hosted.count_ended(work);
    }

    /// Notes that work is done, or is not needed any more.
    pub fn end_host_work(&self, work: HostWork) {
        self.hosted.count_ended(work);
        if let HostWork::Unlock { file, owner } = work {
            self.hosted.unlocking.lock().remove(&(owner, file));
        }
    }

    /// The bytes of a file of this host whose inode is elsewhere.
    pub fn hosted_bytes(&self, file: FileId) -> Option<HostedBytes> {
        self.hosted.get(file)
    }

    /// Number of files of this host whose inodes are elsewhere.
    pub fn hosted_files(&self) -> usize {
        self.hosted.files.lock().len()
    }

    /// Forgets a file of this host that is gone, or whose bytes have left.
    pub fn end_hosting(&self, file: FileId) {
        if let Some(HostedBytes::Extent(extent)) = self.hosted.files.lock().remove(&file) {
            self.extents.free(extent);
        }
    }

    /// Begins to demote a file of this host whose inode is elsewhere; again, with the same bytes,
    /// if the outcome of an earlier try is not known. `None` if it is too large; [`Refusal::Busy`]
    /// if its extent is in use.
    pub fn begin_demotion(&self, file: FileId) -> Outcome<Option<HostedDemotion>> {
        if let Some(begun) = self.hosted.demotions.lock().get(&file) {
            return Ok(Some(begun.clone()));
        }
        let Some(extent) = self.hosted.extent(file) else { return Ok(None) };
        self.freeze_idle(file, extent)?;
        let begun = self.read_small(file, extent);
        match &begun {
            Ok(Some(begun)) => drop(self.hosted.demotions.lock().insert(file, begun.clone())),
            _ => self.thaw(file, extent),
        }
        begun
    }

    /// Ends an extent that nobody uses: nobody can pin it until it is thawed. [`Refusal::Busy`] if
    /// it is in use.
    pub(crate) fn freeze_idle(&self, file: FileId, extent: Extent) -> Outcome<()> {
        let busy = Err(Refusal::Busy(Object::File(file)));
        if !self.extents.end_unpinned(extent) {
            return busy;
        }
        if !self.extents.is_idle(extent) {
            self.thaw(file, extent);
            return busy;
        }
        self.extents.engine().end_direct_writes(Slot(extent.slot));
        Ok(())
    }

    /// Lets an extent be used again, unless its file is gone by now.
    pub(crate) fn thaw(&self, file: FileId, extent: Extent) {
        self.extents.revive(extent);
        if self.local_extent(file) != Some(extent) {
            self.extents.free(extent);
        }
    }

    fn read_small(&self, file: FileId, extent: Extent) -> Outcome<Option<HostedDemotion>> {
        let (size, times) = self.size_and_times(file, extent)?;
        if size > INLINE_BYTES_MAX.into() {
            return Ok(None);
        }
        let bytes = self.extents.engine().read_at(Slot(extent.slot), 0, INLINE_BYTES_MAX);
        let bytes = bytes.map_err(|error| failed(file, &error))?;
        Ok(Some(HostedDemotion { extent, bytes, times }))
    }

    /// The size and the times that an inode takes over from an extent.
    pub(crate) fn size_and_times(&self, file: FileId, extent: Extent) -> Outcome<(u64, Times)> {
        let state = self.extents.engine().state(Slot(extent.slot)).map_err(|error| failed(file, &error))?;
        let changed = if is_touched(&state) { state.changed.into() } else { NEVER };
        Ok((state.length, Times { accessed: state.accessed.into(), modified: state.modified.into(), changed }))
    }

    /// Ends a demotion: the bytes are with the inode now, or stay in the extent.
    pub fn end_demotion(&self, file: FileId, is_done: bool) {
        if let Some(HostedDemotion { extent, .. }) = self.hosted.demotions.lock().remove(&file) {
            self.end_frozen(file, extent, is_done);
        }
    }

    /// Frees a frozen extent that its file has left, or thaws it.
    pub(crate) fn end_frozen(&self, file: FileId, extent: Extent, has_left: bool) {
        if has_left {
            self.hosted.files.lock().remove(&file);
            self.extents.return_to_stock(extent);
        } else {
            self.thaw(file, extent);
        }
    }

    /// Notes that a file of this host may not be in use any more.
    pub(crate) fn note_unused(&self, file: FileId) -> ReplyFuture {
        if self.hosted.get(file).is_some() {
            self.hosted.push(HostWork::Settle(file));
        }
        ReplyFuture::ready(Ok(Answer::Done))
    }

    /// Finishes the answer of a node that has the inode, but not the bytes.
    pub(crate) fn finish(self: &Arc<Self>, call: FinishCall) -> ReplyFuture {
        self.answer_with_space(move |node| node.try_finish(&call))
    }

    fn try_finish(&self, call: &FinishCall) -> Result<Outcome<Answer>, EngineFull> {
        let FinishCall { request_id, file, command, answer } = call;
        let stale = || Ok(Err(Refusal::Stale(Object::File(*file))));
        let Some(extent) = extent_of(answer) else { return Ok(self.read_bound(*file, command, answer.clone())) };
        if self.local_extent(*file) != Some(extent) {
            return stale();
        }
        if let Command::Allocate { offset, length, .. } = command
            && offset.checked_add(*length).is_none_or(|end| end > FILE_BYTES_MAX)
        {
            return Ok(Err(Refusal::TooLarge { object: Object::File(*file), limit: FILE_BYTES_MAX }));
        }
        let Some(pin) = ExtentSlots::pin(&*self.extents, extent) else { return stale() };
        // Changes of one extent wait for each other, so that a resent one is done once.
        let _alone = request_id.map(|_| self.append_locks.lock(extent));
        if let Some(reply) = request_id.and_then(|request_id| self.hosted_reply(*file, request_id)) {
            return Ok(reply);
        }
        let done = match ExtentOp::from_command(command) {
            Some(op) => self.run_extent_op(&op, answer)?,
            None => None,
        };
        let outcome = done.unwrap_or_else(|| self.fill_hosted(answer.clone(), extent, ReadRange::of(command), pin));
        if let (Some(request_id), Ok(answer)) = (request_id, &outcome) {
            self.record_hosted_reply(*file, *request_id, answer);
        }
        Ok(outcome)
    }

    /// The reply to a change of an extent that is not executed: it was before, or its session has
    /// ended.
    pub(crate) fn hosted_reply(&self, file: FileId, request_id: RequestId) -> Option<Outcome<Answer>> {
        let has_ended = self.session_index.has_ended(request_id.session);
        if has_ended { Some(Err(Refusal::SessionEnded)) } else { self.hosted.reply(file, request_id) }
    }

    /// Caches the reply to a change of an extent.
    pub(crate) fn record_hosted_reply(&self, file: FileId, request_id: RequestId, answer: &Answer) {
        if !self.session_index.has_ended(request_id.session) {
            let mut replies = self.hosted.replies.lock();
            replies.entry(file.partition()).or_default().insert(request_id, Ok(answer.clone()));
        }
    }

    /// The extent of this node that a file has, wherever its inode is.
    pub(crate) fn local_extent(&self, file: FileId) -> Option<Extent> {
        match self.partitions.lock(file.partition()) {
            Some(partition) => partition.extent(file).filter(|extent| extent.node == self.id()),
            None => self.hosted.extent(file),
        }
    }

    fn fill_hosted(
        &self,
        mut answer: Answer,
        extent: Extent,
        read: Option<ReadRange>,
        pin: ExtentPin<&ExtentSlots>,
    ) -> Outcome<Answer> {
        if let Some(attributes) = attributes_of(&mut answer) {
            self.fill_from_extent(attributes, extent)?;
            // Writes past the pool are noticed here, and kernels hear of changes from the other
            // node.
            attributes.cacheable = false;
            clock::note_shown(attributes.changed);
            return Ok(answer);
        }
        if let Some(ReadRange::Object(offset)) = read {
            answer = self.fill_object(answer, offset)?;
        }
        self.fill_bytes(answer, read, Some(pin))
    }

    /// Reads bytes of a bound file of this host.
    fn read_bound(&self, file: FileId, command: &Command, answer: Answer) -> Outcome<Answer> {
        let (Some(HostedBytes::Bound(known)), Some(read)) = (self.hosted.get(file), ReadRange::of(command)) else {
            return Err(Refusal::Stale(Object::File(file)));
        };
        let mut answer = answer;
        let (Answer::Content(RangeContent { length, content: Content::Bound(host) })
        | Answer::Object(FoundObject { length, content: Content::Bound(host), .. })) = &mut answer
        else {
            return Err(Refusal::Stale(Object::File(file)));
        };
        if *host != known {
            return Err(Refusal::Stale(Object::File(file)));
        }
        let (ReadRange::File(_, offset) | ReadRange::Object(offset)) = read;
        *length = u32::try_from(known.size.saturating_sub(offset)).unwrap_or(u32::MAX).min(*length);
        self.fill_bytes(answer, Some(read), None)
    }

    /// The node of another host that has these bytes.
    pub(crate) fn other_host(&self, content: &Content) -> Option<NodeId> {
        let node = match content {
            Content::Extent(extent) => extent.node,
            Content::Bound(host) => host.node,
            _ => return None,
        };
        (node != self.id()).then_some(node)
    }
}

/// The refusal for an extent that cannot be read.
pub fn failed(file: FileId, error: &EngineError) -> Refusal {
    Refusal::Io { object: Object::File(file), why: error.to_string().into() }
}

/// The content of a read, or of an object.
fn content_of(answer: &Answer) -> Option<&Content> {
    match answer {
        Answer::Content(RangeContent { content, .. }) | Answer::Object(FoundObject { content, .. }) => Some(content),
        _ => None,
    }
}

/// The extent that an answer names.
fn extent_of(answer: &Answer) -> Option<Extent> {
    match (answer, content_of(answer)) {
        (Answer::Extent(extent), _) | (_, Some(Content::Extent(extent))) => Some(*extent),
        _ => attributes_of(&mut answer.clone())?.extent,
    }
}
