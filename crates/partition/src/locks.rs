//! Locks of one file: owners, ranges and conflicts. Pure; the node does the waiting.
//!
//! A range lock replaces the owner's older locks in its range, whatever their mode. Ranges are
//! split, shortened and merged as fcntl(2) specifies, and an owner never has two locks on one byte.
//! A lock of the whole file (`flock`) never conflicts with range locks, and follows the same rules
//! with one range. As in Linux, changing the mode of a `flock` is not atomic: an owner that must
//! wait for the new mode has lost the old lock. Otherwise two such owners would wait for each other
//! forever.

use crate::{Partition, apply::CommandContext, inode::Inode, memory_cost};
use placement::FileId;
use serde::{Deserialize, Serialize};
use wire::{Answer, Lock, LockKind, LockOwner, LockStyle, Object, OpenLeaseId, Outcome, Refusal, Session};

/// Maximum number of locks of a file; above it, `TooManyLocks` (`ENOLCK`).
pub const LOCKS_MAX: usize = 16_384;

/// Owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// The session; for a process, the one of the node that notices its end
    /// ([`Session::of_node`]); for an open lease, [`Session::NONE`].
    pub session: Session,
    /// The number that the session chose, a process id, or an open lease.
    pub owner: u64,
}

impl Holder {
    /// Returns the owner that a session names.
    pub fn new(session: Session, owner: LockOwner) -> Self {
        match owner {
            LockOwner::Session(owner) => Self { session, owner },
            LockOwner::Process { node, process } => {
                Self { session: Session::of_node(node).unwrap_or(Session::NONE), owner: process.into() }
            }
            LockOwner::Open(OpenLeaseId(lease)) => Self { session: Session::NONE, owner: lease },
        }
    }

    /// Returns the owner as its session names it.
    pub fn owner(self) -> LockOwner {
        match (self.session.origin(), u32::try_from(self.owner)) {
            _ if self.session == Session::NONE => LockOwner::Open(OpenLeaseId(self.owner)),
            ((node, 0), Ok(process)) => LockOwner::Process { node, process },
            _ => LockOwner::Session(self.owner),
        }
    }
}

/// All locks of one file, ordered by their start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FileLocks(Vec<HeldLock>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HeldLock {
    holder: Holder,
    /// True for a `flock`, which only conflicts with others of its style.
    is_flock: bool,
    write: bool,
    start: u64,
    /// The last byte.
    end: u64,
    pid: u32,
}

impl HeldLock {
    fn new(holder: Holder, lock: &Lock) -> Self {
        let (is_flock, start, end) = match lock.style {
            LockStyle::Whole => (true, 0, u64::MAX),
            LockStyle::Range { start, end } => (false, start, end),
        };
        Self { holder, is_flock, write: lock.kind == LockKind::Write, start, end, pid: lock.pid }
    }

    fn to_lock(self) -> Lock {
        let kind = if self.write { LockKind::Write } else { LockKind::Read };
        let style =
            if self.is_flock { LockStyle::Whole } else { LockStyle::Range { start: self.start, end: self.end } };
        Lock { owner: self.holder.owner(), kind, style, pid: self.pid }
    }

    /// Returns true if both have the same owner and style.
    fn has_same_owner(&self, other: &Self) -> bool {
        self.holder == other.holder && self.is_flock == other.is_flock
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Returns true if both together are one range without a gap.
    fn joins(&self, other: &Self) -> bool {
        self.start <= other.end.saturating_add(1) && other.start <= self.end.saturating_add(1)
    }

    fn conflicts_with(&self, wanted: &Self) -> bool {
        let others = self.holder != wanted.holder && self.is_flock == wanted.is_flock;
        others && (self.write || wanted.write) && self.overlaps(wanted)
    }
}

impl FileLocks {
    /// Returns the holder of each lock.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        self.0.iter().map(|lock| lock.holder)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the memory cost, bytes.
    pub fn memory_cost(&self) -> u64 {
        self.0.len() as u64 * memory_cost::LOCK_BYTES
    }

    fn conflicts(&self, holder: Holder, lock: &Lock) -> impl Iterator<Item = &HeldLock> {
        let wanted = HeldLock::new(holder, lock);
        let unlocks = lock.kind == LockKind::Unlock;
        self.0.iter().filter(move |held| !unlocks && held.conflicts_with(&wanted))
    }

    /// Sets or releases a lock that has no conflicts.
    fn set(&mut self, holder: Holder, lock: &Lock) {
        let unlocks = lock.kind == LockKind::Unlock;
        let mut wanted = HeldLock::new(holder, lock);
        let mut kept = Vec::with_capacity(self.0.len() + 2);
        for held in self.0.drain(..) {
            match () {
                () if !held.has_same_owner(&wanted) => kept.push(held),
                () if !unlocks && held.write == wanted.write && held.joins(&wanted) => {
                    (wanted.start, wanted.end) = (wanted.start.min(held.start), wanted.end.max(held.end));
                }
                () if held.overlaps(&wanted) => kept.extend(around(held, &wanted)),
                () => kept.push(held),
            }
        }
        if !unlocks {
            kept.push(wanted);
        }
        kept.sort_by_key(|held| (held.start, held.holder, held.is_flock));
        self.0 = kept;
    }

    /// Returns by how many locks, at most, setting or releasing this one grows the list.
    pub fn added_by(&self, holder: Holder, lock: &Lock) -> usize {
        let wanted = HeldLock::new(holder, lock);
        let around = self.0.iter().filter(|held| held.has_same_owner(&wanted) && held.overlaps(&wanted));
        let left: usize = around.map(|held| self::around(*held, &wanted).count()).sum::<usize>();
        let replaced = self.0.iter().filter(|held| held.has_same_owner(&wanted) && held.overlaps(&wanted)).count();
        (left + usize::from(lock.kind != LockKind::Unlock)).saturating_sub(replaced)
    }

    /// Returns true if any owner has a range that extends beyond this one at both ends.
    fn is_split_by(&self, lock: &Lock) -> bool {
        let cut = HeldLock::new(Holder { session: Session(0), owner: 0 }, lock);
        self.0.iter().any(|held| held.is_flock == cut.is_flock && held.start < cut.start && held.end > cut.end)
    }

    pub fn has_locks_of(&self, holder: Holder) -> bool {
        self.0.iter().any(|held| held.holder == holder)
    }

    pub fn has_locks_of_session(&self, session: Session) -> bool {
        self.0.iter().any(|held| held.holder.session == session)
    }

    pub fn end_session(&mut self, session: Session) {
        self.0.retain(|held| held.holder.session != session);
    }
}

/// Returns the parts of a range before and after another.
fn around(held: HeldLock, cut: &HeldLock) -> impl Iterator<Item = HeldLock> {
    let before = (held.start < cut.start).then(|| HeldLock { end: cut.start - 1, ..held });
    let behind = (held.end > cut.end).then(|| HeldLock { start: cut.end + 1, ..held });
    before.into_iter().chain(behind)
}

impl Inode {
    fn locks(&self) -> Option<&FileLocks> {
        self.rare.as_ref().map(|rare| &rare.locks)
    }

    fn set_lock(&mut self, holder: Holder, lock: &Lock) {
        self.rare_attributes_mut().locks.set(holder, lock);
        self.free_empty_rare_attributes();
    }

    /// Returns true if the session has locks on the file.
    pub fn is_locked_by(&self, session: Session) -> bool {
        self.locks().is_some_and(|locks| locks.has_locks_of_session(session))
    }

    /// Releases all locks of a session that has ended.
    pub fn unlock_session(&mut self, session: Session) {
        if let Some(rare) = &mut self.rare {
            rare.locks.end_session(session);
        }
        self.free_empty_rare_attributes();
    }
}

impl Partition {
    pub(crate) fn test_lock(
        &mut self,
        _: CommandContext,
        file: FileId,
        session: Session,
        lock: Lock,
    ) -> Outcome<Answer> {
        let (holder, lock) = (Holder::new(session, lock.owner), &lock);
        check(file, lock)?;
        let found = self.inode(file)?.locks().and_then(|locks| locks.conflicts(holder, lock).next());
        Ok(Answer::Conflict(found.map(|held| held.to_lock())))
    }

    /// Sets or releases a lock. Refuses with `Locked` on a conflict; a `flock` has then lost its
    /// old lock.
    pub(crate) fn lock(&mut self, context: CommandContext, file: FileId, lock: Lock, _: bool) -> Outcome<Answer> {
        let (holder, lock) = (Holder::new(context.session, lock.owner), &lock);
        check(file, lock)?;
        self.edit(file, |inode| {
            let Some(locks) = inode.locks() else {
                if lock.kind != LockKind::Unlock {
                    inode.set_lock(holder, lock);
                }
                return Ok(Answer::Done);
            };
            let (added, limit) = (locks.added_by(holder, lock), LOCKS_MAX as u64);
            let in_the_way = locks.conflicts(holder, lock).next().is_some();
            if added > 0 && locks.0.len() + added > LOCKS_MAX {
                return Err(Refusal::TooManyLocks { object: Object::File(file), limit });
            }
            if in_the_way {
                if lock.style == LockStyle::Whole {
                    inode.set_lock(holder, &Lock { kind: LockKind::Unlock, ..*lock });
                }
                return Err(Refusal::Locked(Object::File(file)));
            }
            inode.set_lock(holder, lock);
            Ok(Answer::Done)
        })
    }

    /// Returns the owners of conflicting locks, each once. Empty if the file is not here.
    pub fn lock_blockers(&self, holder: Holder, file: FileId, lock: &Lock) -> Vec<Holder> {
        let locks = self.inodes.get(&file).and_then(|inode| inode.locks());
        let mut holders: Vec<Holder> =
            locks.into_iter().flat_map(|locks| locks.conflicts(holder, lock)).map(|held| held.holder).collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// Returns true if the owner has locks on the file.
    pub fn has_locks(&self, holder: Holder, file: FileId) -> bool {
        self.inodes.get(&file).and_then(|inode| inode.locks()).is_some_and(|locks| locks.has_locks_of(holder))
    }

    /// Returns the maximum memory cost that a lock adds.
    pub(crate) fn lock_cost(&self, file: FileId, lock: &Lock) -> u64 {
        let splits =
            self.inodes.get(&file).and_then(|inode| inode.locks()).is_some_and(|locks| locks.is_split_by(lock));
        let split = if splits { memory_cost::LOCK_BYTES } else { 0 };
        split
            + if lock.kind == LockKind::Unlock {
                0
            } else {
                memory_cost::RARE_ATTRIBUTES_BYTES + memory_cost::LOCK_BYTES
            }
    }
}

fn check(file: FileId, lock: &Lock) -> Outcome<()> {
    match lock.style {
        LockStyle::Range { start, end } if start > end => {
            Err(Refusal::invalid(Object::File(file), "the range of a lock ends before it starts"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::NodeId;
    use test_support::Random;

    /// Number of bytes in the model; the last stands for all that follow.
    const BYTES: u64 = 12;

    /// For each owner and byte, its lock: none, read or write.
    type Model = [[Option<bool>; 12]; 3];

    fn holder(number: usize) -> Holder {
        Holder { session: Session(number as u64 % 2), owner: number as u64 / 2 }
    }

    fn range(start: u64, last: u64) -> LockStyle {
        let end = if last == BYTES - 1 { u64::MAX } else { last };
        LockStyle::Range { start, end }
    }

    fn lock(kind: LockKind, style: LockStyle) -> Lock {
        Lock { owner: LockOwner::Session(0), kind, style, pid: 7 }
    }

    /// Returns the lock of each byte from the table.
    fn seen(locks: &FileLocks) -> Model {
        let mut model = Model::default();
        for held in locks.0.iter().filter(|held| !held.is_flock) {
            let owner_no = (0..3).find(|number| holder(*number) == held.holder).unwrap();
            for byte in held.start..=held.end.min(BYTES - 1) {
                let place = &mut model[owner_no][usize::try_from(byte).unwrap()];
                assert!(place.replace(held.write).is_none(), "one lock on a byte: {locks:?}");
            }
        }
        model
    }

    /// Checks that ranges of the same owner and mode neither overlap nor touch.
    fn check_merged(locks: &FileLocks) {
        for (at, first) in locks.0.iter().enumerate() {
            let akin = |second: &&HeldLock| second.has_same_owner(first) && second.write == first.write;
            assert!(!locks.0[at + 1..].iter().filter(akin).any(|second| second.joins(first)), "{locks:?}");
        }
    }

    #[test]
    fn ranges_are_split_and_merged_as_bytes_would_be() {
        let mut random = Random::new(11);
        let (mut locks, mut model) = (FileLocks::default(), Model::default());
        let (mut granted, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let (owner_no, start) = (random.below(3), random.below(BYTES));
            let last = start + random.below(BYTES - start);
            let kind = random.pick(&[LockKind::Read, LockKind::Write, LockKind::Unlock]);
            let wanted = lock(kind, range(start, last));
            let bytes = usize::try_from(start).unwrap()..=usize::try_from(last).unwrap();
            let blocks = |other: &usize| {
                let meets = |had: &Option<bool>| had.is_some_and(|write| write || kind == LockKind::Write);
                *other != owner_no && kind != LockKind::Unlock && model[*other][bytes.clone()].iter().any(meets)
            };
            let mut blockers: Vec<Holder> = (0..3).filter(blocks).map(holder).collect();
            blockers.sort_unstable();
            let mut blocking: Vec<Holder> =
                locks.conflicts(holder(owner_no), &wanted).map(|held| held.holder).collect();
            blocking.sort_unstable();
            blocking.dedup();
            assert_eq!(blocking, blockers);
            if !blockers.is_empty() {
                refused += 1;
                continue;
            }
            let (before, most) = (locks.0.len(), locks.added_by(holder(owner_no), &wanted));
            locks.set(holder(owner_no), &wanted);
            assert!(locks.0.len() <= before + most, "it adds no more locks than promised");
            model[owner_no][bytes].fill((kind != LockKind::Unlock).then_some(kind == LockKind::Write));
            granted += 1;
            assert_eq!(seen(&locks), model);
            check_merged(&locks);
        }
        assert!(granted > 5000 && refused > 1000, "{granted} {refused}");
    }

    #[test]
    fn processes_opens_and_sessions_are_never_the_same_holder_and_sessions_end_their_own_alone() {
        let lease = OpenLeaseId::new(NodeId(1), 7).unwrap();
        let process = LockOwner::Process { node: NodeId(1), process: 7 };
        let owners = [LockOwner::Session(7), process, LockOwner::Open(lease)];
        let holders = owners.map(|owner| Holder::new(Session(9), owner));
        assert_eq!(holders.map(Holder::owner), owners);
        let mut locks = FileLocks::default();
        for holder in holders {
            locks.set(holder, &lock(LockKind::Read, LockStyle::EVERYWHERE));
        }
        locks.end_session(Session(9));
        assert_eq!(holders.map(|holder| locks.has_locks_of(holder)), [false, true, true]);
    }

    #[test]
    fn locks_of_ranges_and_of_whole_files_never_meet() {
        let mut locks = FileLocks::default();
        locks.set(holder(0), &lock(LockKind::Write, LockStyle::EVERYWHERE));
        assert_eq!(locks.conflicts(holder(1), &lock(LockKind::Write, LockStyle::Whole)).count(), 0);
        locks.set(holder(1), &lock(LockKind::Write, LockStyle::Whole));
        assert_eq!(locks.conflicts(holder(2), &lock(LockKind::Read, LockStyle::Whole)).count(), 1);
        assert_eq!(locks.conflicts(holder(2), &lock(LockKind::Read, range(0, 3))).count(), 1);
        locks.set(holder(1), &lock(LockKind::Unlock, LockStyle::Whole));
        locks.end_session(holder(0).session);
        assert!(locks.is_empty());
    }
}
