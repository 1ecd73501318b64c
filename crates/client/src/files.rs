//! Files: opening, reading, writing, truncating. A file's bytes are inline, in an extent, or in
//! stripes all over the pool.

use crate::{
    Client,
    stripe_ranges::{RANGES_IN_FLIGHT_MAX, StripeRange, stripe_ranges},
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use placement::{FileId, Layout, PartitionId, StripeNo};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use wire::{
    Attributes, ChangeAnswer, ChangedFile, Changes, Command, ExtentRequest, ExtentWrite, HostFile, INLINE_BYTES_MAX,
    InlineSpill, Object, OpenFlags, OpenedFile, Outcome, ReadableContent, Refusal, StripeAction, StripedWrite,
    WriteAnswer, WritePlace,
};

/// Most times that a write is planned anew because of concurrent truncations.
pub(crate) const PLANS_MAX: u32 = 64;

/// A file that was opened or made.
#[derive(Clone, Debug)]
pub struct OpenedInode {
    /// Its attributes now.
    pub attributes: Attributes,
    /// The host file with the bytes of a bound file.
    pub host: Option<Arc<HostFile>>,
    /// True if another session has it open too.
    pub shared: bool,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenRange {
    /// The offset at which the bytes were written.
    pub offset: u64,
    /// The number of bytes written.
    pub length: u32,
    /// The layout of the stripes that were written; `None` if the bytes are elsewhere.
    pub layout: Option<Layout>,
}

/// The partition's plan for a write.
#[derive(Clone, Copy)]
struct WritePlan {
    file: FileId,
    layout: Layout,
    offset: u64,
    generation: u32,
    /// The file's size before the write.
    size: u64,
    append: bool,
}

impl WritePlan {
    fn stripe_ranges(self, data: &Bytes) -> impl Iterator<Item = StripeRange> {
        stripe_ranges(self.offset, data.len(), self.layout.stripe_bytes())
    }

    /// True if the whole piece is at or beyond the old end of the file.
    fn is_new(self, piece: &StripeRange) -> bool {
        self.offset + piece.range.start as u64 >= self.size
    }
}

/// The result of a planned write.
enum WriteOutcome {
    /// The number of bytes that are written and published; and the refusal that stopped the rest,
    /// if there is a rest.
    Written(u32, Option<Refusal>),
    /// The file was truncated meanwhile.
    Stale,
}

impl Client {
    /// Opens a file. It stays open until it has been closed as often as it was opened.
    pub async fn open(&self, file: FileId, flags: OpenFlags) -> Outcome<OpenedInode> {
        let extent =
            if flags.use_extent && flags.write { self.extent_request(file.partition()) } else { ExtentRequest::None };
        self.open_with_request(file, flags, extent).await
    }

    /// Opens a file for a program with a descriptor of its own. An extent is requested for readers
    /// too, so that they can read it directly.
    pub async fn open_for_program(&self, file: FileId, flags: OpenFlags) -> Outcome<OpenedInode> {
        self.open_with_request(file, flags, self.extent_request(file.partition())).await
    }

    async fn open_with_request(&self, file: FileId, flags: OpenFlags, extent: ExtentRequest) -> Outcome<OpenedInode> {
        let opened = self.mutate(file.partition(), Command::open(file, flags, extent)).await?;
        let OpenedFile { attributes, host, truncation, shared } = opened;
        if let Some(truncation) = truncation {
            self.finish_truncate(file, truncation).await?;
        }
        Ok(OpenedInode { attributes, host, shared })
    }

    /// The extent request for a file in a partition: made only to a node of this host, because only
    /// its descriptors can be had.
    pub(crate) fn extent_request(&self, partition: PartitionId) -> ExtentRequest {
        match self.router().link_to(partition) {
            Ok((link, _)) if link.connection.is_on_local_host() => {
                if self.local_node() == Some(link.node) {
                    ExtentRequest::Local
                } else {
                    ExtentRequest::Any
                }
            }
            _ => ExtentRequest::None,
        }
    }

    /// True if a partition is at a node of this host, in any process.
    pub(crate) fn is_on_local_host(&self, partition: PartitionId) -> bool {
        self.router().link_to(partition).is_ok_and(|(link, _)| link.connection.is_on_local_host())
    }

    /// Ends one open.
    pub async fn close_file(&self, file: FileId) -> Outcome<()> {
        let deleted = self.mutate(file.partition(), Command::close(file)).await?;
        self.purge(deleted).await;
        Ok(())
    }

    /// Frees what the last stripe of a file of this size does not need, because the file will not
    /// grow soon.
    pub async fn shrink_to_fit(&self, file: FileId, layout: Layout, size: u64) -> Outcome<()> {
        let last = StripeNo(size / u64::from(layout.stripe_bytes()));
        self.send_stripe(file, layout, last, StripeAction::Fit).await.map(drop)
    }

    /// Changes attributes; a change of the size truncates or extends.
    pub async fn change_attributes(&self, file: FileId, changes: Changes) -> Outcome<Attributes> {
        for _ in 0..PLANS_MAX {
            let outcome = self.mutate(file.partition(), Command::change(file, changes)).await;
            if let Err(Refusal::Split { directory, .. }) = outcome {
                return Box::pin(self.change_split(directory, changes)).await;
            }
            match outcome? {
                ChangeAnswer::Changed(ChangedFile { attributes, truncation }) => {
                    if let Some(truncation) = truncation {
                        self.finish_truncate(file, truncation).await?;
                    }
                    return Ok(attributes);
                }
                ChangeAnswer::NeedsTruncate(truncation) => self.finish_truncate(file, truncation).await?,
            }
        }
        Err(Refusal::Busy(Object::File(file)))
    }

    /// Reads bytes; fewer than `length` only at the file's end. The result is a view if one stripe
    /// holds them all.
    pub async fn read(&self, file: FileId, offset: u64, length: u32) -> Outcome<Bytes> {
        match self.query(file.partition(), Command::read(file, offset, length)).await?.readable()? {
            (length, ReadableContent::Bytes(bytes)) => Ok(pad(bytes, length)),
            (length, ReadableContent::Striped(layout)) => self.read_stripes(file, layout, offset, length).await,
        }
    }

    /// Like [`Self::read`], as one view for each stripe, in order.
    pub async fn read_views(&self, file: FileId, offset: u64, length: u32) -> Outcome<Vec<Bytes>> {
        match self.query(file.partition(), Command::read(file, offset, length)).await?.readable()? {
            (length, ReadableContent::Bytes(bytes)) => Ok(vec![pad(bytes, length)]),
            (length, ReadableContent::Striped(layout)) => {
                let mut views = Vec::new();
                let take = |bytes: Bytes, length| views.push(pad(bytes, length));
                Box::pin(self.read_ranges((file, layout), offset, length, take)).await?;
                Ok(views)
            }
        }
    }

    async fn read_stripes(&self, file: FileId, layout: Layout, offset: u64, length: usize) -> Outcome<Bytes> {
        let mut parts = stripe_ranges(offset, length, layout.stripe_bytes());
        let Some(first) = parts.next() else { return Ok(Bytes::new()) };
        if first.range.end == length {
            return Ok(pad(self.read_range(file, layout, &first).await?, length));
        }
        let mut whole = BytesMut::with_capacity(length);
        let take = |bytes: Bytes, length| {
            let end = whole.len() + length;
            whole.extend_from_slice(&bytes);
            whole.resize(end, 0);
        };
        Box::pin(self.read_ranges((file, layout), offset, length, take)).await?;
        Ok(whole.freeze())
    }

    /// Calls `take` for each stripe, in order, with the bytes that were read and the length that
    /// they have with trailing zeros.
    async fn read_ranges(
        &self,
        (file, layout): (FileId, Layout),
        offset: u64,
        length: usize,
        mut take: impl FnMut(Bytes, usize) + Send,
    ) -> Outcome<()> {
        let reads = stripe_ranges(offset, length, layout.stripe_bytes()).map(|piece| async move {
            let read = self.read_range(file, layout, &piece).await;
            read.map(|bytes| (bytes, piece.range.len()))
        });
        let mut reads = stream::iter(reads).buffered(RANGES_IN_FLIGHT_MAX);
        while let Some(read) = reads.next().await {
            let (bytes, length) = read?;
            take(bytes, length);
        }
        Ok(())
    }

    async fn read_range(&self, file: FileId, layout: Layout, piece: &StripeRange) -> Outcome<Bytes> {
        let length = u32::try_from(piece.range.len()).expect("at most a stripe");
        let read = StripeAction::Read { offset: piece.offset, length };
        self.send_stripe(file, layout, piece.stripe, read).await?.bytes()
    }

    /// Writes. Fewer bytes than given are written only if the pool is full.
    ///
    /// `kill_set_id` clears the set-id bits, for a writer that is not trusted with them.
    pub async fn write(
        &self,
        file: FileId,
        place: WritePlace,
        data: Bytes,
        kill_set_id: bool,
    ) -> Outcome<WrittenRange> {
        self.write_until_full(file, place, data, kill_set_id).await.map(|(written, _)| written)
    }

    /// Like [`Self::write`]; also returns the refusal that stopped the write early.
    pub(crate) async fn write_until_full(
        &self,
        file: FileId,
        place: WritePlace,
        data: Bytes,
        kill_set_id: bool,
    ) -> Outcome<(WrittenRange, Option<Refusal>)> {
        let length = length_of(&data, file)?;
        for _ in 0..PLANS_MAX {
            let inline = if length <= INLINE_BYTES_MAX { data.clone() } else { Bytes::new() };
            let write = Command::write(file, place, length, inline, kill_set_id);
            match self.mutate(file.partition(), write).await? {
                WriteAnswer::Written(offset) => return Ok((WrittenRange { offset, length, layout: None }, None)),
                WriteAnswer::ExtentWritten(ExtentWrite { offset, length }) => {
                    return Ok((WrittenRange { offset, length, layout: None }, None));
                }
                WriteAnswer::Extent(extent) => {
                    if let Some((offset, length)) = Box::pin(self.write_extent(file, extent, place, &data)).await? {
                        return Ok((WrittenRange { offset, length, layout: None }, None));
                    }
                }
                WriteAnswer::NeedsPlacement(choice) => Box::pin(self.place_file(file, choice)).await?,
                WriteAnswer::NeedsSpill(spill) => self.spill(file, &spill).await?,
                WriteAnswer::NeedsTruncate(truncation) => self.finish_truncate(file, truncation).await?,
                WriteAnswer::Stripes(StripedWrite { offset, generation, size, layout }) => {
                    let plan = WritePlan { file, layout, offset, generation, size, append: place == WritePlace::End };
                    if let WriteOutcome::Written(length, stopped) = self.write_planned(plan, &data).await? {
                        return Ok((WrittenRange { offset, length, layout: Some(layout) }, stopped));
                    }
                }
            }
        }
        Err(Refusal::Busy(Object::File(file)))
    }

    /// Copies the inline bytes of a small file to stripe 0, padded to the most that can be inline,
    /// so that all bytes that an older copy left there are overwritten.
    pub(crate) async fn spill(&self, file: FileId, spill: &InlineSpill) -> Outcome<()> {
        let InlineSpill { generation, layout, ref head } = *spill;
        let mut data = BytesMut::zeroed(INLINE_BYTES_MAX as usize);
        data[..head.len()].copy_from_slice(head);
        let action = StripeAction::Write { generation, offset: 0, ends: false, data: data.freeze() };
        match self.send_stripe(file, layout, StripeNo(0), action).await {
            Ok(_) => self.mutate(file.partition(), Command::spill_done(file, generation)).await,
            Err(Refusal::Stale(_)) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Writes the stripes, then publishes the size. If the pool becomes full, the bytes written
    /// before count.
    async fn write_planned(&self, plan: WritePlan, data: &Bytes) -> Outcome<WriteOutcome> {
        let mut reserved = plan.append.then(|| AppendReservation::new(self, plan, data.len()));
        let (mut written, mut stopped) = (0, None);
        for piece in plan.stripe_ranges(data).take_while(|piece| !plan.is_new(piece) || piece.range.end == data.len()) {
            match self.write_range(plan, data, &piece).await {
                Ok(()) => written = piece.range.end,
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
            Some(Refusal::Stale(_)) => return Ok(WriteOutcome::Stale),
            Some(refusal) if written == 0 => return Err(refusal),
            stopped => (stopped, self.publish(plan, written, data).await),
        };
        if let Some(reserved) = &mut reserved {
            reserved.start += written as u64;
        }
        match done {
            Ok(WriteOutcome::Written(length, _)) => Ok(WriteOutcome::Written(length, stopped)),
            done => done,
        }
    }

    async fn write_range(&self, plan: WritePlan, data: &Bytes, piece: &StripeRange) -> Outcome<()> {
        let stripe_bytes = plan.layout.stripe_bytes();
        let (generation, offset, data) = (plan.generation, piece.offset, data.slice(piece.range.clone()));
        let ends = stripe_bytes < self.router().stripe_bytes && offset + length_of(&data, plan.file)? == stripe_bytes;
        let action = StripeAction::Write { generation, offset, ends, data };
        self.send_stripe(plan.file, plan.layout, piece.stripe, action).await.map(drop)
    }

    /// Writes the data from `from` on, which is beyond the old end of the file, several stripes at
    /// once. Returns the number of bytes written without a gap from the start of the data, and the
    /// refusal that stopped the rest.
    ///
    /// Bytes after a gap do not count and are zeroed again; a concurrent writer of the same bytes
    /// may find zeros there.
    async fn write_new(&self, plan: WritePlan, data: &Bytes, from: usize) -> (usize, Option<Refusal>) {
        let goes_on = AtomicBool::new(true);
        let parts =
            plan.stripe_ranges(data).filter(|piece| piece.range.start >= from).take_while(|_| goes_on.load(Relaxed));
        let writes = parts.map(|piece| async move { (self.write_range(plan, data, &piece).await, piece) });
        let mut writes = stream::iter(writes).buffered(RANGES_IN_FLIGHT_MAX);
        let (mut written, mut stopped, mut behind) = (from, None, Vec::new());
        while let Some((done, piece)) = writes.next().await {
            match done {
                Ok(()) if stopped.is_none() => written = piece.range.end,
                Ok(()) => behind.push(piece),
                Err(refusal) => {
                    goes_on.store(false, Relaxed);
                    stopped = stopped.or(Some(refusal));
                }
            }
        }
        for StripeRange { stripe, offset, range } in behind {
            let length = u32::try_from(range.len()).expect("at most a stripe");
            let action = StripeAction::Zero { generation: plan.generation, offset, length };
            if let Err(error) = self.send_stripe(plan.file, plan.layout, stripe, action).await {
                tracing::debug!(%error, file = %plan.file, "space that a failed write planned could not be released");
            }
        }
        (written, stopped)
    }

    async fn publish(&self, plan: WritePlan, written: usize, data: &Bytes) -> Outcome<WriteOutcome> {
        let WritePlan { file, layout, generation, .. } = plan;
        let end = plan.offset + written as u64;
        let done = WriteOutcome::Written(u32::try_from(written).expect("at most the length of the write"), None);
        if end <= plan.size {
            return Ok(done);
        }
        match self.mutate(file.partition(), Command::publish_size(file, generation, end)).await {
            Ok(()) => Ok(done),
            Err(Refusal::Stale(_)) => Ok(WriteOutcome::Stale),
            Err(refusal) => {
                if matches!(refusal, Refusal::NotFound(_)) {
                    self.discard_stripes(file, layout, plan.stripe_ranges(data).map(|piece| piece.stripe.0)).await;
                }
                Err(refusal)
            }
        }
    }
}

/// A range at a file's end that is reserved for an append. Dropping it releases the part that was
/// not written, also when the append is dropped while it waits. If that message is lost, the range
/// reads as zeros.
struct AppendReservation<'a> {
    client: &'a Client,
    file: FileId,
    generation: u32,
    start: u64,
    end: u64,
}

impl<'a> AppendReservation<'a> {
    fn new(client: &'a Client, plan: WritePlan, length: usize) -> Self {
        let WritePlan { file, generation, offset, .. } = plan;
        Self { client, file, generation, start: offset, end: offset + length as u64 }
    }
}

impl Drop for AppendReservation<'_> {
    fn drop(&mut self) {
        if self.start < self.end {
            let (file, generation) = (self.file, self.generation);
            let length = u32::try_from(self.end - self.start).expect("at most the length of a write");
            self.client.mutate_no_wait(file.partition(), Command::abandon(file, generation, self.start, length));
        }
    }
}

fn length_of(data: &Bytes, file: FileId) -> Outcome<u32> {
    let limit = u64::from(u32::MAX);
    u32::try_from(data.len()).map_err(|_| Refusal::TooLarge { object: Object::File(file), limit })
}

/// Cuts the bytes, or pads them with zeros, to the length.
pub(crate) fn pad(mut bytes: Bytes, length: usize) -> Bytes {
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
