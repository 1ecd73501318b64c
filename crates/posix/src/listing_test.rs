//! Tests of directory listings.

use crate::pool_test::{TestPool, at};
use crate::{DirectoryListing, Errno, ListedEntry};
use rustix::fs::{AtFlags, OFlags};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

fn open(pool: &TestPool, path: &str) -> (OwnedFd, DirectoryListing) {
    let descriptor = pool.open(path, OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
    let listing = pool.process.listing(descriptor.as_fd()).unwrap();
    (descriptor, listing)
}

fn rest(pool: &TestPool, listing: &mut DirectoryListing) -> Vec<ListedEntry> {
    std::iter::from_fn(|| pool.process.next_entry(listing).unwrap()).collect()
}

fn names(entries: &[ListedEntry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8(entry.name.clone()).unwrap()).collect()
}

#[test]
fn a_listing_has_dots_first_and_every_name_once() {
    // More than two pages.
    const FILES: usize = 1100;
    let pool = TestPool::start();
    pool.mkdir("d");
    let made: BTreeSet<String> = (0..FILES).map(|number| number.to_string()).collect();
    for name in &made {
        pool.process.mknod(at(&format!("d/{name}")), 0o100_644, 0).unwrap();
    }
    let (_descriptor, mut listing) = open(&pool, "d");
    let entries = names(&rest(&pool, &mut listing));
    assert_eq!(entries[..2], [".", ".."]);
    assert_eq!(entries.len(), FILES + 2);
    assert_eq!(entries[2..].iter().cloned().collect::<BTreeSet<_>>(), made);
    assert_eq!(pool.process.next_entry(&mut listing), Ok(None), "the end stays the end");
}

#[test]
fn an_entry_has_the_inode_and_type_of_its_file() {
    let pool = TestPool::start();
    pool.mkdir("d");
    pool.mkdir("d/directory");
    pool.symlink("none", "d/symlink");
    for (path, mode) in [("d/file", 0o100_600), ("d/fifo", 0o010_600), ("d/socket", 0o140_600)] {
        pool.process.mknod(at(path), mode, 0).unwrap();
    }
    let (_descriptor, mut listing) = open(&pool, "d");
    let expected = [(".", 4), ("..", 4), ("directory", 4), ("symlink", 10), ("file", 8), ("fifo", 1), ("socket", 12)];
    let found = rest(&pool, &mut listing);
    assert_eq!(found.len(), expected.len());
    for (name, kind) in expected {
        let entry = found.iter().find(|entry| entry.name == name.as_bytes()).unwrap();
        let stat = pool.process.stat(at(&format!("d/{name}")), AtFlags::SYMLINK_NOFOLLOW).unwrap();
        assert_eq!((entry.kind, entry.inode), (kind, stat.inode), "{name}");
    }
    let (_root, mut listing) = open(&pool, "");
    let dots: Vec<u64> = rest(&pool, &mut listing).iter().take(2).map(|entry| entry.inode).collect();
    assert_eq!(dots[0], dots[1], "the pool's root is its own parent");
}

#[test]
fn a_listing_continues_at_a_position_and_starts_again_at_zero() {
    let pool = TestPool::start();
    pool.mkdir("d");
    for name in ["a", "b", "c"] {
        pool.make(&format!("d/{name}"), b"");
    }
    let (_descriptor, mut listing) = open(&pool, "d");
    assert_eq!(listing.position(), 0);
    let all = rest(&pool, &mut listing);
    for (at, entry) in all.iter().enumerate() {
        listing.seek(entry.next);
        assert_eq!(rest(&pool, &mut listing), all[at + 1..], "after {entry:?}");
    }
    for at in 0..all.len() {
        listing.seek(0);
        let first: Vec<_> = (0..3).map(|_| pool.process.next_entry(&mut listing).unwrap().unwrap()).collect();
        assert_eq!(first, all[..3], "the others are fetched with it");
        listing.seek(all[at].next);
        assert_eq!(pool.process.next_entry(&mut listing).unwrap().as_ref(), all.get(at + 1));
    }
    pool.make("d/late", b"");
    listing.seek(0);
    assert_eq!(rest(&pool, &mut listing).len(), all.len() + 1);
    let removed = all.last().unwrap();
    pool.process.unlink(at(&format!("d/{}", names(&all)[4])), AtFlags::empty()).unwrap();
    listing.seek(all[3].next);
    assert!(!rest(&pool, &mut listing).contains(removed), "it was removed since");
}

#[test]
fn a_removed_directory_lists_its_dots_alone() {
    let pool = TestPool::start();
    pool.mkdir("d");
    let (descriptor, mut listing) = open(&pool, "d");
    pool.process.unlink(at("d"), AtFlags::REMOVEDIR).unwrap();
    let entries = rest(&pool, &mut listing);
    assert_eq!(names(&entries), [".", ".."]);
    assert_eq!(
        entries[0].inode,
        pool.process.stat(crate::pool_test::of(&descriptor), AtFlags::EMPTY_PATH).unwrap().inode
    );
}

#[test]
fn only_a_directory_opened_for_reading_is_listed() {
    let pool = TestPool::start();
    pool.make("f", b"");
    pool.mkdir("d");
    for (path, flags, errno) in [("f", OFlags::RDONLY, Errno::NOTDIR), ("d", OFlags::PATH, Errno::BADF)] {
        let descriptor = pool.open(path, flags).unwrap();
        assert_eq!(pool.process.listing(descriptor.as_fd()).map(drop), Err(errno), "{path}");
    }
    let host = std::fs::File::open(pool.host.path()).unwrap();
    assert_eq!(pool.process.listing(host.as_fd()).map(drop), Err(Errno::BADF));
}
