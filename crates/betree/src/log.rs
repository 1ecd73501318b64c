//! The log: all changes, and all values that are too long for leaves, in segments of the device.
//!
//! A database has a log of its own, of which the last segment is written. Records there are in the
//! order of their sequence numbers. A segment is mapped as long as it is written or read, so a
//! record outlives the process as soon as it is stored.
//!
//! A segment is never written again before its space was given back, and that is done when no
//! reader has it any more: this is why the bytes of stored values may be handed out.
#![expect(unsafe_code, reason = "bytes of mapped segments; see above")]

use crate::{
    bytes_at::{u32_at, u64_at},
    device::{MappedRange, StoreDevice},
    log_record::{LogRecord, RECORD_HEADER, RecordKind},
    sequencer::Sequencer,
    space::{BLOCK_BYTES, FreeSpace, SpaceExtent},
    stored_value::{LogSpan, is_inline},
};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicI64, AtomicU64,
            Ordering::{Acquire, Relaxed, SeqCst},
        },
    },
};

/// Longest segment, but for one with a single value that is longer.
const SEGMENT_BYTES_MAX: u64 = 4 << 20;
/// Length of a record that leads to the next segment.
const NEXT_LENGTH: usize = RECORD_HEADER + NEXT_VALUE;
const NEXT_VALUE: usize = 32;

/// The parts that all logs of a store share.
#[derive(Debug)]
pub struct LogShared {
    pub device: Arc<dyn StoreDevice>,
    pub space: Mutex<FreeSpace>,
    pub sequencer: Sequencer,
    pub segments: Arc<SegmentTable>,
}

/// The segments of a store, by slots.
#[derive(Default)]
pub struct SegmentTable {
    slots: boxcar::Vec<ArcSwapOption<LogSegment>>,
    /// Held while a slot is taken. Slots that are free again.
    free: Mutex<Vec<u32>>,
    /// The last number that a segment got.
    last_number: AtomicU64,
}

/// A segment of a log.
pub struct LogSegment {
    pub slot: u32,
    /// Its number, which no other segment of the store had or will have.
    pub number: u64,
    pub extent: SpaceExtent,
    map: Arc<dyn MappedRange>,
    /// Bytes of values that entries of trees have here.
    live: AtomicI64,
    is_retired: AtomicBool,
}

/// The log of a database.
#[derive(Debug)]
pub struct RedoLog(Mutex<LogTail>);

#[derive(Debug)]
struct LogTail {
    segment: Arc<LogSegment>,
    used: usize,
}

/// The place at which a log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPlace {
    pub slot: u32,
    pub offset: u32,
}

impl SegmentTable {
    /// The segment of a slot.
    pub fn get(&self, slot: u32) -> Option<Arc<LogSegment>> {
        self.slots.get(slot as usize)?.load_full()
    }

    /// All segments.
    pub fn all(&self) -> Vec<Arc<LogSegment>> {
        self.slots.iter().filter_map(|(_, slot)| slot.load_full()).collect()
    }

    /// The last number that a segment got.
    pub fn last_number(&self) -> u64 {
        self.last_number.load(Relaxed)
    }

    /// Gives no number up to this one.
    pub fn go_on_after(&self, last_number: u64) {
        self.last_number.fetch_max(last_number, Relaxed);
    }

    /// Enters a segment that was there before.
    pub fn restore(&self, segment: LogSegment) -> Arc<LogSegment> {
        self.last_number.fetch_max(segment.number, Relaxed);
        let (segment, slot) = (Arc::new(segment), segment_slot(&self.slots, &self.free));
        slot(segment.slot).store(Some(segment.clone()));
        segment
    }

    /// Takes a slot for a new segment.
    fn take_slot(&self) -> u32 {
        let mut free = self.free.lock();
        free.pop().unwrap_or_else(|| {
            u32::try_from(self.slots.push(ArcSwapOption::empty())).expect("fewer segments than blocks")
        })
    }

    /// Forgets a segment; readers may still have it.
    pub fn forget(&self, segment: &LogSegment) {
        if let Some(slot) = self.slots.get(segment.slot as usize) {
            slot.store(None);
            self.free.lock().push(segment.slot);
        }
    }
}

/// Slots up to any number, of which those between are free.
fn segment_slot<'a>(
    slots: &'a boxcar::Vec<ArcSwapOption<LogSegment>>,
    free: &'a Mutex<Vec<u32>>,
) -> impl Fn(u32) -> &'a ArcSwapOption<LogSegment> {
    move |wanted| {
        let mut free = free.lock();
        while slots.count() <= wanted as usize {
            free.push(u32::try_from(slots.push(ArcSwapOption::empty())).expect("as many as wanted"));
        }
        free.retain(|slot| *slot != wanted);
        &slots[wanted as usize]
    }
}

impl LogSegment {
    /// Maps a segment.
    pub fn open(device: &dyn StoreDevice, slot: u32, number: u64, extent: SpaceExtent) -> io::Result<Self> {
        let length = usize::try_from(extent.length).expect("a segment is mapped");
        let map = device.map(extent.offset, length)?;
        let (live, is_retired) = (AtomicI64::new(0), AtomicBool::new(false));
        Ok(Self { slot, number, extent, map, live, is_retired })
    }

    fn length(&self) -> usize {
        usize::try_from(self.extent.length).expect("it is mapped")
    }

    /// The bytes of a value.
    pub fn value(&self, span: LogSpan) -> &[u8] {
        // SAFETY: a span is made after its value is stored, and nothing is stored there again while
        // the segment is known to anybody.
        unsafe { self.map.bytes(span.offset as usize, span.length as usize) }
    }

    /// The record at an offset, of a segment that is not written meanwhile.
    pub fn record(&self, offset: usize) -> Option<LogRecord<'_>> {
        let left = self.length().checked_sub(offset)?;
        // SAFETY: only recovery reads records, before anything is written.
        LogRecord::decode(unsafe { self.map.bytes(offset, left) }, self.number)
    }

    /// The number of bytes of values that are used here.
    pub fn live(&self) -> i64 {
        self.live.load(Acquire)
    }

    /// True if it is to be forgotten.
    pub fn is_retired(&self) -> bool {
        self.is_retired.load(Relaxed)
    }

    /// Has it forgotten when no reader looks for it any more.
    pub fn retire(self: &Arc<Self>, table: &Arc<SegmentTable>) {
        self.is_retired.store(true, Relaxed);
        let (segment, table) = (self.clone(), table.clone());
        let readers = crossbeam_epoch::pin();
        readers.defer(move || table.forget(&segment));
        readers.flush();
    }

    /// Counts bytes of a value that is used, or, if negative, not any more.
    pub fn add_live(&self, bytes: i64) {
        self.live.fetch_add(bytes, SeqCst);
    }

    /// Stores a record at an offset that nobody else writes or reads.
    fn store(&self, at: usize, record: &LogRecord<'_>) {
        let (key, header) = (at + RECORD_HEADER, record.header(self.number));
        // SAFETY: the tail gave this range to the caller alone.
        unsafe {
            self.map.store(key, record.key);
            self.map.store(key + record.key.len(), record.value);
            self.map.store(at, &header);
        }
    }

    /// The place of the value of a record at an offset.
    pub fn span(&self, at: usize, record: &LogRecord<'_>) -> LogSpan {
        let offset = u32::try_from(at + RECORD_HEADER + record.key.len()).expect("a segment is shorter than 4 GiB");
        LogSpan { slot: self.slot, offset, length: u32::try_from(record.value.len()).expect("a value is short") }
    }
}

impl LogShared {
    /// Takes space for a segment.
    fn new_segment(&self, bytes: u64) -> io::Result<Arc<LogSegment>> {
        let extent = self.space.lock().take(bytes);
        let opened = self.device.reserve(extent.offset, extent.length).and_then(|()| {
            let (slot, number) = (self.segments.take_slot(), self.segments.last_number.fetch_add(1, Relaxed) + 1);
            LogSegment::open(&*self.device, slot, number, extent)
        });
        match opened {
            Ok(segment) => Ok(self.segments.restore(segment)),
            Err(error) => {
                self.space.lock().give_back(extent);
                Err(error)
            }
        }
    }

    /// The segment to which a record leads, with this value; `None` if its space was lost before it
    /// was there.
    pub fn open_next(&self, value: &[u8]) -> io::Result<Option<Arc<LogSegment>>> {
        if value.len() != NEXT_VALUE {
            return Ok(None);
        }
        let extent = SpaceExtent { offset: u64_at(value, 0), length: u64_at(value, 8) };
        let (number, slot) = (u64_at(value, 16), u32_at(value, 24));
        let end = extent.offset.checked_add(extent.length);
        if end.is_none_or(|end| end > self.device.length().unwrap_or(0)) {
            return Ok(None);
        }
        Ok(Some(self.segments.restore(LogSegment::open(&*self.device, slot, number, extent)?)))
    }
}

impl RedoLog {
    /// A log without records.
    pub fn new(shared: &LogShared) -> io::Result<Self> {
        Ok(Self::at(shared.new_segment(BLOCK_BYTES)?, 0))
    }

    /// A log that goes on in a segment.
    pub fn at(segment: Arc<LogSegment>, used: usize) -> Self {
        Self(Mutex::new(LogTail { segment, used }))
    }

    /// Appends a change. Returns its sequence number, of which the sequencer must be told that it
    /// is done, and where its value is. A value that leaves do not have is used from now on.
    pub fn append(&self, shared: &LogShared, kind: RecordKind, key: &[u8], value: &[u8]) -> io::Result<(u64, LogSpan)> {
        let length = LogRecord::length(key.len(), value.len());
        let mut tail = self.0.lock();
        if tail.used + length + NEXT_LENGTH > tail.segment.length() {
            tail.go_on(shared, length)?;
        }
        let (segment, at, sequence) = (tail.segment.clone(), tail.used, shared.sequencer.next());
        tail.used += length;
        if kind == RecordKind::Put && !is_inline(value.len()) {
            // Before the log goes on elsewhere: a segment that nobody uses is given back then.
            segment.add_live(i64::try_from(value.len()).expect("a value is short"));
        }
        drop(tail);
        let record = LogRecord { sequence, kind, key, value };
        segment.store(at, &record);
        Ok((sequence, segment.span(at, &record)))
    }

    /// The end of the log.
    pub fn end(&self) -> LogPlace {
        let tail = self.0.lock();
        let offset = u32::try_from(tail.used).expect("a segment is shorter than 4 GiB");
        LogPlace { slot: tail.segment.slot, offset }
    }
}

impl LogTail {
    /// Goes on in another segment, which has room for a record of this length.
    fn go_on(&mut self, shared: &LogShared, length: usize) -> io::Result<()> {
        let doubled = (2 * self.segment.extent.length).min(SEGMENT_BYTES_MAX);
        let next = shared.new_segment(doubled.max((length + NEXT_LENGTH) as u64))?;
        let mut value = [0; NEXT_VALUE];
        value[..8].copy_from_slice(&next.extent.offset.to_le_bytes());
        value[8..16].copy_from_slice(&next.extent.length.to_le_bytes());
        value[16..24].copy_from_slice(&next.number.to_le_bytes());
        value[24..28].copy_from_slice(&next.slot.to_le_bytes());
        let record = LogRecord { sequence: 0, kind: RecordKind::Next, key: &[], value: &value };
        self.segment.store(self.used, &record);
        (self.segment, self.used) = (next, 0);
        Ok(())
    }
}

impl fmt::Debug for SegmentTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentTable").field("slots", &self.slots.count()).finish_non_exhaustive()
    }
}

impl fmt::Debug for LogSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, number, extent, .. } = self;
        f.debug_struct("LogSegment").field("slot", slot).field("number", number).field("extent", extent).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::simulated_device::SimulatedDevice;

    fn shared() -> LogShared {
        let device = Arc::new(SimulatedDevice::new(&[]));
        LogShared { device, space: Mutex::default(), sequencer: Sequencer::after(0), segments: Arc::default() }
    }

    #[test]
    fn the_segment_of_a_long_value_is_used_as_soon_as_the_value_is_logged() {
        let shared = shared();
        let log = RedoLog::new(&shared).unwrap();
        let (_, span) = log.append(&shared, RecordKind::Put, b"long", &[1; 300]).unwrap();
        let segment = shared.segments.get(span.slot).unwrap();
        assert_eq!((segment.live(), segment.value(span)), (300, &[1; 300][..]));
        log.append(&shared, RecordKind::Put, b"short", &[1; 20]).unwrap();
        log.append(&shared, RecordKind::Delete, b"long", &[]).unwrap();
        assert_eq!(segment.live(), 300);
    }

    #[test]
    fn a_log_leads_through_all_of_its_segments() {
        let shared = shared();
        let log = RedoLog::new(&shared).unwrap();
        let mut segment = shared.segments.get(log.end().slot).unwrap();
        let values: Vec<Vec<u8>> = (0..300_usize).map(|number| vec![7; number * 37 % 9000]).collect();
        for value in &values {
            log.append(&shared, RecordKind::Put, b"key", value).unwrap();
        }
        let (mut offset, mut found, mut segments) = (0, Vec::new(), 1);
        loop {
            let next = {
                let Some(record) = segment.record(offset) else { break };
                if record.kind != RecordKind::Next {
                    offset += LogRecord::length(record.key.len(), record.value.len());
                    found.push((record.sequence, record.value.to_vec()));
                    continue;
                }
                shared.open_next(record.value).unwrap().unwrap()
            };
            (segment, offset) = (next, 0);
            segments += 1;
        }
        assert!(found.into_iter().eq((1..).zip(values)));
        assert!(segments > 5, "{segments}");
    }
}
