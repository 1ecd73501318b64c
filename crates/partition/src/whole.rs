//! Whole files: all their bytes are in one extent of a node, which the node reads, writes and cuts.
//!
//! ```text
//!   (new)   --Create, a node gave an extent---------------------------->  Whole
//!   Inline  --opened by the first, who wished, a node gave an extent--->  Whole   (the node has put the bytes there before)
//!   Whole   --Fold, after the last close------------------------------->  Inline  (the bytes come with it)
//! ```
//!
//! Size, space and times of a whole file are the extent's: its node fills them in where attributes leave it. A time is what the
//! extent says or what the inode says, whichever is later: the inode knows what happened before the file became whole. When
//! times are set, the extent is set too and the inode forgets its own.
//!
//! An extent whose file is gone, and a file that was closed for the last time, are told to the node beside the answer.

use crate::{
    Partition,
    inode::{Body, FileBody, Inode, Place},
    weight,
};
use bytes::Bytes;
use placement::FileId;
use serde::{Deserialize, Serialize};
use wire::{
    Answer, Changes, Command, Extent, INLINE_BYTES_MAX, NewKind, Object, Outcome, Refusal, Session, Times, Timestamp,
    Wish,
};

/// Before any time that a file can have: the extent knows better.
const FORGOTTEN: Timestamp = Timestamp { secs: i64::MIN, nanos: 0 };

/// What a node learns beside an answer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Told {
    /// Extents that no file has any more.
    pub freed: Vec<Extent>,
    /// Whole files that nobody has open any more.
    pub closed: Vec<(FileId, Extent)>,
}

/// What an extent must hold before a file becomes whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The bytes at the start.
    pub bytes: &'a [u8],
    /// The length: a hole follows the bytes.
    pub size: u64,
}

impl Partition {
    /// Where all the bytes of a whole file are.
    pub fn extent(&self, file: FileId) -> Option<Extent> {
        self.inodes.get(&file)?.extent()
    }

    /// What an extent for this command's wish must hold first; none when the wish has no sense.
    pub fn head(&self, command: &Command) -> Option<Head<'_>> {
        match command {
            Command::Create { parent, name, inode, open: true, .. } => {
                let makes = matches!(inode.kind, NewKind::File) && self.entry(*parent, name).is_err();
                makes.then_some(Head { bytes: &[], size: 0 })
            }
            // Who only reads wishes for one where it can read that by itself.
            Command::Open { file, flags, whole } if flags.write || *whole != Wish::No => {
                let inode = self.inodes.get(file).filter(|inode| inode.opens.is_empty())?;
                let Body::File(FileBody { size, place: Place::Inline(bytes), .. }) = &inode.body else { return None };
                Some(if flags.truncate { Head { bytes: &[], size: 0 } } else { Head { bytes, size: *size } })
            }
            _ => None,
        }
    }

    /// What happened since the last time, for the node; none when nothing did.
    pub fn told(&mut self) -> Option<Told> {
        let told = !self.told.freed.is_empty() || !self.told.closed.is_empty();
        told.then(|| std::mem::take(&mut self.told))
    }

    /// Whether a session has a file open.
    pub fn is_open_by(&self, session: Session, file: FileId) -> bool {
        self.inodes.get(&file).is_some_and(|inode| inode.opens.iter().any(|(holder, _)| *holder == session))
    }

    /// Whether a file that was whole may be folded: nobody has it open, and it has a name.
    pub fn is_closed(&self, file: FileId, extent: Extent) -> bool {
        self.inodes.get(&file).is_some_and(|inode| inode.opens.is_empty() && inode.extent() == Some(extent))
    }

    /// The bytes of a small whole file come back to its inode. Its node gives the extent back itself.
    pub(crate) fn fold(&mut self, file: FileId, extent: Extent, bytes: &Bytes, times: Times) -> Outcome<Answer> {
        if bytes.len() > INLINE_BYTES_MAX as usize || !self.is_closed(file, extent) {
            return Err(Refusal::Stale(Object::File(file)));
        }
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            body.size = bytes.len() as u64;
            body.place = Place::Inline(bytes.to_vec());
            (inode.accessed, inode.modified, inode.changed) = (times.accessed, times.modified, times.changed);
            inode.version += 1; // what was changed in the extent was not counted here
            Ok(Answer::Done)
        })
    }

    /// Notes that nobody has this file open any more.
    pub(crate) fn note_closed(&mut self, file: FileId) {
        if let Some(extent) = self.extent(file) {
            self.told.closed.push((file, extent));
        }
    }

    /// What a fold adds to the weight, at most.
    pub fn fold_bytes_max(length: u64) -> u64 {
        length.saturating_sub(weight::EXTENT_BYTES)
    }
}

impl Inode {
    /// Where all its bytes are, when it is whole.
    pub fn extent(&self) -> Option<Extent> {
        match &self.body {
            Body::File(body) => body.extent(),
            _ => None,
        }
    }

    /// Takes the extent that a node gave; the bytes are there already.
    pub fn become_whole(&mut self, wish: Wish) {
        if let (Wish::Given(extent), Body::File(body)) = (wish, &mut self.body)
            && matches!(body.place, Place::Inline(_))
        {
            body.place = Place::Whole(extent);
        }
    }

    /// After times were set in the extent too.
    pub fn forget_times(&mut self, changes: &Changes) {
        if self.extent().is_none() {
            return;
        }
        if changes.accessed.is_some() {
            self.accessed = FORGOTTEN;
        }
        if changes.modified.is_some() {
            self.modified = FORGOTTEN;
        }
    }
}

impl FileBody {
    /// Where all its bytes are, when it is whole.
    pub fn extent(&self) -> Option<Extent> {
        match self.place {
            Place::Whole(extent) => Some(extent),
            _ => None,
        }
    }
}
