//! The capacity holds for every writer: stripes and reservations through the arena, extent files
//! past it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use arena::{Arena, ArenaOptions};
use placement::{FileId, PartitionId, StripeNo};
use rustix::io::{Errno, pwrite};
use std::{os::unix::process::CommandExt, process::Command, sync::Arc};
use store::{Engine, EngineError, Extents, Generation, PageChecks, Slot, StripeKey, StripeStore};
use test_support::{Random, until};

const CAPACITY: u64 = 4 << 20;
const STRIPE_BYTES: u32 = 64 << 10;

/// An arena and its contents.
struct Fixture {
    arena: Arena,
    extents: Arc<dyn Extents>,
    slots: Vec<Slot>,
    stripes: u64,
    reserved: Vec<u64>,
}

fn key(number: u64) -> StripeKey {
    StripeKey { partition: PartitionId(0), file: FileId(number), stripe: StripeNo(0) }
}

/// Returns false if the arena was full; panics on any other error.
fn may_be_full<T>(done: Result<T, EngineError>) -> bool {
    match done {
        Ok(_) => true,
        Err(EngineError::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

impl Fixture {
    /// Returns `None` if this process may have no extent files.
    fn new() -> Option<Self> {
        let arena =
            Arena::new(ArenaOptions { stripe_bytes: STRIPE_BYTES, ..ArenaOptions::with_capacity(CAPACITY) }).unwrap();
        let extents = arena.extents()?;
        Some(Self { arena, extents, slots: Vec::new(), stripes: 0, reserved: Vec::new() })
    }

    /// Bytes of memory of blocks and extent files, including free blocks kept for reuse.
    fn memory(&self) -> u64 {
        let allocated = |slot: &Slot| self.extents.state(*slot).unwrap().allocated;
        self.arena.touched() + self.slots.iter().map(allocated).sum::<u64>()
    }

    fn step(&mut self, random: &mut Random) {
        let data = vec![7; 1 + random.below(STRIPE_BYTES as usize)];
        match random.below(8) {
            0 => self.slots.extend(self.extents.allocate_slot()),
            1 if !self.slots.is_empty() => {
                self.extents.free_slot(self.slots.swap_remove(random.below(self.slots.len())));
            }
            2 | 3 if !self.slots.is_empty() => {
                let slot = random.pick(&self.slots);
                let fd = self.extents.fd(slot).unwrap();
                // A write past the node is refused at once when the quota is used up.
                let put = pwrite(fd, &data, random.below(1 << 20));
                assert!(matches!(put, Ok(_) | Err(Errno::NOSPC)), "{put:?}");
            }
            4 if !self.slots.is_empty() => {
                let slot = random.pick(&self.slots);
                if random.below(3) == 0 {
                    self.extents.truncate(slot, random.below(1 << 20)).unwrap();
                } else {
                    may_be_full(self.extents.write_at(slot, random.below(1 << 20), &data));
                }
            }
            5 => {
                self.stripes += u64::from(may_be_full(self.arena.write(key(self.stripes), Generation(0), 0, &data)));
            }
            6 if self.stripes > 0 && random.below(2) == 0 => {
                self.stripes -= 1;
                self.arena.remove(key(self.stripes)).unwrap();
            }
            _ => self.reserve_or_release(random),
        }
    }

    fn reserve_or_release(&mut self, random: &mut Random) {
        let bytes = 1 + random.below(200_000);
        if random.below(2) == 0 && may_be_full(self.arena.reserve(bytes)) {
            self.reserved.push(bytes);
        } else if let Some(bytes) = self.reserved.pop() {
            self.arena.release(bytes);
        }
    }
}

#[test]
fn the_capacity_holds_whoever_writes_and_all_of_it_comes_back() {
    for seed in 0..20 {
        let Some(mut full) = Fixture::new() else { return };
        let mut random = Random::new(seed);
        let mut most = 0;
        for step in 0..1500 {
            full.step(&mut random);
            let (usage, memory) = (full.arena.usage(), full.memory());
            assert!(usage.used <= CAPACITY, "seed {seed}, step {step}: {usage:?}");
            assert!(memory + usage.reserved <= CAPACITY, "seed {seed}, step {step}: {memory} and {usage:?}");
            most = most.max(usage.used);
        }
        assert!(most > CAPACITY / 10 * 9, "seed {seed}: it was never full, {most}");
        full.slots.drain(..).for_each(|slot| full.extents.free_slot(slot));
        (0..full.stripes).for_each(|number| full.arena.remove(key(number)).unwrap());
        full.reserved.drain(..).for_each(|bytes| full.arena.release(bytes));
        assert_eq!(full.arena.usage().used, 0);
    }
}

#[test]
fn it_holds_as_well_for_a_user_without_rights() {
    if !rustix::process::geteuid().is_root() {
        return; // the other tests already ran as such a user
    }
    let (_crate, these) = module_path!().split_once("::").unwrap();
    let mut tests = Command::new("/proc/self/exe");
    tests.args([these, "--skip", "it_holds_as_well"]).uid(65_534).gid(65_534).current_dir("/");
    let done = tests.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn extents_that_are_written_past_the_arena_are_checked_and_the_checks_are_counted() {
    let Some(Fixture { extents, .. }) = Fixture::new() else { return };
    let slot = extents.allocate_slot().unwrap();
    assert_eq!(extents.page_checks(), PageChecks::default());
    extents.begin_direct_writes(slot);
    until("it was checked", || extents.page_checks().checked > 0);
    let PageChecks { running, rounds, watched, .. } = extents.page_checks();
    assert!(running && rounds > 0 && watched == 1);
    extents.end_direct_writes(slot);
    until("nobody watches", || !extents.page_checks().running);
    assert_eq!(extents.page_checks().watched, 0);
}

#[test]
fn what_extent_files_do_not_use_is_free_for_others_at_once() {
    let Some(full) = Fixture::new() else { return };
    let slot = full.extents.allocate_slot().unwrap();
    pwrite(full.extents.fd(slot).unwrap(), &vec![7; 100_000], 0).unwrap();
    full.arena.reserve(CAPACITY - 25 * 4096).unwrap();
    assert_eq!(pwrite(full.extents.fd(slot).unwrap(), &[7; 4096], 1 << 20), Err(Errno::NOSPC));
    full.extents.truncate(slot, 0).unwrap();
    full.arena.reserve(24 * 4096).unwrap();
    assert!(matches!(full.arena.reserve(4097), Err(EngineError::Full { .. })));
}
