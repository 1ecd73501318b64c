//! Thinning: a huge page in which little was written goes back, but for the small pages that were.
//!
//! A file that is written backwards gets huge pages before anybody can know that it will have holes. When nobody uses it any more
//! that is made good: in each huge page with something in it the small pages that hold zeros only become a hole, which reads the
//! same. A huge page of zeros alone stays: somebody wrote those.

use std::ops::Range;

use bytes::Bytes;
use store::{Extents, SeekTo, Slot};

use crate::PAGE_BYTES;
use crate::extents::Slots;

/// Of a huge page, on all machines that have them by 4 KiB pages.
const HUGE_BYTES: u64 = 2 << 20;
/// Less takes no page that is much too large.
pub const BYTES_MIN: u64 = HUGE_BYTES / 2;
/// So much at a time, since others wait: about 10 ms.
const PIECE_BYTES: u64 = 32 << 20;
/// So many pages at most are looked at to see whether it is worth the rest; one of each so many bytes in a smaller file.
const SAMPLES_MAX: u64 = 64;
const SAMPLE_BYTES: u64 = 256 << 10;
/// Far from any period of a file's own.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const PAGE: u64 = PAGE_BYTES as u64;

/// Whether about half of what the file holds is zeros, by a sample.
pub fn is_worth_it(slots: &Slots, slot: Slot, length: u64) -> bool {
    let (mut looked, mut empty) = (0, 0);
    let samples = (length / SAMPLE_BYTES).min(SAMPLES_MAX);
    for number in 0..samples {
        let mixed = (number + 1).wrapping_mul(MIX);
        let part = length / samples;
        let from = number * part + mixed % part.max(1);
        // Within the huge page of the next data, for a page of data has it at its start.
        let Ok(Some(data)) = slots.seek(slot, from / PAGE * PAGE, SeekTo::Data) else { continue };
        let page = data / HUGE_BYTES * HUGE_BYTES + (mixed >> 32) % (HUGE_BYTES / PAGE) * PAGE;
        let is_there = slots.seek(slot, page, SeekTo::Data).is_ok_and(|found| found == Some(page));
        if !is_there {
            continue;
        }
        looked += 1;
        empty += u32::from(is_zero(&read(slots, slot, page..(page + PAGE).min(length))));
    }
    empty * 2 >= looked && empty > 0
}

/// Thins a piece from the start of the range; where the next begins. None where the system refuses.
pub fn piece(slots: &Slots, slot: Slot, range: Range<u64>) -> Option<u64> {
    let end = range.end.min(range.start + PIECE_BYTES);
    let mut at = range.start;
    while at < end {
        // What is a hole costs nothing.
        let Some(data) = slots.seek(slot, at, SeekTo::Data).ok()? else { return Some(range.end) };
        at = data / HUGE_BYTES * HUGE_BYTES;
        if at >= end {
            break;
        }
        huge_page(slots, slot, at..(at + HUGE_BYTES).min(range.end))?;
        at += HUGE_BYTES;
    }
    Some(at.max(end))
}

fn huge_page(slots: &Slots, slot: Slot, range: Range<u64>) -> Option<()> {
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

/// What is there; nothing where the system refuses.
fn read(slots: &Slots, slot: Slot, range: Range<u64>) -> Bytes {
    let length = u32::try_from(range.end - range.start).expect("at most a huge page");
    slots.read_at(slot, range.start, length).unwrap_or_default()
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
