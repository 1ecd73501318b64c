//! Validation of decoded messages: rules between fields that the types do not express.

use crate::{
    Answer, Body, Command, Content, Contents, ExtentAction, ExtentRequest, INLINE_BYTES_MAX, Kind, NewInode, NewKind,
    OBJECT_ATTRIBUTES_MAX, Part, RESERVED_MAX, Request, RequestId, Session, TARGET_BYTES_MAX, codec::RUNS_MAX,
};
use std::path::Path;

/// Error for a request that only nodes may make.
pub const NOT_FOR_CLIENTS: &str = "only nodes send this, to their own partitions";

/// Maximum number of stripes in a reservation: no file has more, whatever the stripe size.
const RESERVED_STRIPES_MAX: u64 = 1 << 40;

type CheckResult = Result<(), &'static str>;

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
        | Body::FindLeases { .. } => Ok(()),
        Body::Meta { request_id: given, command: wanted } => with_request_id(*given, request.session, wanted),
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
    command(wanted)
}

fn request_id(request_id: Option<RequestId>, session: Session) -> CheckResult {
    let Some(RequestId { session: of, number, settled }) = request_id else { return Ok(()) };
    unless(of != session, "a change has the number of another session")?;
    unless(settled == 0 || settled > number, "a change is numbered from 1, and is not settled before it is sent")
}

fn command(command: &Command) -> CheckResult {
    match command {
        Command::Write { length, data, .. } => {
            let inline = if *length <= INLINE_BYTES_MAX { *length as usize } else { 0 };
            unless(data.len() != inline, "a write comes with its bytes when it is small, and else without")
        }
        Command::Create { inode: made, extent: whole, .. } => {
            extent_request(*whole)?;
            inode(made)
        }
        Command::CreateTmpfile { inode: made, .. } => inode(made),
        Command::Open { extent: whole, .. } | Command::OpenName { extent: whole, .. } => extent_request(*whole),
        Command::Demote { .. } | Command::Release { .. } => Err(NOT_FOR_CLIENTS),
        Command::PutObject { attributes, contents: stored, .. } => {
            unless(attributes.len() > OBJECT_ATTRIBUTES_MAX, "an object is put with at most 16 attributes")?;
            contents(stored)
        }
        Command::Reserve { count, stripes, .. } => {
            let possible = (1..=RESERVED_MAX).contains(count) && (1..=RESERVED_STRIPES_MAX).contains(stripes);
            unless(!possible, "1 to 256 files are reserved at once, of at most 2^40 stripes")
        }
        Command::Prepare { parts, .. } | Command::Commit { parts, .. } => parts.iter().try_for_each(part),
        _ => Ok(()),
    }
}

fn contents(contents: &Contents) -> CheckResult {
    match contents {
        Contents::Inline(data) => unless(data.len() > INLINE_BYTES_MAX as usize, "more bytes than live with an inode"),
        Contents::Striped { size, first, .. } => {
            let short = !first.is_empty() && first.len() as u64 != *size;
            unless(short, "an object comes with all of its bytes, or without any")
        }
    }
}

fn extent_request(request: ExtentRequest) -> CheckResult {
    unless(matches!(request, ExtentRequest::Allocated(_)), NOT_FOR_CLIENTS)
}

fn part(part: &Part) -> CheckResult {
    match part {
        Part::CreateDirectory { inode: made, .. } | Part::Fragment { inode: made, .. } => inode(made),
        _ => Ok(()),
    }
}

fn inode(inode: &NewInode) -> CheckResult {
    match &inode.kind {
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

/// Validates an answer of a node.
pub fn answer(answer: &Answer) -> CheckResult {
    match answer {
        Answer::Content { length, content: Content::Bytes(bytes) }
        | Answer::Object { length, content: Content::Bytes(bytes), .. } => {
            unless(bytes.len() > *length as usize, "there are more bytes than announced")
        }
        Answer::Object { length, content: Content::Shm(runs), .. } => {
            let placed: u64 = runs.iter().map(|run| u64::from(run.length)).sum();
            unless(placed > u64::from(*length), "there are more bytes than announced")?;
            unless(runs.is_empty() || runs.len() > RUNS_MAX, "an answer names 1 to 1024 places")
        }
        Answer::Content { content: Content::Shm(_), .. } => Err("only an object is placed with its head"),
        Answer::Unsettled { answer: inner, .. } => self::answer(inner),
        _ => Ok(()),
    }
}
