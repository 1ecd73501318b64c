//! Thinning: punches the unwritten small pages out of huge pages with little data.
//!
//! A file that is written backwards gets huge pages before it is known to be sparse. When it is
//! idle, thinning turns the small pages that hold only zeros into holes, which read the same. A
//! huge page of only zeros stays, because somebody wrote it.

use std::ops::Range;

use bytes::Bytes;
use store::{Extents, SeekTarget, Slot};

use crate::PAGE_BYTES;
use crate::extents::Slots;

/// Size of a huge page on all machines with 4 KiB pages.
const HUGE_BYTES: u64 = 2 << 20;
/// Minimum length of a file to be thinned; a shorter file gets no page that is much too large.
pub const BYTES_MIN: u64 = HUGE_BYTES / 2;
/// Bytes thinned at a time, because others wait: about 10 ms.
const PIECE_BYTES: u64 = 32 << 20;
/// Maximum number of pages sampled to decide if thinning is worthwhile. A smaller file is sampled
/// once per `SAMPLE_BYTES`.
const SAMPLES_MAX: u64 = 64;
const SAMPLE_BYTES: u64 = 256 << 10;
/// Odd multiplier that mixes sample positions, unrelated to any period of the data.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const PAGE: u64 = PAGE_BYTES as u64;

/// Returns true if about half of the file's data is zeros, judged by a sample.
pub fn is_worthwhile(slots: &Slots, slot: Slot, length: u64) -> bool {
    let (mut sampled, mut empty) = (0, 0);
    let samples = (length / SAMPLE_BYTES).min(SAMPLES_MAX);
    for number in 0..samples {
        let mixed = (number + 1).wrapping_mul(MIX);
        let part = length / samples;
        let from = number * part + mixed % part.max(1);
        // Sample a random page in the huge page of the next data: data tends to be at its start.
        let Ok(Some(data)) = slots.seek(slot, from / PAGE * PAGE, SeekTarget::Data) else { continue };
        let page = data / HUGE_BYTES * HUGE_BYTES + (mixed >> 32) % (HUGE_BYTES / PAGE) * PAGE;
        let is_allocated = slots.seek(slot, page, SeekTarget::Data).is_ok_and(|found| found == Some(page));
        if !is_allocated {
            continue;
        }
        sampled += 1;
        empty += u32::from(is_zero(&read(slots, slot, page..(page + PAGE).min(length))));
    }
    empty * 2 >= sampled && empty > 0
}

/// Thins a piece at the start of the range. Returns the start of the next piece; `None` if the
/// system refuses a call.
pub fn thin_piece(slots: &Slots, slot: Slot, range: Range<u64>) -> Option<u64> {
    let end = range.end.min(range.start + PIECE_BYTES);
    let mut at = range.start;
    while at < end {
        // Holes are skipped without being read.
        let Some(data) = slots.seek(slot, at, SeekTarget::Data).ok()? else { return Some(range.end) };
        at = data / HUGE_BYTES * HUGE_BYTES;
        if at >= end {
            break;
        }
        thin_huge_page(slots, slot, at..(at + HUGE_BYTES).min(range.end))?;
        at += HUGE_BYTES;
    }
    Some(at.max(end))
}

fn thin_huge_page(slots: &Slots, slot: Slot, range: Range<u64>) -> Option<()> {
    let bytes = read(slots, slot, range.clone());
    if is_zero(&bytes) {
        return Some(());
    }
    let mut hole = 0;
    let mut at = range.start;
    for page in bytes.chunks(PAGE_BYTES as usize).chain([&[1_u8][..]]) {
        if is_zero(page) {
            hole += PAGE;
        } else if hole > 0 {
            slots.punch(slot, &(at - hole..at)).ok()?;
            hole = 0;
        }
        at += PAGE;
    }
    Some(())
}

/// Reads a range; empty if the system refuses.
fn read(slots: &Slots, slot: Slot, range: Range<u64>) -> Bytes {
    let length = u32::try_from(range.end - range.start).expect("at most a huge page");
    slots.read_at(slot, range.start, length).unwrap_or_default()
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
