//! Validation of decoded messages: rules between fields that the types do not express.

use crate::{
    AllocateMode, Answer, Body, Changes, Command, Condition, Content, Contents, Extent, ExtentAction, ExtentRequest,
    FoundObject, HostedAnswer, INLINE_BYTES_MAX, Intent, Kind, Lock, LockOwner, NOT_FOR_CLIENTS, Name, NewInode,
    NewKind, OBJECT_ATTRIBUTES_MAX, ObjectAttributes, OpenFlags, Part, RESERVED_MAX, RangeContent, RenameFrom,
    RenameMode, RenameTo, Request, RequestId, SeekTo, Session, StripeRuns, TARGET_BYTES_MAX, Times, UnsettledAnswer,
    WritePlace, XattrMode, codec::RUNS_MAX, command_table::BoundedField,
};
use bytes::Bytes;
use placement::{FileId, Layout, PartitionId, PlacementSpec, Policy};
use std::path::Path;

/// Maximum number of stripes in a reservation: no file has more, whatever the stripe size.
const RESERVED_STRIPES_MAX: u64 = 1 << 40;

/// The result of a validation, with what is wrong.
pub type CheckResult = Result<(), &'static str>;

fn unless(wrong: bool, why: &'static str) -> CheckResult {
    if wrong { Err(why) } else { Ok(()) }
}

/// Validates a request of a client.
pub fn request(request: &Request) -> CheckResult {
    match &request.body {
        Body::Hello
        | Body::Usage
        | Body::Stop
        | Body::Stripe { .. }
        | Body::ProbeLease { .. }
        | Body::FindLeases { .. }
        | Body::EndSession { .. }
        | Body::NoteUnused { .. }
        | Body::Move { .. }
        | Body::EndMovedSession { .. }
        | Body::Manage { .. }
        | Body::Workers => Ok(()),
        Body::Meta { request_id: given, command: wanted } => with_request_id(*given, request.session, wanted),
        Body::NoteLock { lock, .. } => lock.check(),
        Body::Finish { request_id: given, command: wanted, answer: planned, .. } => {
            answer(planned)?;
            with_request_id(*given, request.session, wanted)
        }
        Body::Walk { action: then, .. } => {
            then.as_ref().map_or(Ok(()), |then| with_request_id(then.request_id, request.session, &then.command))
        }
        Body::Extent { request_id: given, action, .. } => {
            let append = matches!(action, ExtentAction::Append { .. });
            unless(given.is_none() && append, "an append needs a number")?;
            request_id(*given, request.session)
        }
    }
}

fn with_request_id(given: Option<RequestId>, session: Session, wanted: &Command) -> CheckResult {
    unless(given.is_some() != wanted.is_mutation(), "a change needs a number, and nothing else has one")?;
    request_id(given, session)?;
    wanted.check()
}

fn request_id(request_id: Option<RequestId>, session: Session) -> CheckResult {
    let Some(RequestId { session: of, number, settled }) = request_id else { return Ok(()) };
    unless(of != session, "a change has the number of another session")?;
    unless(settled == 0 || settled > number, "a change is numbered from 1, and is not settled before it is sent")
}

/// Validates the length of a write: its bytes come with it if they fit inline.
pub fn inline_bytes(length: u32, data: &Bytes) -> CheckResult {
    let inline = if length <= INLINE_BYTES_MAX { length as usize } else { 0 };
    unless(data.len() != inline, "a write comes with its bytes when it is small, and else without")
}

/// Validates a reservation of files, each of so many stripes.
pub fn reservation(count: u32, stripes: u64) -> CheckResult {
    let possible = (1..=RESERVED_MAX).contains(&count) && (1..=RESERVED_STRIPES_MAX).contains(&stripes);
    unless(!possible, "1 to 256 files are reserved at once, of at most 2^40 stripes")
}

impl BoundedField for Contents {
    fn check(&self) -> CheckResult {
        match self {
            Self::Inline(data) => unless(data.len() > INLINE_BYTES_MAX as usize, "more bytes than live with an inode"),
            Self::Striped { size, first, .. } => {
                let short = !first.is_empty() && first.len() as u64 != *size;
                unless(short, "an object comes with all of its bytes, or without any")
            }
        }
    }
}

impl BoundedField for ObjectAttributes {
    fn check(&self) -> CheckResult {
        unless(self.len() > OBJECT_ATTRIBUTES_MAX, "an object is put with at most 16 attributes")
    }
}

impl BoundedField for ExtentRequest {
    fn check(&self) -> CheckResult {
        unless(matches!(self, Self::Allocated(_)), NOT_FOR_CLIENTS)
    }
}

impl BoundedField for Vec<Part> {
    fn check(&self) -> CheckResult {
        self.iter().try_for_each(|part| match part {
            Part::CreateDirectory { inode, .. } | Part::Fragment { inode, .. } => inode.check(),
            _ => Ok(()),
        })
    }
}

impl BoundedField for Lock {
    fn check(&self) -> CheckResult {
        let LockOwner::Process { node, .. } = self.owner else { return Ok(()) };
        unless(Session::of_node(node).is_none(), "a process that owns a lock is at a node whose id has 1 to 16 bits")
    }
}

impl BoundedField for NewInode {
    fn check(&self) -> CheckResult {
        match &self.kind {
            NewKind::File | NewKind::Directory => Ok(()),
            NewKind::Symlink(target) => {
                unless(!(1..=TARGET_BYTES_MAX).contains(&target.len()), "a link's target has 1 to 4,095 bytes")
            }
            NewKind::Node(kind) => {
                let other = matches!(kind, Kind::File | Kind::Directory | Kind::Symlink);
                unless(other, "a node is a fifo, a socket or a device")
            }
            NewKind::Bound(host) => unless(!Path::new(&host.path).is_absolute(), "a host file has an absolute path"),
        }
    }
}

/// Types whose values are all valid.
macro_rules! unbounded {
    ($($field:ty),* $(,)?) => { $(impl BoundedField for $field {})* };
}

unbounded! {
    bool, u32, u64, AllocateMode, Bytes, Changes, Condition, Extent, FileId, Intent, Layout, Name, OpenFlags,
    Option<Name>, Option<Policy>, Option<Session>, PartitionId, PlacementSpec, RenameFrom, RenameMode, RenameTo, SeekTo,
    Session, StripeRuns, Times, Vec<PartitionId>, WritePlace, XattrMode,
}

/// Validates an answer of a node.
pub fn answer(answer: &Answer) -> CheckResult {
    match answer {
        Answer::Content(RangeContent { length, content: Content::Bytes(bytes) })
        | Answer::Object(FoundObject { length, content: Content::Bytes(bytes), .. }) => {
            unless(bytes.len() > *length as usize, "there are more bytes than announced")
        }
        Answer::Object(FoundObject { length, content: Content::Shm(runs), .. }) => {
            let placed: u64 = runs.iter().map(|run| u64::from(run.length)).sum();
            unless(placed > u64::from(*length), "there are more bytes than announced")?;
            unless(runs.is_empty() || runs.len() > RUNS_MAX, "an answer names 1 to 1024 places")
        }
        Answer::Content(RangeContent { content: Content::Shm(_), .. }) => Err("only an object is placed with its head"),
        Answer::Unsettled(UnsettledAnswer { answer: inner, .. })
        | Answer::Hosted(HostedAnswer { answer: inner, .. }) => self::answer(inner),
        _ => Ok(()),
    }
}
