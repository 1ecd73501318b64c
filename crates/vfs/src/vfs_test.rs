//! Guarantees for users of a pool, one test each.

use crate::{Vfs, pool_test::*};
use bytes::Bytes;
use client::testing::SteppedConnection;
use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};
use wire::{Changes, Kind, OpenFlags, Outcome, Refusal, RenameMode};

/// Bytes that differ from place to place.
fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap() ^ seed).collect()
}

async fn names(vfs: &Vfs, path: &[u8]) -> Vec<String> {
    let directory = vfs.resolve(path).await.unwrap().file;
    let mut names: Vec<_> = vfs.list(directory, 0, 100).await.unwrap().iter().map(|e| e.name.to_string()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_file_is_made_written_read_listed_and_removed() {
    let vfs = pool();
    let (made, handle) = vfs.create(Vfs::root(), b"f", 0o640, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    assert_eq!((made.kind, made.size, made.mode, made.links, made.owner), (Kind::File, 0, 0o640, 1, OWNER));
    assert_eq!(vfs.write(handle, 0, Bytes::from_static(b"hello")).await, Ok(5));
    assert_eq!(vfs.read(handle, 1, 100).await.unwrap(), &b"ello"[..]);
    vfs.close(handle).await.unwrap();
    assert_eq!(names(&vfs, b"").await, ["f"]);
    vfs.unlink(Vfs::root(), b"f").await.unwrap();
    assert!(names(&vfs, b"").await.is_empty());
    assert!(matches!(vfs.lookup(Vfs::root(), b"f").await, Err(Refusal::NotFound(_))));
}

#[tokio::test]
async fn a_file_grows_from_inline_to_many_stripes_and_keeps_its_bytes() {
    let vfs = pool();
    let whole = pattern(5 * STRIPE as usize + 777, 3);
    let (_, handle) = vfs.create(Vfs::root(), b"f", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    let mut done = 0;
    for step in [100, 3000, 5000, 60_000, STRIPE as usize, 200_000].into_iter().cycle() {
        let part = Bytes::copy_from_slice(&whole[done..whole.len().min(done + step)]);
        done += vfs.write(handle, done as u64, part).await.unwrap() as usize;
        if done == whole.len() {
            break;
        }
    }
    assert_eq!(vfs.read_file(b"f").await.unwrap(), whole);
    for (offset, length) in [(0, 1), (4090, 20), (65_535, 2), (65_536, 65_536), (whole.len() - 3, 100)] {
        let read = vfs.read(handle, offset as u64, length).await.unwrap();
        assert_eq!(read, whole[offset..whole.len().min(offset + length as usize)]);
    }
    assert!(vfs.read(handle, whole.len() as u64, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn directories_are_made_moved_and_removed_wherever_their_inodes_are() {
    let vfs = pool();
    vfs.make_directories(b"a/b/c").await.unwrap();
    vfs.write_file(b"a/b/c/f", b"x").await.unwrap();
    let (a, c) = (vfs.resolve(b"a").await.unwrap(), vfs.resolve(b"a/b/c").await.unwrap());
    assert_eq!((a.links, c.links, a.size), (3, 2, 1));
    assert!(matches!(vfs.remove_directory(a.file, b"b").await, Err(Refusal::NotEmpty(_))));
    vfs.rename(from(a.file, "b"), to(Vfs::root(), "b2"), RenameMode::Replace).await.unwrap();
    assert_eq!(vfs.read_file(b"b2/c/f").await.unwrap(), b"x");
    assert_eq!(vfs.resolve(b"a").await.unwrap().links, 2);
    assert_eq!(vfs.parent(vfs.resolve(b"b2").await.unwrap().file).await, Ok(Vfs::root()));
    vfs.remove_tree(b"b2").await.unwrap();
    vfs.remove_directory(Vfs::root(), b"a").await.unwrap();
    assert!(names(&vfs, b"").await.is_empty());
    assert_eq!(vfs.usage().files, 1, "only the root is left");
}

#[tokio::test]
async fn what_was_removed_leaves_no_bytes_behind() {
    let vfs = pool();
    let before = vfs.usage();
    vfs.make_directories(b"d/e").await.unwrap();
    vfs.write_file(b"d/small", &pattern(3000, 1)).await.unwrap();
    vfs.write_file(b"d/e/large", &pattern(300_000, 2)).await.unwrap();
    let large = vfs.resolve(b"d/e/large").await.unwrap().file;
    vfs.change(large, Changes { size: Some(70_000), ..Changes::default() }).await.unwrap();
    assert!(vfs.usage().used > before.used + 70_000);
    vfs.remove_tree(b"d").await.unwrap();
    assert_eq!(vfs.usage(), before);
}

#[tokio::test]
async fn a_name_has_at_most_255_bytes_of_any_kind() {
    let vfs = pool();
    let (longest, longer) = (filled(0xff, 255), filled(b'n', 256));
    vfs.make_directory(Vfs::root(), &longest, 0o755, OWNER).await.unwrap();
    assert_eq!(vfs.lookup(Vfs::root(), &longest).await.unwrap().kind, Kind::Directory);
    assert!(matches!(vfs.lookup(Vfs::root(), &longer).await, Err(Refusal::NameTooLong(_))));
    let made = vfs.create(Vfs::root(), &longer, 0o644, OWNER, OpenFlags::WRITE).await;
    assert!(matches!(made, Err(Refusal::NameTooLong(_))));
    for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert!(matches!(vfs.unlink(Vfs::root(), bad).await, Err(Refusal::Invalid { .. })));
    }
}

#[tokio::test]
async fn a_listing_in_pages_shows_every_entry_once_while_others_come_and_go() {
    let vfs = pool();
    for number in 0..10_000 {
        vfs.make_symlink(Vfs::root(), format!("old{number}").as_bytes(), b"t", OWNER).await.unwrap();
    }
    let (mut seen, mut after, mut page) = (Vec::new(), 0, 0);
    loop {
        let entries = vfs.list(Vfs::root(), after, 97).await.unwrap();
        let Some(last) = entries.last() else { break };
        after = last.cookie;
        for entry in &entries {
            vfs.unlink(Vfs::root(), entry.name.as_bytes()).await.unwrap();
        }
        vfs.make_symlink(Vfs::root(), format!("new{page}").as_bytes(), b"t", OWNER).await.unwrap();
        page += 1;
        seen.extend(entries.into_iter().map(|entry| entry.name.to_string()).filter(|name| name.starts_with("old")));
    }
    assert_eq!(seen.len(), 10_000, "each once");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 10_000, "all of them");
}

#[tokio::test]
async fn holes_read_as_zeros_and_take_no_space() {
    let vfs = pool();
    let (made, handle) = vfs.create(Vfs::root(), b"f", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    let far = 1 << 40;
    vfs.write(handle, far, Bytes::from_static(b"end")).await.unwrap();
    assert_eq!(vfs.stat(made.file).await.unwrap().size, far + 3);
    assert_eq!(vfs.read(handle, far - 2, 100).await.unwrap(), &b"\0\0end"[..]);
    assert_eq!(vfs.read(handle, 5, 200_000).await.unwrap(), filled(0, 200_000));
    assert!(vfs.usage().used < 100_000 && vfs.stat(made.file).await.unwrap().allocated <= u64::from(STRIPE));
    vfs.change(made.file, Changes { size: Some(0), ..Changes::default() }).await.unwrap();
    vfs.change(made.file, Changes { size: Some(1 << 50), ..Changes::default() }).await.unwrap();
    assert_eq!(vfs.read(handle, far, 3).await.unwrap(), filled(0, 3), "what was cut does not come back");
    let beyond = Changes { size: Some(1 << 63), ..Changes::default() };
    assert!(matches!(vfs.change(made.file, beyond).await, Err(Refusal::TooLarge { .. })));
    let beyond = vfs.write(handle, i64::MAX as u64, Bytes::from_static(b"x")).await;
    assert!(matches!(beyond, Err(Refusal::TooLarge { .. })));
}

#[tokio::test]
async fn creating_opens_what_is_there_unless_it_must_be_new() {
    let vfs = pool();
    let made = vfs.write_file(b"f", b"bytes").await.unwrap();
    let (found, handle) = vfs.create(Vfs::root(), b"f", 0o600, OWNER, OpenFlags::READ).await.unwrap();
    assert_eq!((found.file, found.size, found.mode), (made.file, 5, 0o644));
    assert_eq!(vfs.read(handle, 0, 10).await.unwrap(), &b"bytes"[..]);
    let exclusive = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
    assert!(matches!(vfs.create(Vfs::root(), b"f", 0, OWNER, exclusive).await, Err(Refusal::Exists(_))));
    let truncate = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    assert_eq!(vfs.create(Vfs::root(), b"f", 0, OWNER, truncate).await.unwrap().0.size, 0);
    vfs.make_directories(b"d").await.unwrap();
    assert!(matches!(vfs.create(Vfs::root(), b"d", 0, OWNER, OpenFlags::READ).await, Err(Refusal::IsDirectory(_))));
}

#[tokio::test]
async fn paths_follow_links_within_the_pool_and_never_out_of_it() {
    let vfs = pool();
    let directory = vfs.make_directories(b"/a//b/./c").await.unwrap().file;
    vfs.write_file(b"a/f", b"x").await.unwrap();
    vfs.make_symlink(directory, b"up", b"../../f", OWNER).await.unwrap();
    vfs.make_symlink(Vfs::root(), b"short", b"a/b", OWNER).await.unwrap();
    assert_eq!(vfs.read_file(b"short/c/up").await.unwrap(), b"x");
    assert_eq!(vfs.resolve(b"short/c/up").await.unwrap().kind, Kind::Symlink, "a link at the end is itself");
    assert_eq!(vfs.read_link(vfs.resolve(b"short").await.unwrap().file).await.unwrap(), b"a/b");
    vfs.make_symlink(Vfs::root(), b"out", b"/etc/passwd", OWNER).await.unwrap();
    vfs.make_symlink(Vfs::root(), b"loop", b"loop", OWNER).await.unwrap();
    for bad in [&b"out"[..], b"loop"] {
        assert!(matches!(vfs.read_file(bad).await, Err(Refusal::Invalid { .. })));
    }
    vfs.remove_tree(b"short").await.unwrap();
    assert_eq!(vfs.read_file(b"a/b/c/up").await.unwrap(), b"x", "the link went, not what it led to");
    assert!(matches!(vfs.read_file(b"a/f/g").await, Err(Refusal::NotDirectory(_))));
    assert!(matches!(vfs.make_directories(b"a/f/g").await, Err(Refusal::NotDirectory(_))));
}

#[tokio::test]
async fn a_directory_never_moves_into_itself() {
    let vfs = pool();
    let c = vfs.make_directories(b"a/b/c").await.unwrap().file;
    for mode in [RenameMode::Replace, RenameMode::NoReplace] {
        let moved = vfs.rename(from(Vfs::root(), "a"), to(c, "a"), mode).await;
        assert!(matches!(moved, Err(Refusal::Invalid { .. })), "{moved:?}");
    }
    let b = vfs.resolve(b"a/b").await.unwrap().file;
    let exchanged = vfs.rename(from(b, "c"), to(Vfs::root(), "a"), RenameMode::Exchange).await;
    assert!(matches!(exchanged, Err(Refusal::Invalid { .. })), "{exchanged:?}");
    vfs.resolve(b"a/b/c").await.unwrap();
}

/// Number of polls until a future is done, and its result.
fn polls<T>(what: impl Future<Output = Outcome<T>>) -> (u32, T) {
    let (mut what, mut polls) = (pin!(what), 0);
    loop {
        polls += 1;
        if let Poll::Ready(done) = what.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return (polls, done.unwrap());
        }
    }
}

#[test]
fn the_stripes_of_a_long_write_or_read_are_under_way_together() {
    for nodes in FEW_NODES {
        let vfs = polls(async { Ok(Pool::of(nodes).over(SteppedConnection::new, IMPATIENT).await) }).1;
        let (_, handle) = polls(vfs.create(Vfs::root(), b"f", 0o600, OWNER, OpenFlags::READ_WRITE)).1;
        let (two, eight) = (2 * STRIPE, 8 * STRIPE);
        let write = |at: u32, length: u32| polls(vfs.write(handle, at.into(), filled(7, length).into())).0;
        write(0, STRIPE);
        // One at a time, the six additional stripes would take two polls each. Fewer polls show
        // that they are in flight together.
        let (short, long) = (write(STRIPE, two), write(STRIPE + two, eight));
        assert!(long <= short + 6, "{short} polls for two new stripes, {long} for eight");
        let read = |length| polls(vfs.read(handle, 0, length)).0;
        assert!(read(eight) <= read(two) + 6);
        let (_, bytes) = polls(vfs.read(handle, 5, 11 * STRIPE));
        assert!(bytes == filled(7, 11 * STRIPE)[5..]);
    }
}

#[tokio::test]
async fn a_handle_serves_only_what_it_was_opened_for_and_only_until_it_is_closed() {
    let vfs = pool();
    let file = vfs.write_file(b"f", b"x").await.unwrap().file;
    let handle = vfs.open(file, OpenFlags::READ).await.unwrap();
    let refused = vfs.write(handle, 0, Bytes::from_static(b"y")).await;
    assert!(matches!(refused, Err(Refusal::BadHandle(_))));
    vfs.close(handle).await.unwrap();
    assert!(matches!(vfs.read(handle, 0, 1).await, Err(Refusal::BadHandle(_))));
    assert!(matches!(vfs.close(handle).await, Err(Refusal::BadHandle(_))));
}
