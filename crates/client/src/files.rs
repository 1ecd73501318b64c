//! Files: opening, reading, writing, truncating. A file's bytes are inline, or in stripes all over the pool.

use crate::{
    Client,
    client::unexpected,
    route::{Piece, pieces},
};
use bytes::{Bytes, BytesMut};
use placement::{FileId, Layout, PartitionId, StripeNo};
use std::sync::Arc;
use wire::{
    Answer, Attributes, Changes, Command, Content, HostFile, INLINE_BYTES_MAX, Object, OpenFlags, Outcome, Refusal,
    StripeAction, Wish, WritePlace,
};

/// A write that meets truncations is planned anew, at most so often.
pub(crate) const PLANS_MAX: u32 = 64;

/// A file that was opened, or made.
#[derive(Clone, Debug)]
pub struct Opened {
    /// As it is now.
    pub attributes: Attributes,
    /// Where the bytes of a bound file are.
    pub host: Option<Arc<HostFile>>,
    /// Another session has it open too.
    pub shared: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it went, bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
    /// Where the stripes lie that it went to; none where it went elsewhere.
    pub layout: Option<Layout>,
}

/// Where a write goes, as its partition planned it.
#[derive(Clone, Copy)]
struct Plan {
    file: FileId,
    layout: Layout,
    offset: u64,
    generation: u32,
    /// The file's size before.
    size: u64,
    append: bool,
}

/// What came of writing by a plan.
enum Done {
    /// So many bytes are written and published.
    Written(u32),
    /// The file was truncated meanwhile.
    Stale,
}

impl Client {
    /// Opens a file: it lives until it is closed as often.
    pub async fn open(&self, file: FileId, flags: OpenFlags) -> Outcome<Opened> {
        let whole = if flags.whole && flags.write { self.wish(file.partition()) } else { Wish::No };
        match self.change(file.partition(), Command::Open { file, flags, whole }).await? {
            Answer::Opened { attributes, host, trim, shared } => {
                if let Some(trim) = trim {
                    self.finish_trim(file, trim).await?;
                }
                Ok(Opened { attributes, host, shared })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// A whole file is wished where its descriptor can be had: at a node of this host.
    pub(crate) fn wish(&self, partition: PartitionId) -> Wish {
        match self.0.way(partition) {
            Ok((home, node, _)) if node.is_here() => {
                if self.own_node() == Some(home) {
                    Wish::Home
                } else {
                    Wish::Wanted
                }
            }
            _ => Wish::No,
        }
    }

    /// Ends one open.
    pub async fn close_file(&self, file: FileId) -> Outcome<()> {
        match self.change(file.partition(), Command::Close { file }).await? {
            Answer::Removed { gone, .. } => {
                self.purge(gone).await;
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// A file of this size will not grow soon: its last stripe gives back what it does not need.
    pub async fn fit(&self, file: FileId, layout: Layout, size: u64) -> Outcome<()> {
        let last = StripeNo(size / u64::from(layout.stripe_bytes()));
        self.stripe(file, layout, last, StripeAction::Fit).await.map(drop)
    }

    /// Changes attributes; a change of the size truncates or extends.
    pub async fn change_attributes(&self, file: FileId, changes: Changes) -> Outcome<Attributes> {
        for _ in 0..PLANS_MAX {
            let outcome = self.change(file.partition(), Command::Change { file, changes }).await;
            if let Err(Refusal::Split { directory, .. }) = outcome {
                return Box::pin(self.change_split(directory, changes)).await;
            }
            match outcome? {
                Answer::Changed { attributes, trim } => {
                    if let Some(trim) = trim {
                        self.finish_trim(file, trim).await?;
                    }
                    return Ok(attributes);
                }
                Answer::TrimFirst(trim) => self.finish_trim(file, trim).await?,
                other => return Err(unexpected(&other)),
            }
        }
        Err(Refusal::Busy(Object::File(file)))
    }

    /// Bytes of a file; fewer than `length` only at its end. A view, where one stripe holds them all.
    pub async fn read(&self, file: FileId, offset: u64, length: u32) -> Outcome<Bytes> {
        match self.ask(file.partition(), Command::Read { file, offset, length }).await? {
            Answer::Content { length, content: Content::Here(bytes) } => Ok(padded(bytes, length as usize)),
            Answer::Content { length, content: Content::Striped(layout) } => {
                self.read_stripes(file, layout, offset, length as usize).await
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn read_stripes(&self, file: FileId, layout: Layout, offset: u64, length: usize) -> Outcome<Bytes> {
        let mut parts = pieces(offset, length, layout.stripe_bytes());
        let Some(first) = parts.next() else { return Ok(Bytes::new()) };
        let bytes = self.read_piece(file, layout, &first).await?;
        if first.part.end == length {
            return Ok(padded(bytes, length));
        }
        let mut whole = BytesMut::with_capacity(length);
        whole.extend_from_slice(&bytes);
        whole.resize(first.part.end, 0);
        for piece in parts {
            whole.extend_from_slice(&self.read_piece(file, layout, &piece).await?);
            whole.resize(piece.part.end, 0);
        }
        Ok(whole.freeze())
    }

    async fn read_piece(&self, file: FileId, layout: Layout, piece: &Piece) -> Outcome<Bytes> {
        let length = u32::try_from(piece.part.len()).expect("at most a stripe");
        match self.stripe(file, layout, piece.stripe, StripeAction::Read { offset: piece.offset, length }).await? {
            Answer::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    /// Writes. Fewer bytes than given only when the pool is full.
    ///
    /// `kill_set_id` takes the set-id bits away, for a writer that is not trusted with them.
    pub async fn write(&self, file: FileId, place: WritePlace, data: Bytes, kill_set_id: bool) -> Outcome<Written> {
        let length = length_of(&data, file)?;
        for _ in 0..PLANS_MAX {
            let inline = if length <= INLINE_BYTES_MAX { data.clone() } else { Bytes::new() };
            let command = Command::Write { file, place, length, data: inline, kill_set_id };
            match self.change(file.partition(), command).await? {
                Answer::Written { offset } => return Ok(Written { offset, length, layout: None }),
                Answer::Put { offset, length } => return Ok(Written { offset, length, layout: None }),
                Answer::Whole(extent) => {
                    if let Some((offset, length)) = Box::pin(self.write_whole(file, extent, place, &data)).await? {
                        return Ok(Written { offset, length, layout: None });
                    }
                }
                Answer::Unplaced { policy, layout } => Box::pin(self.place(file, policy, layout)).await?,
                Answer::Spill { generation, layout, head } => self.spill((file, layout), generation, &head).await?,
                Answer::TrimFirst(trim) => self.finish_trim(file, trim).await?,
                Answer::Stripes { offset, generation, size, layout } => {
                    let plan = Plan { file, layout, offset, generation, size, append: place == WritePlace::End };
                    if let Done::Written(length) = self.write_planned(plan, &data).await? {
                        return Ok(Written { offset, length, layout: Some(layout) });
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
        Err(Refusal::Busy(Object::File(file)))
    }

    /// Copies a small file's bytes to stripe 0, padded to all that it may ever have held inline: whatever an older copy left
    /// there is overwritten.
    pub(crate) async fn spill(&self, (file, layout): (FileId, Layout), generation: u32, head: &[u8]) -> Outcome<()> {
        let mut data = BytesMut::zeroed(INLINE_BYTES_MAX as usize);
        data[..head.len()].copy_from_slice(head);
        let action = StripeAction::Write { generation, offset: 0, ends: false, data: data.freeze() };
        match self.stripe(file, layout, StripeNo(0), action).await {
            Ok(_) => self.change(file.partition(), Command::SpillDone { file, generation }).await.map(drop),
            Err(Refusal::Stale(_)) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Writes the stripes, then publishes the size. When the pool is full, what was written before counts.
    async fn write_planned(&self, plan: Plan, data: &Bytes) -> Outcome<Done> {
        let mut reserved = plan.append.then(|| Reserved::new(self, plan, data.len()));
        let mut written = 0;
        let mut stopped = None;
        let stripe_bytes = plan.layout.stripe_bytes();
        let short = stripe_bytes < self.0.stripe_bytes;
        for piece in pieces(plan.offset, data.len(), stripe_bytes) {
            let (generation, offset) = (plan.generation, piece.offset);
            let data = data.slice(piece.part.clone());
            let ends = short && offset + length_of(&data, plan.file)? == stripe_bytes;
            let action = StripeAction::Write { generation, offset, ends, data };
            match self.stripe(plan.file, plan.layout, piece.stripe, action).await {
                Ok(_) => written = piece.part.end,
                Err(Refusal::Stale(_)) => return Ok(Done::Stale),
                Err(refusal) => {
                    stopped = Some(refusal);
                    break;
                }
            }
        }
        if let (Some(refusal), 0) = (stopped, written) {
            return Err(refusal);
        }
        let done = self.publish(plan, written).await;
        if let Some(reserved) = &mut reserved {
            reserved.start += written as u64;
        }
        done
    }

    async fn publish(&self, plan: Plan, written: usize) -> Outcome<Done> {
        let Plan { file, layout, generation, .. } = plan;
        let end = plan.offset + written as u64;
        let done = Done::Written(u32::try_from(written).expect("at most the length of the write"));
        if end <= plan.size {
            return Ok(done);
        }
        match self.change(file.partition(), Command::Wrote { file, generation, end }).await {
            Ok(_) => Ok(done),
            Err(Refusal::Stale(_)) => Ok(Done::Stale),
            Err(refusal) => {
                if matches!(refusal, Refusal::NotFound(_)) {
                    let touched = pieces(plan.offset, written, layout.stripe_bytes());
                    self.forget(file, layout, touched.map(|piece| piece.stripe.0)).await;
                }
                Err(refusal)
            }
        }
    }
}

/// A place at a file's end, reserved for an append. What of it was not written is given back, also when the append is
/// dropped while it waits; should that message be lost, the place reads as zeros.
struct Reserved<'a> {
    client: &'a Client,
    file: FileId,
    generation: u32,
    start: u64,
    end: u64,
}

impl<'a> Reserved<'a> {
    fn new(client: &'a Client, plan: Plan, length: usize) -> Self {
        let Plan { file, generation, offset, .. } = plan;
        Self { client, file, generation, start: offset, end: offset + length as u64 }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.start < self.end {
            let (file, generation) = (self.file, self.generation);
            let length = u32::try_from(self.end - self.start).expect("at most the length of a write");
            let command = Command::Abandon { file, generation, offset: self.start, length };
            self.client.change_without_waiting(file.partition(), command);
        }
    }
}

fn length_of(data: &Bytes, file: FileId) -> Outcome<u32> {
    let limit = u64::from(u32::MAX);
    u32::try_from(data.len()).map_err(|_| Refusal::TooLarge { object: Object::File(file), limit })
}

/// As many bytes as asked for: these, with zeros behind them where they are fewer.
pub(crate) fn padded(mut bytes: Bytes, length: usize) -> Bytes {
    match bytes.len() {
        enough if enough >= length => {
            bytes.truncate(length);
            bytes
        }
        0 => Bytes::from(vec![0; length]),
        _ => {
            let mut whole = BytesMut::with_capacity(length);
            whole.extend_from_slice(&bytes);
            whole.resize(length, 0);
            whole.freeze()
        }
    }
}
