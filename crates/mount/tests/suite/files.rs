//! Files through the mount, as programs use them. Needs a usable /dev/fuse.
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use crate::common::{mounted, mounted_with, needs_fuse, options, pattern, pool};
use bytes::Bytes;
use rustix::{
    fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with},
    io::Errno,
};

const MIB: usize = 1 << 20;

#[test]
fn what_is_written_is_read_back_and_statted() {
    needs_fuse!();
    let mount = mounted(pool());
    let path = mount.point().join("dir/sub/file");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for length in [0, 1, 4096, 4097, MIB, 3 * MIB + 17] {
        let data = pattern(length);
        fs::write(&path, &data).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data, "{length} bytes");
        assert_eq!(fs::metadata(&path).unwrap().len(), length as u64);
    }
}

#[test]
fn large_reads_and_writes_arrive_in_one_piece_each() {
    needs_fuse!();
    for direct_writes in [true, false] {
        let mount = mounted_with(pool(), &mount::MountOptions { passthrough: false, direct_writes, ..options() });
        let path = mount.point().join("file");
        File::create(&path).unwrap().write_all(&pattern(8 * MIB)).unwrap();
        let traffic = mount.mount.traffic();
        // A request has at most 256 pages; a buffer that does not begin at a page boundary has one
        // more.
        assert!(
            (8..=9).contains(&traffic.writes) && traffic.write_largest == MIB as u64,
            "direct: {direct_writes}: {traffic:?}"
        );

        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let mut file = OpenOptions::new().read(true).custom_flags(direct).open(&path).unwrap();
        let mut data = vec![0; 8 * MIB];
        file.read_exact(&mut data).unwrap();
        assert!(data == pattern(8 * MIB));
        let traffic = mount.mount.traffic();
        assert!((8..=9).contains(&traffic.reads) && traffic.read_largest == MIB as u64, "{traffic:?}");
    }
}

#[test]
fn cached_reads_ahead_come_in_whole_requests_where_the_device_allows_it() {
    needs_fuse!();
    let mount = mounted_with(pool(), &mount::MountOptions { passthrough: false, ..options() });
    let path = mount.point().join("file");
    fs::write(&path, pattern(16 * MIB)).unwrap();
    let mut file = File::open(&path).unwrap();
    let mut piece = vec![0; 64 << 10];
    while file.read(&mut piece).unwrap() > 0 {}
    let traffic = mount.mount.traffic();
    assert!(traffic.read_bytes <= 17 * MIB as u64, "nothing is read twice: {traffic:?}");
    if rustix::process::geteuid().is_root() {
        assert_eq!(traffic.read_largest, MIB as u64, "{traffic:?}");
    }
    let again = fs::read(&path).unwrap();
    assert!(again == pattern(16 * MIB));
    assert_eq!(mount.mount.traffic().read_bytes, traffic.read_bytes, "the second read is the page cache's");
}

#[test]
fn a_cached_read_sees_what_a_direct_writer_put_beside_it() {
    needs_fuse!();
    let mount = mounted(pool());
    let path = mount.point().join("file");
    fs::write(&path, vec![b'a'; 10_000]).unwrap();
    let reader = File::open(&path).unwrap();
    let mut byte = [0; 1];
    reader.read_exact_at(&mut byte, 5000).unwrap();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(b"b", 5000).unwrap();
    reader.read_exact_at(&mut byte, 5000).unwrap();
    assert_eq!(byte, *b"b");
    writer.set_len(3).unwrap();
    assert_eq!(reader.read_at(&mut byte, 5000).unwrap(), 0);
    assert_eq!(reader.metadata().unwrap().len(), 3);
}

#[test]
fn a_mapping_shows_the_file_and_what_is_written_later() {
    needs_fuse!();
    let mount = mounted(pool());
    let path = mount.point().join("file");
    let data = pattern(2 * MIB + 100);
    fs::write(&path, &data).unwrap();
    let file = File::open(&path).unwrap();
    // SAFETY: the test never truncates the file while the mapping is in use.
    let map = unsafe { memmap2::Mmap::map(&file).unwrap() };
    assert!(map[..] == data[..]);
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(b"changed", MIB as u64).unwrap();
    assert_eq!(&map[MIB..MIB + 7], b"changed");
    drop(map);

    // Writes the file through one descriptor and maps it through another, both open at once, as
    // sort and ld do.
    let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // SAFETY: the test never truncates the file while the mapping is in use.
    let mut map = unsafe { memmap2::MmapMut::map_mut(&both).unwrap() };
    map[0] = b'!';
    map.flush().unwrap();
    assert_eq!(fs::read(&path).unwrap()[0], b'!');
}

#[test]
fn appending_writers_never_overwrite_each_other() {
    needs_fuse!();
    let mount = mounted(pool());
    let path = mount.point().join("log");
    thread::scope(|scope| {
        for writer in 0..4_u8 {
            let path = &path;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for _ in 0..50 {
                    file.write_all(&[b'a' + writer; 100]).unwrap();
                }
            });
        }
    });
    let data = fs::read(&path).unwrap();
    assert_eq!(data.len(), 4 * 50 * 100);
    assert!(data.chunks(100).all(|line| line.iter().all(|byte| *byte == line[0])));
}

#[test]
fn threads_that_write_and_read_in_parallel_see_their_own_bytes() {
    needs_fuse!();
    let mount = mounted(pool());
    thread::scope(|scope| {
        for worker in 0..6_u8 {
            let path = mount.point().join(format!("file-{worker}"));
            scope.spawn(move || {
                for round in 0..8 {
                    let data: Vec<u8> = pattern(300_000 + usize::from(worker) * 7919 + round)
                        .iter()
                        .map(|byte| byte ^ worker)
                        .collect();
                    fs::write(&path, &data).unwrap();
                    assert!(fs::read(&path).unwrap() == data);
                }
            });
        }
    });
}

#[test]
fn a_removed_file_lives_until_it_is_closed() {
    needs_fuse!();
    let mount = mounted(pool());
    let path = mount.point().join("file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
    file.write_all(b" after").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before after");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}

#[test]
fn ten_thousand_entries_are_listed_once_each() {
    needs_fuse!();
    let mount = mounted(pool());
    for number in 0..10_000 {
        File::create(mount.point().join(format!("a-rather-usual-name-{number}"))).unwrap();
    }
    let list = || -> Vec<String> {
        let entries = fs::read_dir(mount.point()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut names = list();
    assert_eq!(names.len(), 10_000);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 10_000);
    // A listing followed by a stat of each entry, as of ls -l and du, takes another path in the
    // kernel.
    let lengths = fs::read_dir(mount.point()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    assert_eq!(lengths.sum::<u64>(), 0);
}

/// Regression: the kernel cached listings, and used one made within the same tick of the clock.
#[test]
fn who_makes_names_beside_others_finds_its_own_in_each_listing() {
    needs_fuse!();
    let mount = mounted(pool());
    thread::scope(|scope| {
        for maker in 0..4 {
            let directory = mount.point();
            scope.spawn(move || {
                for number in 0..400 {
                    File::create(directory.join(format!("{maker}-{number}"))).unwrap();
                    let names =
                        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
                    let own = names.filter(|name| name.starts_with(&format!("{maker}-"))).count();
                    assert_eq!(own, number + 1);
                }
            });
        }
    });
}

#[test]
fn entries_removed_while_listing_disturb_no_others() {
    needs_fuse!();
    let mount = mounted(pool());
    for number in 0..3_000 {
        File::create(mount.point().join(format!("f{number}"))).unwrap();
    }
    // Removes each entry as it is listed, like rm -r.
    let mut removed = 0;
    for entry in fs::read_dir(mount.point()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, 3_000);
    assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 0);
}

#[test]
fn a_listing_begins_with_the_two_dots() {
    needs_fuse!();
    let mount = mounted(pool());
    File::create(mount.point().join("x")).unwrap();
    let directory = File::open(mount.point()).unwrap();
    let names = rustix::fs::Dir::read_from(&directory).unwrap();
    let names: Vec<String> = names.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, [".", "..", "x"]);
}

#[test]
fn renames_replace_keep_or_exchange() {
    needs_fuse!();
    let mount = mounted(pool());
    let at = |name: &str| mount.point().join(name);
    let rename = |from: &Path, to: &Path, flags| renameat_with(CWD, from, CWD, to, flags);
    fs::write(at("a"), b"a").unwrap();
    fs::write(at("b"), b"b").unwrap();
    assert_eq!(rename(&at("a"), &at("b"), RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(&at("a"), &at("b"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(at("a")).unwrap(), fs::read(at("b")).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    fs::rename(at("a"), at("b")).unwrap();
    assert_eq!(fs::read(at("b")).unwrap(), b"b");
    assert!(!at("a").exists());
    fs::create_dir_all(at("d/e")).unwrap();
    assert_eq!(fs::rename(at("d"), at("d/e/f")).unwrap_err().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    fs::rename(at("b"), at("d/e/b")).unwrap();
    fs::rename(at("d"), at("g")).unwrap();
    assert_eq!(fs::read(at("g/e/b")).unwrap(), b"b");
}

#[test]
fn modes_times_links_and_special_files_are_kept() {
    needs_fuse!();
    let mount = mounted(pool());
    let at = |name: &str| mount.point().join(name);
    fs::write(at("file"), b"x").unwrap();
    fs::set_permissions(at("file"), fs::Permissions::from_mode(0o4751)).unwrap();
    assert_eq!(fs::metadata(at("file")).unwrap().mode() & 0o7777, 0o4751);

    let file = OpenOptions::new().write(true).open(at("file")).unwrap();
    for time in [
        SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789),
        SystemTime::UNIX_EPOCH - Duration::new(5, 250_000_000),
    ] {
        file.set_modified(time).unwrap();
        assert_eq!(fs::metadata(at("file")).unwrap().modified().unwrap(), time);
    }

    symlink("file", at("link")).unwrap();
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("file"));
    assert_eq!(fs::read(at("link")).unwrap(), b"x");

    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    assert!(fs::metadata(at("socket")).unwrap().file_type().is_socket());
}

#[test]
fn a_fifo_in_the_pool_connects_two_programs() {
    needs_fuse!();
    let mount = mounted(pool());
    let path = mount.point().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let writer = thread::spawn({
        let path = path.clone();
        move || fs::write(path, b"through the pipe").unwrap()
    });
    assert_eq!(fs::read(&path).unwrap(), b"through the pipe");
    writer.join().unwrap();
}

#[test]
fn what_no_file_of_memory_can_do_is_refused_by_what_it_is() {
    needs_fuse!();
    let mount = mounted(pool());
    let at = |name: &str| mount.point().join(name);
    fs::write(at("a"), pattern(100_000)).unwrap();
    fs::create_dir(at("d")).unwrap();
    let error = fs::hard_link(at("d"), at("e")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()));
    let file = OpenOptions::new().write(true).open(at("a")).unwrap();
    for flags in [rustix::fs::FallocateFlags::COLLAPSE_RANGE, rustix::fs::FallocateFlags::INSERT_RANGE] {
        assert_eq!(rustix::fs::fallocate(&file, flags, 0, 4096), Err(Errno::OPNOTSUPP));
    }
    assert_eq!(rustix::io::ioctl_fionbio(&file, true), Ok(()), "the kernel's own");
    assert_eq!(rustix::io::ioctl_fionread(&file), Ok(100_000));
}

#[test]
fn the_kernel_checks_permissions_for_other_users() {
    needs_fuse!();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let mount = mounted_with(pool(), &mount::MountOptions { shared: true, ..options() });
    fs::write(mount.point().join("secret"), b"x").unwrap();
    fs::set_permissions(mount.point().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(mount.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut cat = std::process::Command::new("cat");
    std::os::unix::process::CommandExt::uid(&mut cat, 65_534);
    let output = cat.arg(mount.point().join("secret")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("Permission denied"), "{output:?}");
}

/// Completes a call of the pool that does not have to wait.
fn now<T>(call: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime needs nothing here");
    runtime.block_on(call)
}

#[test]
fn what_is_made_and_removed_beside_the_mount_shows_in_it() {
    needs_fuse!();
    let vfs = pool();
    let mount = mounted(vfs.clone());
    let path = mount.point().join("file");
    assert!(!path.exists());
    now(vfs.write_file(b"file", b"one")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
    // The kernel still caches the old entry, and yet finds the new file of this name.
    now(vfs.remove_tree(b"file")).unwrap();
    now(vfs.write_file(b"file", b"another")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"another");
    now(vfs.remove_tree(b"file")).unwrap();
    assert_eq!(fs::read(&path).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(&path, b"by a tool").unwrap();
    assert_eq!(now(vfs.read_file(b"file")).unwrap(), b"by a tool");
}

#[test]
fn cached_pages_of_a_file_that_is_changed_beside_the_mount_are_dropped() {
    needs_fuse!();
    let vfs = pool();
    let mount = mounted(vfs.clone());
    let path = mount.point().join("file");
    fs::write(&path, pattern(2 * MIB)).unwrap();
    let reader = File::open(&path).unwrap();
    let mut bytes = [0; 7];
    reader.read_exact_at(&mut bytes, MIB as u64).unwrap();
    now(async {
        let found = vfs.resolve(b"file").await?;
        let handle = vfs.open(found.file, wire::OpenFlags::WRITE).await?;
        vfs.write(handle, MIB as u64, Bytes::from_static(b"changed")).await?;
        vfs.close(handle).await
    })
    .unwrap();
    reader.read_exact_at(&mut bytes, MIB as u64).unwrap();
    assert_eq!(&bytes, b"changed", "the length is the same, only the time tells");
}

#[test]
fn a_bound_input_is_read_and_mapped_but_never_written() {
    needs_fuse!();
    let vfs = pool();
    let mount = mounted(vfs.clone());
    let host = tempfile::NamedTempFile::new().unwrap();
    fs::write(host.path(), pattern(3 * MIB + 5)).unwrap();
    now(vfs.bind(vfs::Vfs::root(), b"input", host.path())).unwrap();
    let path = mount.point().join("input");
    assert!(fs::read(&path).unwrap() == pattern(3 * MIB + 5));
    // SAFETY: no process truncates the host file.
    let map = unsafe { memmap2::Mmap::map(&File::open(&path).unwrap()).unwrap() };
    assert!(map[..] == pattern(3 * MIB + 5)[..]);
    let refused = OpenOptions::new().write(true).open(&path).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied), "{refused}");
    fs::remove_file(&path).unwrap();
    assert!(fs::read(host.path()).unwrap() == pattern(3 * MIB + 5), "the host's file is untouched");
}

#[test]
fn statfs_tells_the_pools_capacity_and_what_is_left() {
    needs_fuse!();
    let vfs = pool();
    let mount = mounted(vfs.clone());
    fs::write(mount.point().join("file"), vec![1; 5 * MIB]).unwrap();
    let stat = rustix::fs::statvfs(mount.point()).unwrap();
    let usage = vfs.usage();
    assert_eq!(stat.f_blocks * stat.f_frsize, usage.capacity / 4096 * 4096);
    let free = stat.f_bfree * stat.f_frsize;
    assert!(free <= usage.capacity - 5 * MIB as u64, "{free} free of {usage:?}");
    assert!(free > usage.capacity / 2);
}
