//! Validation of decoded messages: rules between fields that the types do not express.

use crate::{
    Answer, Body, Command, Content, Contents, ExtentAction, INLINE_BYTES_MAX, Kind, NewInode, NewKind,
    OBJECT_ATTRIBUTES_MAX, Part, RESERVED_MAX, Request, Session, Stamp, TARGET_BYTES_MAX, Wish, codec::RUNS_MAX,
};
use std::path::Path;

/// Error for a request that only nodes may make.
pub const NOT_FOR_CLIENTS: &str = "only nodes say this, to their own partitions";

/// Maximum number of stripes in a reservation: no file has more, whatever the stripe size.
const RESERVED_STRIPES_MAX: u64 = 1 << 40;

type Checked = Result<(), &'static str>;

fn unless(wrong: bool, why: &'static str) -> Checked {
    if wrong { Err(why) } else { Ok(()) }
}

/// Validates a request of a client.
pub fn request(request: &Request) -> Checked {
    match &request.body {
        Body::Hello | Body::Usage | Body::Stop | Body::Stripe { .. } | Body::Look { .. } | Body::Which { .. } => Ok(()),
        Body::Meta { stamp: given, command: wanted } => numbered(*given, request.session, wanted),
        Body::Walk { then, .. } => {
            then.as_ref().map_or(Ok(()), |then| numbered(then.stamp, request.session, &then.command))
        }
        Body::Extent { stamp: given, action, .. } => {
            let append = matches!(action, ExtentAction::Append { .. });
            unless(given.is_none() && append, "an append needs a number")?;
            stamp(*given, request.session)
        }
    }
}

fn numbered(given: Option<Stamp>, session: Session, wanted: &Command) -> Checked {
    unless(given.is_some() != wanted.changes(), "a change needs a number, and nothing else has one")?;
    stamp(given, session)?;
    command(wanted)
}

fn stamp(stamp: Option<Stamp>, session: Session) -> Checked {
    let Some(Stamp { session: of, number, settled }) = stamp else { return Ok(()) };
    unless(of != session, "a change has the number of another session")?;
    unless(settled == 0 || settled > number, "a change is numbered from 1, and is not settled before it is sent")
}

fn command(command: &Command) -> Checked {
    match command {
        Command::Write { length, data, .. } => {
            let inline = if *length <= INLINE_BYTES_MAX { *length as usize } else { 0 };
            unless(data.len() != inline, "a write comes with its bytes when it is small, and else without")
        }
        Command::Create { inode: made, whole, .. } => {
            wish(*whole)?;
            inode(made)
        }
        Command::CreateUnnamed { inode: made, .. } => inode(made),
        Command::Open { whole, .. } | Command::OpenName { whole, .. } => wish(*whole),
        Command::Fold { .. } | Command::Release { .. } => Err(NOT_FOR_CLIENTS),
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

fn contents(contents: &Contents) -> Checked {
    match contents {
        Contents::Inline(data) => unless(data.len() > INLINE_BYTES_MAX as usize, "more bytes than live with an inode"),
        Contents::Striped { size, first, .. } => {
            let short = !first.is_empty() && first.len() as u64 != *size;
            unless(short, "an object comes with all of its bytes, or without any")
        }
    }
}

fn wish(wish: Wish) -> Checked {
    unless(matches!(wish, Wish::Given(_)), NOT_FOR_CLIENTS)
}

fn part(part: &Part) -> Checked {
    match part {
        Part::Make { inode: made, .. } | Part::Fragment { inode: made, .. } => inode(made),
        _ => Ok(()),
    }
}

fn inode(inode: &NewInode) -> Checked {
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
pub fn answer(answer: &Answer) -> Checked {
    match answer {
        Answer::Content { length, content: Content::Here(bytes) }
        | Answer::Object { length, content: Content::Here(bytes), .. } => {
            unless(bytes.len() > *length as usize, "there are more bytes than there are said to be")
        }
        Answer::Object { length, content: Content::Placed(runs), .. } => {
            let placed: u64 = runs.iter().map(|run| u64::from(run.length)).sum();
            unless(placed > u64::from(*length), "there are more bytes than there are said to be")?;
            unless(runs.is_empty() || runs.len() > RUNS_MAX, "an answer names 1 to 1024 places")
        }
        Answer::Content { content: Content::Placed(_), .. } => Err("only an object is placed with its head"),
        Answer::Unsettled { answer: inner, .. } => self::answer(inner),
        _ => Ok(()),
    }
}
