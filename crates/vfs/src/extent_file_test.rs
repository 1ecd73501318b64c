//! Extent files: writes by a kernel past the pool are visible, files in use by a kernel are kept,
//! and small ones are demoted to inline.

use crate::{BackingFd, Handle, Vfs, pool_test::*};
use bytes::Bytes;
use client::Client;
use memmap2::MmapOptions;
use node::Node;
use std::{
    fs::File,
    io::Write,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
    sync::Arc,
    thread,
    time::Duration,
};
use test_support::until_polled;
use wire::{AllocateMode, Attributes, Changes, OpenFlags, Refusal, SeekTo, TimeChange, Timestamp};

const WHOLE: OpenFlags = OpenFlags { use_extent: true, ..OpenFlags::READ_WRITE };
const APPEND: i32 = 0o2000;

/// A pool with extent files; `None` if this process may not have them.
fn pool_with(memory: u64, space_wait: Duration) -> Option<(Arc<Node>, Vfs)> {
    let node = arena_node(memory, space_wait);
    let vfs = Vfs::new(Client::embedded(node.clone()));
    node.supports_extent_files().then_some((node, vfs))
}

fn whole_pool() -> Option<Vfs> {
    pool_with(64 << 20, Duration::ZERO).map(|(_, vfs)| vfs)
}

async fn made(vfs: &Vfs, name: &str) -> (Attributes, Handle, BackingFd) {
    let (made, handle) = vfs.create(Vfs::root(), name.as_bytes(), 0o600, OWNER, WHOLE).await.unwrap();
    let backing = vfs.backing(handle).expect("a new file is whole");
    (made, handle, backing)
}

/// Opens the file behind a backing once more, as a kernel does for a mount.
fn kernel_opens(backing: &BackingFd, flags: i32) -> File {
    let path = format!("/proc/self/fd/{}", backing.as_fd().as_raw_fd());
    File::options().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

#[tokio::test]
async fn what_is_written_past_us_is_read_and_told() {
    let Some(vfs) = whole_pool() else { return };
    let (made, handle, backing) = made(&vfs, "f").await;
    let kernel = kernel_opens(&backing, 0);
    kernel.write_all_at(&vec![7; 100_000], 5).unwrap();
    let told = vfs.stat(made.file).await.unwrap();
    assert_eq!(told.size, 100_005);
    assert!(told.allocated >= 100_005 && told.modified >= made.modified && !told.cacheable);
    assert_eq!(vfs.lookup(Vfs::root(), b"f").await.unwrap().size, 100_005);
    assert!(vfs.usage().used > 100_005, "it counts");
    let read = vfs.read(handle, 0, 1 << 20).await.unwrap();
    assert!(read.len() == 100_005 && read[..5] == [0; 5] && read[5..].iter().all(|byte| *byte == 7));
    vfs.write(handle, 2, Bytes::from_static(b"tide")).await.unwrap();
    let mut seen = [0; 4];
    kernel.read_exact_at(&mut seen, 2).unwrap();
    assert_eq!(&seen, b"tide", "and what we write is seen there");
    vfs.change(made.file, Changes { size: Some(3), ..Changes::default() }).await.unwrap();
    assert_eq!(kernel.metadata().unwrap().len(), 3);
}

#[tokio::test]
async fn a_small_file_comes_home_after_its_last_close_with_bytes_and_times() {
    let Some(vfs) = whole_pool() else { return };
    let (made, handle, backing) = made(&vfs, "f").await;
    kernel_opens(&backing, 0).write_all_at(b"hello", 0).unwrap();
    drop(backing);
    let before = vfs.stat(made.file).await.unwrap();
    let second = vfs.open(made.file, OpenFlags::READ).await.unwrap();
    vfs.close(handle).await.unwrap();
    assert!(vfs.stat(made.file).await.unwrap().extent.is_some(), "it is still open");
    vfs.close(second).await.unwrap();
    let after = vfs.stat(made.file).await.unwrap();
    assert_eq!((after.extent, after.size), (None, 5));
    let times = |of: &Attributes| (of.modified, of.changed, of.created);
    assert_eq!(times(&after), times(&before));
    assert_eq!(vfs.read_file(b"f").await.unwrap(), b"hello");
    assert!(vfs.usage().used < 2048, "its page is free");
}

#[tokio::test]
async fn a_small_file_becomes_whole_when_its_first_opener_may_write_and_keeps_its_bytes() {
    let Some(vfs) = whole_pool() else { return };
    let file = vfs.write_file(b"f", b"hello").await.unwrap().file;
    vfs.change(file, Changes { size: Some(3000), ..Changes::default() }).await.unwrap();
    let reader = vfs.open(file, OpenFlags { use_extent: true, ..OpenFlags::READ }).await.unwrap();
    let second = vfs.open(file, WHOLE).await.unwrap();
    assert!(vfs.backing(reader).is_none() && vfs.backing(second).is_none(), "who has it open keeps what he has");
    vfs.close(reader).await.unwrap();
    vfs.close(second).await.unwrap();
    let handle = vfs.open(file, WHOLE).await.unwrap();
    let mut expected = b"hello".to_vec();
    expected.resize(3000, 0);
    let mut seen = vec![1; 4000];
    let backing = vfs.backing(handle).unwrap();
    assert_eq!(kernel_opens(&backing, 0).read_at(&mut seen, 0).unwrap(), 3000);
    assert_eq!(seen[..3000], expected);
    assert_eq!(vfs.read_file(b"f").await.unwrap(), expected);
    vfs.close(handle).await.unwrap();
    let empty = vfs.open(file, OpenFlags { truncate: true, ..WHOLE }).await.unwrap();
    assert_eq!(kernel_opens(&vfs.backing(empty).unwrap(), 0).metadata().unwrap().len(), 0);
}

#[tokio::test]
async fn a_mapping_outlives_close_and_unlink_and_nobody_is_given_its_memory() {
    let Some((node, vfs)) = pool_with(64 << 20, Duration::ZERO) else { return };
    let before = vfs.usage().used;
    let (_, handle, backing) = made(&vfs, "f").await;
    let slot = backing.id();
    let kernel = kernel_opens(&backing, 0);
    kernel.set_len(8192).unwrap();
    // A raw mapping stands for a program's memory: no references to its bytes are formed in this
    // process.
    let map = MmapOptions::new().len(8192).map_raw(&kernel).unwrap();
    drop((kernel, backing));
    vfs.close(handle).await.unwrap();
    vfs.unlink(Vfs::root(), b"f").await.unwrap();
    for number in 0..20 {
        let (_, handle, other) = made(&vfs, &format!("g{number}")).await;
        assert_ne!(other.id(), slot, "it is still mapped");
        kernel_opens(&other, 0).write_all_at(&[9; 5000], 0).unwrap();
        vfs.close(handle).await.unwrap();
    }
    let mapped = kernel_of(&map);
    mapped.write_all_at(b"written after the end", 4096).unwrap();
    let mut seen = [0; 21];
    mapped.read_exact_at(&mut seen, 4096).unwrap();
    assert_eq!(&seen, b"written after the end");
    assert!(vfs.usage().used >= before + 4096, "what is mapped counts");
    drop((mapped, map));
    vfs.remove_tree(b"g0").await.unwrap();
    for number in 1..20 {
        vfs.unlink(Vfs::root(), format!("g{number}").as_bytes()).await.unwrap();
    }
    assert_eq!(vfs.usage().used, before, "and is free when it is not");
    drop(node);
}

/// The process's own memory as a file, by which a raw mapping is written without references to it.
struct MappedMemory {
    file: File,
    start: u64,
}

fn kernel_of(map: &memmap2::MmapRaw) -> MappedMemory {
    let file = File::options().read(true).write(true).open("/proc/self/mem").unwrap();
    MappedMemory { file, start: map.as_ptr() as u64 }
}

impl MappedMemory {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        self.file.write_all_at(bytes, self.start + at)
    }

    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> std::io::Result<()> {
        self.file.read_exact_at(bytes, self.start + at)
    }
}

#[tokio::test]
async fn a_small_file_that_is_mapped_is_not_folded_until_it_is_quiet() {
    let Some(vfs) = whole_pool() else { return };
    let (made, handle, backing) = made(&vfs, "f").await;
    let kernel = kernel_opens(&backing, 0);
    kernel.write_all_at(b"old", 0).unwrap();
    let map = MmapOptions::new().len(3).map_raw(&kernel).unwrap();
    drop((kernel, backing));
    vfs.close(handle).await.unwrap();
    assert!(vfs.stat(made.file).await.unwrap().extent.is_some(), "it is mapped");
    kernel_of(&map).write_all_at(b"new", 0).unwrap();
    assert_eq!(vfs.read_file(b"f").await.unwrap(), b"new");
    drop(map);
    let again = vfs.open(made.file, OpenFlags::READ).await.unwrap();
    vfs.close(again).await.unwrap();
    let after = vfs.stat(made.file).await.unwrap();
    assert_eq!((after.extent, vfs.read_file(b"f").await.unwrap()), (None, b"new".to_vec()));
}

#[tokio::test]
async fn a_backing_that_is_kept_keeps_its_extent_from_others() {
    let Some(vfs) = whole_pool() else { return };
    let (_, handle, backing) = made(&vfs, "f").await;
    kernel_opens(&backing, 0).write_all_at(b"kept", 0).unwrap();
    vfs.close(handle).await.unwrap();
    vfs.unlink(Vfs::root(), b"f").await.unwrap();
    let (_, _, other) = made(&vfs, "g").await;
    assert_ne!(backing.id(), other.id());
    assert_eq!(kernel_opens(&backing, 0).metadata().unwrap().len(), 4);
    let slot = backing.id();
    drop(backing);
    assert_eq!(made(&vfs, "h").await.2.id(), slot, "then it is the next one's");
}

#[tokio::test]
async fn appends_by_us_and_past_us_all_stand_whole() {
    let Some(vfs) = whole_pool() else { return };
    let (made, _, backing) = made(&vfs, "f").await;
    let mut kernel = kernel_opens(&backing, APPEND);
    let ours = vfs.open(made.file, OpenFlags::APPEND).await.unwrap();
    let writer = thread::spawn(move || (0..300).for_each(|_| kernel.write_all(&[b'k'; 777]).unwrap()));
    for number in 0..300_usize {
        // Small appends are sent within the command, large ones separately.
        let length = [777, 7770][number % 2];
        assert_eq!(vfs.write(ours, 0, Bytes::from(vec![b'o'; length])).await.unwrap() as usize, length);
    }
    writer.join().unwrap();
    let all = vfs.read_file(b"f").await.unwrap();
    assert_eq!(all.len(), 300 * 777 + 150 * (777 + 7770));
    let mut rest = &all[..];
    while !rest.is_empty() {
        let run = rest.iter().take_while(|byte| **byte == rest[0]).count();
        assert_eq!(run % 777, 0, "an append was torn");
        rest = &rest[run..];
    }
}

#[tokio::test]
async fn times_that_were_set_stay_until_the_bytes_change() {
    let Some(vfs) = whole_pool() else { return };
    let (made, handle, backing) = made(&vfs, "f").await;
    let at = |secs| TimeChange::At(Timestamp { secs, nanos: 5 });
    let set = |secs| Changes { accessed: Some(at(secs)), modified: Some(at(secs)), ..Changes::default() };
    for secs in [1000, 1 << 33, -7] {
        let told = vfs.change(made.file, set(secs)).await.unwrap();
        assert_eq!((told.modified, told.accessed), (Timestamp { secs, nanos: 5 }, Timestamp { secs, nanos: 5 }));
        assert_eq!(vfs.stat(made.file).await.unwrap().modified.secs, secs);
    }
    kernel_opens(&backing, 0).write_all_at(b"x", 0).unwrap();
    assert!(vfs.stat(made.file).await.unwrap().modified >= made.modified);
    vfs.change(made.file, set(1000)).await.unwrap();
    drop(backing);
    vfs.close(handle).await.unwrap();
    let folded = vfs.stat(made.file).await.unwrap();
    assert_eq!((folded.extent, folded.modified.secs), (None, 1000));
}

#[tokio::test]
async fn a_crowded_pool_lets_nobody_write_past_it_and_its_writers_wait_for_space() {
    let Some((_, vfs)) = pool_with(4 << 20, Duration::from_secs(20)) else { return };
    let (large, _, backing) = made(&vfs, "large").await;
    kernel_opens(&backing, 0).write_all_at(&vec![1; 3 << 20], 0).unwrap();
    let (_, handle) = vfs.create(Vfs::root(), b"late", 0o600, OWNER, WHOLE).await.unwrap();
    assert!(vfs.backing(handle).is_none(), "less than half is free");
    let writes = vfs.open(large.file, WHOLE).await.unwrap();
    assert!(vfs.backing(writes).is_none());
    let reads = vfs.open(large.file, OpenFlags::READ).await.unwrap();
    assert!(vfs.backing(reads).is_some(), "reading takes no space");
    let filled = vfs.write(handle, 0, Bytes::from(vec![2; 900 << 10])).await.unwrap();
    let waits = tokio::spawn(vfs.write(handle, u64::from(filled), Bytes::from(vec![2; 600 << 10])));
    until_polled("the writer waits", || vfs.usage().waiting > 0).await;
    vfs.change(large.file, Changes { size: Some(1 << 20), ..Changes::default() }).await.unwrap();
    assert_eq!(waits.await.unwrap(), Ok(600 << 10));
    assert!(vfs.usage().used <= 4 << 20);
}

#[tokio::test]
async fn a_full_pool_refuses_writers_of_whole_files_as_it_does_others() {
    let Some((_, vfs)) = pool_with(4 << 20, Duration::ZERO) else { return };
    let (made, handle, _) = made(&vfs, "f").await;
    let first = vfs.write(handle, 0, Bytes::from(vec![1; 8 << 20])).await.unwrap();
    assert!((3 << 20..4 << 20).contains(&first), "{first} bytes had room");
    let next = vfs.write(handle, u64::from(first), Bytes::from(vec![1; 1 << 20])).await;
    let next = match next {
        Ok(little) => vfs.write(handle, u64::from(first + little), Bytes::from(vec![1; 1 << 20])).await,
        refused => refused,
    };
    assert!(matches!(next, Err(Refusal::NoSpace(_))), "{next:?}");
    vfs.change(made.file, Changes { size: Some(0), ..Changes::default() }).await.unwrap();
    vfs.write_file(b"g", &vec![1; 3 << 20]).await.unwrap();
}

#[tokio::test]
async fn space_of_a_range_is_taken_given_back_and_found() {
    let Some((_, vfs)) = pool_with(4 << 20, Duration::ZERO) else { return };
    let (made, handle, _) = made(&vfs, "f").await;
    vfs.write(handle, 0, Bytes::from(vec![7; 100_000])).await.unwrap();
    vfs.allocate(handle, 8192, 8192, AllocateMode::PunchHole).await.unwrap();
    assert_eq!(vfs.seek(handle, 0, SeekTo::Hole).await, Ok(8192));
    assert_eq!(vfs.seek(handle, 8192, SeekTo::Data).await, Ok(16_384));
    assert!(matches!(vfs.seek(handle, 100_000, SeekTo::Hole).await, Err(Refusal::BeyondEnd(_))));
    vfs.allocate(handle, 0, 300_000, AllocateMode::Extend).await.unwrap();
    vfs.allocate(handle, 50, 100, AllocateMode::ZeroRange).await.unwrap();
    let told = vfs.stat(made.file).await.unwrap();
    assert!(told.size == 300_000 && told.allocated >= 300_000 && told.extent.is_some());
    let mut expected = vec![7; 100_000];
    expected[8192..16_384].fill(0);
    expected[50..150].fill(0);
    expected.resize(300_000, 0);
    assert!(vfs.read(handle, 0, u32::MAX).await.unwrap() == expected);
    let refused = vfs.allocate(handle, 0, 8 << 20, AllocateMode::KeepSize).await;
    assert!(matches!(refused, Err(Refusal::NoSpace(_))), "{refused:?}");
    assert_eq!(vfs.stat(made.file).await.unwrap().size, 300_000);
    let waits = vfs.copy_range((handle, 16_384), (handle, 1 << 20), 50_000).await;
    assert_eq!(waits, Ok(50_000), "and there is room for this");
}

#[tokio::test]
async fn a_file_of_an_ended_session_is_folded_and_a_removed_one_is_gone() {
    let Some((node, vfs)) = pool_with(64 << 20, Duration::ZERO) else { return };
    let before = vfs.usage();
    let other = Vfs::new(Client::embedded(node));
    for name in ["stays", "goes"] {
        let (_, handle, _) = made(&other, name).await;
        other.write(handle, 0, Bytes::from_static(b"tide")).await.unwrap();
    }
    vfs.unlink(Vfs::root(), b"goes").await.unwrap();
    other.client.close().await.unwrap();
    assert_eq!(vfs.lookup(Vfs::root(), b"stays").await.unwrap().extent, None);
    assert_eq!(vfs.read_file(b"stays").await.unwrap(), b"tide");
    vfs.unlink(Vfs::root(), b"stays").await.unwrap();
    assert_eq!((vfs.usage().used, vfs.usage().files), (before.used, before.files));
}

#[tokio::test]
async fn without_extents_all_goes_the_ordinary_way() {
    let vfs = pool();
    let (_, handle) = vfs.create(Vfs::root(), b"f", 0o600, OWNER, WHOLE).await.unwrap();
    assert!(vfs.backing(handle).is_none());
    vfs.write(handle, 0, Bytes::from(vec![1; 300_000])).await.unwrap();
    assert_eq!(vfs.stat(vfs.lookup(Vfs::root(), b"f").await.unwrap().file).await.unwrap().extent, None);
    assert!(vfs.usage().stripes > 0);
}

#[tokio::test]
async fn a_small_file_that_is_only_opened_to_write_keeps_its_times() {
    let Some(vfs) = whole_pool() else { return };
    let file = vfs.write_file(b"f", b"hello").await.unwrap().file;
    let long_ago = TimeChange::At(Timestamp { secs: 5, nanos: 6 });
    vfs.change(file, Changes { modified: Some(long_ago), ..Changes::default() }).await.unwrap();
    let before = vfs.stat(file).await.unwrap();
    // Another file uses the slot in between, at a later time.
    drop(made(&vfs, "other").await);
    let handle = vfs.open(file, WHOLE).await.unwrap();
    let times = |of: &Attributes| (of.accessed, of.modified, of.changed, of.created, of.size);
    let whole = vfs.stat(file).await.unwrap();
    assert!(whole.extent.is_some());
    assert_eq!(times(&whole), times(&before));
    vfs.close(handle).await.unwrap();
    let home = vfs.stat(file).await.unwrap();
    assert_eq!((home.extent, times(&home)), (None, times(&before)));
    let handle = vfs.open(file, WHOLE).await.unwrap();
    kernel_opens(&vfs.backing(handle).unwrap(), 0).write_all_at(b"j", 0).unwrap();
    let written = vfs.stat(file).await.unwrap();
    assert!(
        written.modified > before.modified && written.changed >= before.changed && written.changed >= written.modified
    );
}
