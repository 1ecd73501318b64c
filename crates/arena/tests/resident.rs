//! Memory use of the arena as the system counts it. In a binary of its own, because the numbers are
//! those of the whole process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use arena::{Arena, ArenaOptions};
use placement::{FileId, PartitionId, StripeNo};
use store::{Generation, StripeKey, StripeStore};

const MIB: u64 = 1 << 20;
/// Memory beside the arena's capacity: a huge page at each end (4 MiB), the index of the test's
/// stripes (4 MiB), and huge pages that the kernel cannot split at once when a part of them is
/// given back (on a busy machine up to 2 MiB were seen).
const SLACK: u64 = 12 * MIB;

/// Anonymous memory of the process, that is, all but the arena's files.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn fill(arena: &Arena, numbers: impl Iterator<Item = u64>, len: usize) {
    for number in numbers {
        arena.write(key(number), Generation(0), 0, &vec![1; len]).unwrap();
    }
}

fn key(number: u64) -> StripeKey {
    StripeKey { partition: PartitionId(0), file: FileId(number), stripe: StripeNo(0) }
}

#[test]
fn the_process_stays_within_the_capacity_through_filling_scattering_and_filling_again() {
    let before = anonymous();
    let arena = Arena::new(ArenaOptions::with_capacity(64 * MIB)).unwrap();
    assert!(anonymous() + arena.resident().unwrap() < before + SLACK, "an empty arena takes nothing");
    let pages = 64 * MIB / 4096;
    for round in 0..5 {
        let first = round * 10 * pages;
        fill(&arena, first..first + pages, 4096);
        (first..first + pages).filter(|number| number % 16 != 0).for_each(|number| arena.remove(key(number)).unwrap());
        fill(&arena, first + pages..first + pages + 60, 1 << 20);
        assert_eq!(arena.usage().free(), 0);
        let taken = (anonymous() + arena.resident().unwrap()).saturating_sub(before);
        assert!((60 * MIB..64 * MIB + SLACK).contains(&taken), "round {round}: {} MiB", taken / MIB);
        (first..first + pages + 60).for_each(|number| arena.remove(key(number)).unwrap());
    }
    assert_eq!(arena.usage().used, 0);
}
