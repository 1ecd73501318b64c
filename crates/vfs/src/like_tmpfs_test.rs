//! Compares a file of the pool with a file of this machine's tmpfs, by thousands of random calls:
//! bytes, space of ranges, extended attributes. Over the model engine, the arena, and a connection
//! that loses and duplicates messages.

use crate::{Handle, Vfs, pool_test::*};
use bytes::Bytes;
use client::{
    Client, InProcessConnection, RetryPolicy,
    testing::{FaultRates, FaultyConnection},
};
use node::Node;
use placement::FileId;
use rustix::{
    fs::{FallocateFlags, SeekFrom, XattrFlags},
    io::Errno,
};
use std::{fs::File, os::unix::fs::FileExt, path::Path, time::Duration};
use test_support::Random;
use wire::{AllocateMode, Changes, OpenFlags, Outcome, Refusal, SeekTo, XattrMode};

/// Offsets around the limits of inline files, pages and stripes.
const OFFSETS: [u64; 12] = [0, 1, 100, 4095, 4096, 4097, 9000, 65_535, 65_536, 65_537, 140_000, 200_000];
/// Attribute names; the last two have unsupported namespaces.
const NAMES: [&str; 6] = ["user.a", "user.b", "user.long-name", "user.", "nothing.a", "plain"];
const VALUES: [usize; 5] = [0, 1, 100, 5000, 65_537];

/// A file of this machine: on tmpfs if there is one.
fn plain_file() -> File {
    let shared = Path::new("/dev/shm");
    let place = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    tempfile::tempfile_in(place).unwrap()
}

fn errno(refusal: &Refusal) -> Errno {
    match refusal {
        Refusal::NoAttribute(_) => Errno::NODATA,
        Refusal::Exists(_) => Errno::EXIST,
        Refusal::Unsupported { .. } => Errno::OPNOTSUPP,
        Refusal::AttributeTooLong { .. } => Errno::TOOBIG,
        Refusal::BeyondEnd(_) => Errno::NXIO,
        Refusal::Invalid { .. } => Errno::INVAL,
        other => panic!("unexpected: {other}"),
    }
}

/// Bytes that count up from a random one, without zeros.
fn pattern(random: &mut Random, length: usize) -> Vec<u8> {
    (1..=255).cycle().skip(random.below(255)).take(length).collect()
}

/// The two files that are compared.
struct Pair {
    plain: File,
    vfs: Vfs,
    file: FileId,
    handle: Handle,
    random: Random,
}

impl Pair {
    async fn new(vfs: Vfs, seed: u64) -> Self {
        let flags = OpenFlags { exclusive: true, use_extent: seed.is_multiple_of(2), ..OpenFlags::READ_WRITE };
        let (made, handle) = vfs.create(Vfs::root(), b"f", 0o644, OWNER, flags).await.unwrap();
        Self { plain: plain_file(), vfs, file: made.file, handle, random: Random::new(seed) }
    }

    fn agree<A: PartialEq + std::fmt::Debug>(plain: &Result<A, Errno>, real: Outcome<A>) {
        assert_eq!(*plain, real.map_err(|refusal| errno(&refusal)));
    }

    async fn step(&mut self) {
        match self.random.below(13) {
            0..=2 => self.write().await,
            3 => self.truncate().await,
            4 | 5 => self.allocate().await,
            6 => self.zero().await,
            7 => self.copy().await,
            8 => self.seek().await,
            9 => self.set_xattr().await,
            10 => self.look_at_xattrs().await,
            11 => self.open_again().await,
            _ => self.remove_xattr().await,
        }
    }

    /// Reopens the file, which may change where a small file's bytes are stored.
    async fn open_again(&mut self) {
        self.vfs.close(self.handle).await.unwrap();
        let flags = OpenFlags { use_extent: self.random.below(2) == 0, ..OpenFlags::READ_WRITE };
        self.handle = self.vfs.open(self.file, flags).await.unwrap();
    }

    async fn write(&mut self) {
        let offset = self.random.pick(&OFFSETS);
        let length = usize::try_from(self.random.pick(&OFFSETS)).unwrap();
        let data = pattern(&mut self.random, length);
        self.plain.write_all_at(&data, offset).unwrap();
        let written = self.vfs.write(self.handle, offset, Bytes::from(data)).await.unwrap();
        assert_eq!(written as usize, length);
    }

    async fn truncate(&mut self) {
        let size = self.random.pick(&OFFSETS);
        self.plain.set_len(size).unwrap();
        self.vfs.change(self.file, Changes { size: Some(size), ..Changes::default() }).await.unwrap();
    }

    async fn allocate(&mut self) {
        let (mode, flags) = self.random.pick(&[
            (AllocateMode::Extend, FallocateFlags::empty()),
            (AllocateMode::KeepSize, FallocateFlags::KEEP_SIZE),
            (AllocateMode::PunchHole, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
            (AllocateMode::PunchHole, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
        ]);
        let (offset, length) = (self.random.pick(&OFFSETS), self.random.pick(&OFFSETS));
        let plain = rustix::fs::fallocate(&self.plain, flags, offset, length);
        Self::agree(&plain, self.vfs.allocate(self.handle, offset, length, mode).await);
    }

    /// Zeroes a range, which tmpfs does not support; the plain file gets explicit zeros.
    async fn zero(&mut self) {
        let (offset, length) = (self.random.pick(&OFFSETS), self.random.pick(&OFFSETS[1..]));
        let size = self.plain.metadata().unwrap().len();
        self.plain.write_all_at(&vec![0; usize::try_from(length).unwrap()], offset).unwrap();
        let mode = self.random.pick(&[AllocateMode::ZeroRange, AllocateMode::ZeroRangeKeepSize]);
        if mode == AllocateMode::ZeroRangeKeepSize {
            self.plain.set_len(size).unwrap();
        }
        self.vfs.allocate(self.handle, offset, length, mode).await.unwrap();
    }

    async fn copy(&mut self) {
        let (from, to, length) = (self.random.pick(&OFFSETS), self.random.pick(&OFFSETS), self.random.pick(&OFFSETS));
        if from < to + length && to < from + length {
            return;
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        let read = self.plain.read_at(&mut bytes, from).unwrap();
        self.plain.write_all_at(&bytes[..read], to).unwrap();
        let copied = self.vfs.copy_range((self.handle, from), (self.handle, to), length).await.unwrap();
        assert_eq!(copied, read as u64);
    }

    /// Checks that each hole that the pool reports reads as zeros. The granularity of holes may
    /// differ.
    async fn seek(&mut self) {
        let offset = self.random.pick(&OFFSETS);
        let size = self.plain.metadata().unwrap().len();
        let (data, hole) = (
            self.vfs.seek(self.handle, offset, SeekTo::Data).await,
            self.vfs.seek(self.handle, offset, SeekTo::Hole).await,
        );
        if offset >= size {
            let plain = rustix::fs::seek(&self.plain, SeekFrom::Data(offset));
            Self::agree(&plain, data);
            return;
        }
        let (data, hole) = (data.unwrap_or(size), hole.unwrap());
        assert!(data == offset || hole == offset, "an offset is in data or in a hole: {data} {hole}");
        assert!(hole <= size && data <= size);
        let zeros = vec![0; usize::try_from(data - offset).unwrap()];
        let mut held = zeros.clone();
        self.plain.read_exact_at(&mut held, offset).unwrap();
        assert!(held == zeros, "what is told to be a hole from {offset} to {data} has bytes");
    }

    async fn set_xattr(&mut self) {
        let (name, length) = (self.random.pick(&NAMES), self.random.pick(&VALUES));
        let value = pattern(&mut self.random, length);
        let (mode, flags) = self.random.pick(&[
            (XattrMode::Set, XattrFlags::empty()),
            (XattrMode::Create, XattrFlags::CREATE),
            (XattrMode::Replace, XattrFlags::REPLACE),
        ]);
        let plain = rustix::fs::fsetxattr(&self.plain, name, &value, flags);
        let value = Bytes::from(value);
        let real = self.vfs.set_xattr(self.file, name.as_bytes(), value, mode, false).await;
        let real = real.map_err(|refusal| errno(&refusal));
        assert_eq!(plain, real, "{name} {length} {mode:?}");
    }

    async fn look_at_xattrs(&mut self) {
        let mut list = vec![0; 1 << 16];
        let length = rustix::fs::flistxattr(&self.plain, &mut *list).unwrap();
        let mut plain: Vec<&[u8]> = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        plain.retain(|name| name.starts_with(b"user."));
        plain.sort_unstable();
        let real = self.vfs.xattrs(self.file).await.unwrap();
        assert_eq!(plain, real.iter().map(|name| &name[..]).collect::<Vec<_>>());
        let name = self.random.pick(&NAMES[..3]);
        let mut value = vec![0; 1 << 16];
        let plain = rustix::fs::fgetxattr(&self.plain, name, &mut *value).map(|length| value[..length].to_vec());
        Self::agree(&plain, self.vfs.xattr(self.file, name.as_bytes()).await.map(|value| value.to_vec()));
    }

    async fn remove_xattr(&mut self) {
        let name = self.random.pick(&NAMES[..3]);
        let plain = rustix::fs::fremovexattr(&self.plain, name);
        Self::agree(&plain, self.vfs.remove_xattr(self.file, name.as_bytes()).await);
    }

    async fn compare(&mut self) {
        let found = self.vfs.stat(self.file).await.unwrap();
        assert_eq!(found.size, self.plain.metadata().unwrap().len());
        let mut expected = vec![0; usize::try_from(found.size).unwrap()];
        self.plain.read_exact_at(&mut expected, 0).unwrap();
        let real = self.vfs.read(self.handle, 0, u32::MAX).await.unwrap();
        if real != expected {
            let differs = real.iter().zip(&expected).position(|(real, expected)| real != expected);
            panic!("{} of {} bytes, the first that differs is {differs:?}", real.len(), expected.len());
        }
    }
}

/// Runs the comparison. Takes usage from `node`, since `vfs.usage` may be outdated over a bad
/// connection.
async fn compare(node: &Node, vfs: Vfs, seed: u64, steps: usize) {
    let before = node.usage();
    let mut pair = Pair::new(vfs, seed).await;
    for _ in 0..steps {
        pair.step().await;
        pair.compare().await;
    }
    let Pair { vfs, file, handle, .. } = pair;
    vfs.allocate(handle, 0, 1 << 40, AllocateMode::PunchHole).await.unwrap();
    assert_eq!(vfs.stat(file).await.unwrap().allocated, 0, "all of it was punched");
    vfs.unlink(Vfs::root(), b"f").await.unwrap();
    vfs.close(handle).await.unwrap();
    let after = node.usage();
    assert_eq!(
        (after.used, after.files, after.stripes),
        (before.used, before.files, before.stripes),
        "nothing is left"
    );
}

#[tokio::test]
async fn a_file_of_the_pool_does_what_one_of_tmpfs_does() {
    for seed in 0..6 {
        let node = node(64 << 20, Duration::ZERO);
        compare(&node, Vfs::new(Client::embedded(node.clone())), seed, 300).await;
    }
}

#[tokio::test]
async fn it_does_the_same_wherever_its_bytes_are_to_lie() {
    for (seed, policy) in (200..).zip(["striped", "single", "here", "at(1)", "balanced"]) {
        let node = if seed % 2 == 0 { node(64 << 20, Duration::ZERO) } else { arena_node(64 << 20, Duration::ZERO) };
        let vfs = Vfs::new(Client::embedded(node.clone()));
        vfs.set_xattr(Vfs::root(), wire::PLACEMENT, policy.into(), XattrMode::Set, false).await.unwrap();
        compare(&node, vfs, seed, 300).await;
    }
}

#[tokio::test]
async fn it_does_the_same_over_the_arena() {
    for seed in 100..104 {
        let node = arena_node(64 << 20, Duration::ZERO);
        compare(&node, Vfs::new(Client::embedded(node.clone())), seed, 300).await;
    }
}

#[tokio::test]
async fn it_does_the_same_when_messages_are_lost_and_doubled() {
    let retry_policy = RetryPolicy { tries: 60, pause_first: Duration::ZERO, pause_max: Duration::ZERO };
    for seed in 200..203 {
        let node = node(64 << 20, Duration::ZERO);
        let lossy = FaultyConnection::new(InProcessConnection(node.clone()), FaultRates::MANY, seed);
        compare(&node, over(lossy, retry_policy).await, seed, 200).await;
    }
}

#[tokio::test]
async fn space_that_was_taken_beforehand_takes_writes_in_a_full_pool() {
    let vfs = Vfs::new(Client::embedded(node(2 << 20, Duration::ZERO)));
    let (made, handle) = vfs.create(Vfs::root(), b"f", 0o644, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    vfs.allocate(handle, 0, 500_000, AllocateMode::KeepSize).await.unwrap();
    let found = vfs.stat(made.file).await.unwrap();
    assert_eq!((found.size, found.allocated), (0, 503_808), "whole pages, behind the end of the file");
    let filler = vfs.create(Vfs::root(), b"filler", 0o644, OWNER, OpenFlags::WRITE).await.unwrap().1;
    let mut length = 60_000;
    let mut end = 0;
    while length > 0 {
        match vfs.write(filler, end, Bytes::from(vec![7; length])).await {
            Ok(written) => end += u64::from(written),
            Err(_) => length /= 2,
        }
    }
    for piece in 0..10 {
        let data = Bytes::from(vec![u8::try_from(piece).unwrap() + 1; 50_000]);
        assert_eq!(vfs.write(handle, piece * 50_000, data).await, Ok(50_000));
    }
    assert_eq!(vfs.stat(made.file).await.unwrap().size, 500_000);
    let beyond = vfs.allocate(handle, 500_000, 1_000_000, AllocateMode::Extend).await;
    assert!(matches!(beyond, Err(Refusal::NoSpace(_))), "{beyond:?}");
    assert_eq!(vfs.stat(made.file).await.unwrap().size, 500_000);
    let never = vfs.allocate(handle, 0, 1 << 40, AllocateMode::Extend).await;
    assert!(matches!(never, Err(Refusal::NoSpace(_))), "{never:?}");
    vfs.allocate(handle, 0, 400_000, AllocateMode::PunchHole).await.unwrap();
    vfs.write(filler, end, Bytes::from(vec![7; 300_000])).await.unwrap();
}

#[tokio::test]
async fn blocks_and_holes_are_told_as_they_are_after_punching_and_truncating() {
    let vfs = pool();
    let (made, handle) = vfs.create(Vfs::root(), b"f", 0o644, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    let stripe = u64::from(STRIPE);
    let allocated = async || vfs.stat(made.file).await.unwrap().allocated;
    vfs.write(handle, 0, Bytes::from(vec![1; 10 * STRIPE as usize])).await.unwrap();
    assert_eq!(allocated().await, 10 * stripe);
    for hole in [2, 5, 8] {
        vfs.allocate(handle, hole * stripe - 100, stripe + 200, AllocateMode::PunchHole).await.unwrap();
    }
    assert_eq!(allocated().await, 7 * stripe);
    let seek = |offset, to| vfs.seek(handle, offset, to);
    assert_eq!(seek(0, SeekTo::Hole).await, Ok(2 * stripe));
    assert_eq!(seek(2 * stripe + 5, SeekTo::Data).await, Ok(3 * stripe));
    vfs.write(handle, 5 * stripe, Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(allocated().await, 8 * stripe, "written again");
    vfs.change(made.file, Changes { size: Some(0), ..Changes::default() }).await.unwrap();
    vfs.change(made.file, Changes { size: Some(1 << 40), ..Changes::default() }).await.unwrap();
    assert_eq!(allocated().await, 0, "cut, and extended by a hole");
    assert!(matches!(seek(0, SeekTo::Data).await, Err(Refusal::BeyondEnd(_))));
    assert_eq!(seek(7, SeekTo::Hole).await, Ok(7));
    assert!(matches!(seek(1 << 40, SeekTo::Hole).await, Err(Refusal::BeyondEnd(_))));
}
