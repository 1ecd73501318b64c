//! Bound files: their bytes stay on the host's disk.

use crate::{Vfs, pool_test::*};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};
use wire::{Attributes, Changes, OpenFlags, Refusal};

async fn bound(vfs: &Vfs, host: &Path) -> Attributes {
    vfs.bind(Vfs::root(), b"input", host).await.unwrap()
}

#[tokio::test]
async fn a_bound_file_shows_the_bytes_of_its_host_file_and_takes_no_space() {
    let (vfs, directory) = (pool(), tempfile::tempdir().unwrap());
    let host = directory.path().join("data.csv");
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&host, &bytes).unwrap();
    let found = bound(&vfs, &host).await;
    assert_eq!((found.size, found.mode, found.allocated), (bytes.len() as u64, 0o444, 0));
    let modified = fs::metadata(&host).unwrap().modified().unwrap();
    assert_eq!(found.modified, modified.into());
    assert!(vfs.read_file(b"input").await.unwrap() == bytes);
    assert!(vfs.usage().used < 4096);
    let handle = vfs.open(found.file, OpenFlags::READ).await.unwrap();
    assert_eq!(vfs.host_file(handle).unwrap().path, host);
    assert_eq!(vfs.read(handle, 999_999, 10).await.unwrap(), bytes[999_999..1_000_009]);
    assert!(vfs.read(handle, 1_200_000, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_bound_file_is_read_only_and_its_host_file_is_never_touched() {
    let (vfs, directory) = (pool(), tempfile::tempdir().unwrap());
    let host = directory.path().join("tool.sh");
    fs::write(&host, "#!/bin/sh").unwrap();
    fs::set_permissions(&host, fs::Permissions::from_mode(0o755)).unwrap();
    let found = bound(&vfs, &host).await;
    assert_eq!(found.mode, 0o555, "what may be run on the host may be run here");
    let truncate = OpenFlags { truncate: true, ..OpenFlags::READ };
    for flags in [OpenFlags::WRITE, OpenFlags::APPEND, truncate] {
        assert!(matches!(vfs.open(found.file, flags).await, Err(Refusal::ReadOnly(_))));
    }
    let cut = vfs.change(found.file, Changes { size: Some(0), ..Changes::default() }).await;
    assert!(matches!(cut, Err(Refusal::ReadOnly(_))));
    assert!(matches!(vfs.write_file(b"input", b"x").await, Err(Refusal::ReadOnly(_))));
    vfs.unlink(Vfs::root(), b"input").await.unwrap();
    assert_eq!(fs::read(&host).unwrap(), b"#!/bin/sh");
}

#[tokio::test]
async fn a_host_file_that_vanishes_or_shrinks_is_told_by_its_path() {
    let (vfs, directory) = (pool(), tempfile::tempdir().unwrap());
    let host = directory.path().join("data");
    fs::write(&host, vec![1; 10_000]).unwrap();
    bound(&vfs, &host).await;
    fs::File::options().write(true).open(&host).unwrap().set_len(5000).unwrap();
    let shrunk = vfs.read_file(b"input").await.unwrap_err();
    assert!(matches!(shrunk, Refusal::Io { .. }) && shrunk.to_string().contains("shorter"), "{shrunk}");

    let gone = directory.path().join("gone");
    fs::write(&gone, b"x").unwrap();
    vfs.bind(Vfs::root(), b"gone", &gone).await.unwrap();
    fs::remove_file(&gone).unwrap();
    let refusal = vfs.read_file(b"gone").await.unwrap_err();
    assert!(refusal.to_string().contains(gone.to_str().unwrap()), "{refusal}");
    let refusal = vfs.bind(Vfs::root(), b"never", &gone).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Io { .. }), "{refusal}");
    let refusal = vfs.bind(Vfs::root(), b"folder", directory.path()).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Invalid { .. }), "{refusal}");
}
