//! Files open in several modes at once, with passthrough and without. Needs a usable /dev/fuse;
//! where passthrough is not possible both variants are equal.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on has failed")]

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{TestMount, mounted_with, needs_fuse, options, pattern, pool, with_and_without_passthrough};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};
use test_support::Random;

const MIB: usize = 1 << 20;

with_and_without_passthrough! {
    what_any_open_writes_every_other_reads
    a_file_that_goes_from_small_to_large_and_back_keeps_its_bytes
    a_store_into_a_mapping_is_read_by_all_and_outlives_the_close
    a_mapping_is_written_back_to_its_place_whatever_else_appends
    appending_begins_while_a_file_is_open
    a_removed_and_a_renamed_file_are_written_on
    truncating_while_others_have_it_open_is_seen_by_them
    times_and_size_follow_what_is_written
    a_write_of_a_stranger_takes_the_set_id_bits_away
}

fn direct() -> i32 {
    OFlags::DIRECT.bits().cast_signed()
}

/// Opens an existing file in all modes that allow reading and writing.
fn readers(path: &Path) -> Vec<File> {
    let mut all = OpenOptions::new();
    all.read(true);
    vec![
        all.open(path).unwrap(),
        all.clone().write(true).open(path).unwrap(),
        all.clone().custom_flags(direct()).open(path).unwrap(),
        all.clone().append(true).open(path).unwrap(),
    ]
}

fn writers(path: &Path) -> Vec<File> {
    let mut all = OpenOptions::new();
    all.write(true);
    vec![
        all.open(path).unwrap(),
        all.clone().read(true).open(path).unwrap(),
        all.clone().custom_flags(direct()).open(path).unwrap(),
    ]
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap() + 10];
    let mut done = 0;
    loop {
        match file.read_at(&mut bytes[done..], done as u64).unwrap() {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    bytes
}

fn what_any_open_writes_every_other_reads(mount: &TestMount) {
    for length in [10, 4096, 5000, 3 * MIB + 5] {
        let path = mount.point().join(format!("file-{length}"));
        let mut expected = pattern(length);
        fs::write(&path, &expected).unwrap();
        let (readers, writers) = (readers(&path), writers(&path));
        for (number, writer) in writers.iter().enumerate() {
            let at = length * (number + 1) / 5;
            writer.write_all_at(b"mark", at as u64).unwrap();
            expected.resize(expected.len().max(at + 4), 0);
            expected[at..at + 4].copy_from_slice(b"mark");
            for (which, reader) in readers.iter().enumerate() {
                assert!(read_all(reader) == expected, "{length} bytes, writer {number}, reader {which}");
            }
        }
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"end").unwrap();
        expected.extend(b"end");
        assert!(readers.iter().all(|reader| read_all(reader) == expected));
        assert!(fs::read(&path).unwrap() == expected);
    }
}

/// Opens in every mode come and go in random order, while the file grows and shrinks. At times it
/// is small and not open.
fn a_file_that_goes_from_small_to_large_and_back_keeps_its_bytes(mount: &TestMount) {
    for seed in 0..40 {
        let (mut random, path) = (Random::new(seed), mount.point().join(format!("file-{seed}")));
        let (mut expected, mut open) = (Vec::new(), Vec::<File>::new());
        File::create(&path).unwrap();
        for step in 0..60 {
            match random.below(8) {
                0 | 1 => open.push(any_open(&path, &mut random)),
                2 if !open.is_empty() => drop(open.swap_remove(random.below(open.len()))),
                3 => open.clear(),
                4 => {
                    let length = random.pick(&[0, 7, 4096, 9000, 200_000]);
                    expected.resize(length, 0);
                    OpenOptions::new().write(true).open(&path).unwrap().set_len(length as u64).unwrap();
                }
                5 | 6 => write_somewhere(&path, &mut expected, &mut random),
                _ => assert!(fs::read(&path).unwrap() == expected, "seed {seed}, step {step}"),
            }
            for file in &open {
                assert!(read_all(file) == expected, "seed {seed}, step {step}");
            }
        }
    }
}

fn any_open(path: &Path, random: &mut Random) -> File {
    let mut all = readers(path);
    all.swap_remove(random.below(all.len()))
}

fn write_somewhere(path: &Path, expected: &mut Vec<u8>, random: &mut Random) {
    let length = random.pick(&[1, 100, 4096, 50_000]);
    let at = random.below(expected.len() + 1);
    let data = vec![random.below(250_u8) + 1; length];
    let mut all = writers(path);
    all.swap_remove(random.below(all.len())).write_all_at(&data, at as u64).unwrap();
    expected.resize(expected.len().max(at + length), 0);
    expected[at..at + length].copy_from_slice(&data);
}

fn a_store_into_a_mapping_is_read_by_all_and_outlives_the_close(mount: &TestMount) {
    for length in [1000, 3 * MIB] {
        let path = mount.point().join(format!("file-{length}"));
        fs::write(&path, pattern(length)).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        // SAFETY: no process truncates the file.
        let mut map = unsafe { memmap2::MmapMut::map_mut(&file).unwrap() };
        drop(file);
        map[length / 2..length / 2 + 6].copy_from_slice(b"stored");
        map.flush().unwrap();
        let mut bytes = [0; 6];
        for reader in readers(&path) {
            reader.read_exact_at(&mut bytes, length as u64 / 2).unwrap();
            assert_eq!(&bytes, b"stored");
        }
        // Bytes written while the file is mapped and not open show in the mapping too.
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"beside", 3).unwrap();
        assert_eq!(&map[3..9], b"beside");
        map[..3].copy_from_slice(b"end");
        map.flush().unwrap();
        drop(map);
        assert_eq!(&fs::read(&path).unwrap()[..9], b"endbeside");
    }
}

fn a_mapping_is_written_back_to_its_place_whatever_else_appends(mount: &TestMount) {
    let path = mount.point().join("file");
    fs::write(&path, vec![b'.'; 20_000]).unwrap();
    // The kernel may write a mapping's pages back through any descriptor that is open for writing.
    let appenders: Vec<File> =
        (0..4).map(|_| OpenOptions::new().read(true).append(true).open(&path).unwrap()).collect();
    // SAFETY: no process truncates the file.
    let mut map = unsafe { memmap2::MmapMut::map_mut(&appenders[0]).unwrap() };
    map[10_000..10_004].copy_from_slice(b"here");
    map.flush().unwrap();
    drop(map);
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[10_000..10_004]), (20_000, &b"here"[..]));
    (&appenders[1]).write_all(b"last").unwrap();
    assert_eq!(&fs::read(&path).unwrap()[20_000..], b"last");
}

fn appending_begins_while_a_file_is_open(mount: &TestMount) {
    let path = mount.point().join("file");
    fs::write(&path, b"0123456789").unwrap();
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"XY", 0).unwrap();
    fcntl_setfl(&file, fcntl_getfl(&file).unwrap() | OFlags::APPEND).unwrap();
    file.seek(SeekFrom::Start(1)).unwrap();
    file.write_all(b"cd").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"XY23456789cd");
}

fn a_removed_and_a_renamed_file_are_written_on(mount: &TestMount) {
    for length in [10, 2 * MIB] {
        let at = |name: &str| mount.point().join(format!("{name}-{length}"));
        fs::write(at("a"), pattern(length)).unwrap();
        let mut file = OpenOptions::new().read(true).append(true).open(at("a")).unwrap();
        fs::rename(at("a"), at("b")).unwrap();
        file.write_all(b"renamed").unwrap();
        assert_eq!(&fs::read(at("b")).unwrap()[length..], b"renamed");
        fs::remove_file(at("b")).unwrap();
        file.write_all(b"removed").unwrap();
        let bytes = read_all(&file);
        assert!(bytes[..length] == pattern(length) && &bytes[length..] == b"renamedremoved");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        fs::write(at("b"), b"another").unwrap();
        assert_eq!(fs::read(at("b")).unwrap(), b"another");
        assert_eq!(read_all(&file).len(), length + 14);
    }
}

fn truncating_while_others_have_it_open_is_seen_by_them(mount: &TestMount) {
    let path = mount.point().join("file");
    fs::write(&path, pattern(MIB)).unwrap();
    let readers = readers(&path);
    assert!(readers.iter().all(|reader| read_all(reader).len() == MIB));
    let opened = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    assert!(readers.iter().all(|reader| read_all(reader).is_empty()));
    opened.write_all_at(b"tail", 100).unwrap();
    let mut expected = vec![0; 100];
    expected.extend(b"tail");
    assert!(readers.iter().all(|reader| read_all(reader) == expected), "what was cut does not come back");
    opened.set_len(50).unwrap();
    rustix::fs::ftruncate(&opened, 104).unwrap();
    assert!(readers.iter().all(|reader| read_all(reader) == vec![0; 104]));
}

fn times_and_size_follow_what_is_written(mount: &TestMount) {
    let path = mount.point().join("file");
    fs::write(&path, pattern(MIB)).unwrap();
    let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let age = || File::options().write(true).open(&path).unwrap().set_modified(past).unwrap();
    age();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), past);
    file.write_all_at(b"x", MIB as u64).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert!(found.len() == MIB as u64 + 1 && found.modified().unwrap() > past);
    assert!(found.ctime() >= found.mtime());
}

fn a_write_of_a_stranger_takes_the_set_id_bits_away(mount: &TestMount) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    fs::set_permissions(mount.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(mount.point(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = mount.point().join("file");
    fs::write(&path, pattern(100_000)).unwrap();
    for how in ["echo x >> FILE", "echo x 1<> FILE", "exec 3<> FILE; chmod_by_owner; echo x >&3", ": > FILE"] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        let script = how.replace("chmod_by_owner; ", "").replace("FILE", path.to_str().unwrap());
        let mut shell = Command::new("sh");
        std::os::unix::process::CommandExt::uid(&mut shell, 65_534);
        std::os::unix::process::CommandExt::gid(&mut shell, 65_534);
        assert!(shell.args(["-c", &script]).status().unwrap().success(), "{how}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777, "{how}");
    }
}

/// Only without passthrough: with it the kernel opens the backing once, with the flags of the first
/// open.
#[test]
fn appending_ends_while_a_file_is_open_the_ordinary_way() {
    needs_fuse!();
    let mount = mounted_with(pool(), &mount::MountOptions { passthrough: false, ..options() });
    let path = mount.point().join("file");
    fs::write(&path, b"0123456789").unwrap();
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    fcntl_setfl(&file, fcntl_getfl(&file).unwrap() - OFlags::APPEND).unwrap();
    file.write_all_at(b"XY", 0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"XY23456789");
}

#[test]
fn bound_inputs_are_read_past_us_and_one_that_changed_is_not() {
    needs_fuse!();
    let vfs = pool();
    let directory = tempfile::tempdir().unwrap();
    let host = |name: &str| -> PathBuf { directory.path().join(name) };
    for name in ["same", "changed"] {
        fs::write(host(name), pattern(MIB)).unwrap();
        let bound = vfs.bind(vfs::Vfs::root(), name.as_bytes(), &host(name));
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(bound).unwrap();
    }
    File::options().write(true).open(host("changed")).unwrap().set_len(10).unwrap();
    let mount = mounted_with(vfs, &options());
    assert!(fs::read(mount.point().join("same")).unwrap() == pattern(MIB));
    if rustix::process::geteuid().is_root() {
        assert_eq!(mount.mount.traffic().reads, 0);
    }
    let refused = fs::read(mount.point().join("changed")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::IO.raw_os_error()));
    assert!(fs::write(mount.point().join("same"), b"x").is_err());
    assert!(fs::read(host("same")).unwrap() == pattern(MIB));
}
#[test]
fn whole_files_are_read_and_written_past_us_where_the_kernel_allows_it() {
    needs_fuse!();
    let mount = mounted_with(pool(), &options());
    let path = mount.point().join("file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&pattern(4 * MIB)).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert!(bytes == pattern(4 * MIB));
    let traffic = mount.mount.traffic();
    if rustix::process::geteuid().is_root() {
        assert_eq!((traffic.reads, traffic.writes), (0, 0), "{traffic:?}");
    }
}
