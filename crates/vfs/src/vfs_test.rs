//! What users of a pool rely on, one test for each promise.

use crate::{Vfs, pool_test::*};
use bytes::Bytes;
use wire::{Changes, Kind, OpenFlags, Refusal, RenameMode};

/// Bytes that differ everywhere.
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
