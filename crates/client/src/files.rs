//! Files: opening, reading, writing, truncating. A file's bytes are inline, or in stripes all over the pool.

use crate::{
    Client,
    client::unexpected,
    route::{PIECES_UNDER_WAY, Piece, pieces},
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use placement::{FileId, Layout, PartitionId, StripeNo};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
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

impl Plan {
    fn pieces(self, data: &Bytes) -> impl Iterator<Item = Piece> {
        pieces(self.offset, data.len(), self.layout.stripe_bytes())
    }

    /// Whether all of a piece is behind the end that the file had.
    fn is_new(self, piece: &Piece) -> bool {
        self.offset + piece.part.start as u64 >= self.size
    }
}

/// What came of writing by a plan.
enum Done {
    /// So many bytes are written and published; and what stopped the rest, where not all of them are.
    Written(u32, Option<Refusal>),
    /// The file was truncated meanwhile.
    Stale,
}

impl Client {
    /// Opens a file: it lives until it is closed as often.
    pub async fn open(&self, file: FileId, flags: OpenFlags) -> Outcome<Opened> {
        let whole = if flags.whole && flags.write { self.wish(file.partition()) } else { Wish::No };
        self.open_wishing(file, flags, whole).await
    }

    /// The same for a program that has a descriptor of its own: also who only reads does so by itself where it can.
    pub async fn open_for_program(&self, file: FileId, flags: OpenFlags) -> Outcome<Opened> {
        self.open_wishing(file, flags, self.wish(file.partition())).await
    }

    async fn open_wishing(&self, file: FileId, flags: OpenFlags, whole: Wish) -> Outcome<Opened> {
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

    /// Whether a partition is at a node of this host, in whatever process.
    pub(crate) fn is_here(&self, partition: PartitionId) -> bool {
        self.0.way(partition).is_ok_and(|(_, node, _)| node.is_here())
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

    /// The same as one view of each stripe, one after the other.
    pub async fn read_views(&self, file: FileId, offset: u64, length: u32) -> Outcome<Vec<Bytes>> {
        match self.ask(file.partition(), Command::Read { file, offset, length }).await? {
            Answer::Content { length, content: Content::Here(bytes) } => Ok(vec![padded(bytes, length as usize)]),
            Answer::Content { length, content: Content::Striped(layout) } => {
                let mut views = Vec::new();
                let take = |bytes: Bytes, length| views.push(padded(bytes, length));
                Box::pin(self.read_pieces((file, layout), offset, length as usize, take)).await?;
                Ok(views)
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn read_stripes(&self, file: FileId, layout: Layout, offset: u64, length: usize) -> Outcome<Bytes> {
        let mut parts = pieces(offset, length, layout.stripe_bytes());
        let Some(first) = parts.next() else { return Ok(Bytes::new()) };
        if first.part.end == length {
            return Ok(padded(self.read_piece(file, layout, &first).await?, length));
        }
        let mut whole = BytesMut::with_capacity(length);
        let take = |bytes: Bytes, length| {
            let end = whole.len() + length;
            whole.extend_from_slice(&bytes);
            whole.resize(end, 0);
        };
        Box::pin(self.read_pieces((file, layout), offset, length, take)).await?;
        Ok(whole.freeze())
    }

    /// Gives `take` what is read of each stripe, in their order, and how long it is with the zeros that follow.
    async fn read_pieces(
        &self,
        (file, layout): (FileId, Layout),
        offset: u64,
        length: usize,
        mut take: impl FnMut(Bytes, usize) + Send,
    ) -> Outcome<()> {
        let reads = pieces(offset, length, layout.stripe_bytes()).map(|piece| async move {
            let read = self.read_piece(file, layout, &piece).await;
            read.map(|bytes| (bytes, piece.part.len()))
        });
        let mut reads = stream::iter(reads).buffered(PIECES_UNDER_WAY);
        while let Some(read) = reads.next().await {
            let (bytes, length) = read?;
            take(bytes, length);
        }
        Ok(())
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
        self.write_until_full(file, place, data, kill_set_id).await.map(|(written, _)| written)
    }

    /// The same, and why fewer bytes than given were written.
    pub(crate) async fn write_until_full(
        &self,
        file: FileId,
        place: WritePlace,
        data: Bytes,
        kill_set_id: bool,
    ) -> Outcome<(Written, Option<Refusal>)> {
        let length = length_of(&data, file)?;
        for _ in 0..PLANS_MAX {
            let inline = if length <= INLINE_BYTES_MAX { data.clone() } else { Bytes::new() };
            let command = Command::Write { file, place, length, data: inline, kill_set_id };
            match self.change(file.partition(), command).await? {
                Answer::Written { offset } => return Ok((Written { offset, length, layout: None }, None)),
                Answer::Put { offset, length } => return Ok((Written { offset, length, layout: None }, None)),
                Answer::Whole(extent) => {
                    if let Some((offset, length)) = Box::pin(self.write_whole(file, extent, place, &data)).await? {
                        return Ok((Written { offset, length, layout: None }, None));
                    }
                }
                Answer::Unplaced { policy, layout } => Box::pin(self.place(file, policy, layout)).await?,
                Answer::Spill { generation, layout, head } => self.spill((file, layout), generation, &head).await?,
                Answer::TrimFirst(trim) => self.finish_trim(file, trim).await?,
                Answer::Stripes { offset, generation, size, layout } => {
                    let plan = Plan { file, layout, offset, generation, size, append: place == WritePlace::End };
                    if let Done::Written(length, stopped) = self.write_planned(plan, &data).await? {
                        return Ok((Written { offset, length, layout: Some(layout) }, stopped));
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
        let (mut written, mut stopped) = (0, None);
        for piece in plan.pieces(data).take_while(|piece| !plan.is_new(piece) || piece.part.end == data.len()) {
            match self.write_piece(plan, data, &piece).await {
                Ok(()) => written = piece.part.end,
                Err(refusal) => {
                    stopped = Some(refusal);
                    break;
                }
            }
        }
        if stopped.is_none() && written < data.len() {
            (written, stopped) = Box::pin(self.write_new(plan, data, written)).await;
        }
        let (stopped, done) = match stopped {
            Some(Refusal::Stale(_)) => return Ok(Done::Stale),
            Some(refusal) if written == 0 => return Err(refusal),
            stopped => (stopped, self.publish(plan, written, data).await),
        };
        if let Some(reserved) = &mut reserved {
            reserved.start += written as u64;
        }
        match done {
            Ok(Done::Written(length, _)) => Ok(Done::Written(length, stopped)),
            done => done,
        }
    }

    async fn write_piece(&self, plan: Plan, data: &Bytes, piece: &Piece) -> Outcome<()> {
        let stripe_bytes = plan.layout.stripe_bytes();
        let (generation, offset, data) = (plan.generation, piece.offset, data.slice(piece.part.clone()));
        let ends = stripe_bytes < self.0.stripe_bytes && offset + length_of(&data, plan.file)? == stripe_bytes;
        let action = StripeAction::Write { generation, offset, ends, data };
        self.stripe(plan.file, plan.layout, piece.stripe, action).await.map(drop)
    }

    /// Writes what is behind `from`, where the file ended before: several stripes at once. How much is written without a gap from the
    /// beginning, and what stopped it.
    ///
    /// What is behind a gap does not count, and is zeros again; who writes to the same bytes meanwhile may find zeros there.
    async fn write_new(&self, plan: Plan, data: &Bytes, from: usize) -> (usize, Option<Refusal>) {
        let goes_on = AtomicBool::new(true);
        let parts = plan.pieces(data).filter(|piece| piece.part.start >= from).take_while(|_| goes_on.load(Relaxed));
        let writes = parts.map(|piece| async move { (self.write_piece(plan, data, &piece).await, piece) });
        let mut writes = stream::iter(writes).buffered(PIECES_UNDER_WAY);
        let (mut written, mut stopped, mut behind) = (from, None, Vec::new());
        while let Some((done, piece)) = writes.next().await {
            match done {
                Ok(()) if stopped.is_none() => written = piece.part.end,
                Ok(()) => behind.push(piece),
                Err(refusal) => {
                    goes_on.store(false, Relaxed);
                    stopped = stopped.or(Some(refusal));
                }
            }
        }
        for Piece { stripe, offset, part } in behind {
            let length = u32::try_from(part.len()).expect("at most a stripe");
            let action = StripeAction::Zero { generation: plan.generation, offset, length };
            if let Err(error) = self.stripe(plan.file, plan.layout, stripe, action).await {
                tracing::debug!(%error, file = %plan.file, "what a write did not come to may be there");
            }
        }
        (written, stopped)
    }

    async fn publish(&self, plan: Plan, written: usize, data: &Bytes) -> Outcome<Done> {
        let Plan { file, layout, generation, .. } = plan;
        let end = plan.offset + written as u64;
        let done = Done::Written(u32::try_from(written).expect("at most the length of the write"), None);
        if end <= plan.size {
            return Ok(done);
        }
        match self.change(file.partition(), Command::Wrote { file, generation, end }).await {
            Ok(_) => Ok(done),
            Err(Refusal::Stale(_)) => Ok(Done::Stale),
            Err(refusal) => {
                if matches!(refusal, Refusal::NotFound(_)) {
                    self.forget(file, layout, plan.pieces(data).map(|piece| piece.stripe.0)).await;
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
