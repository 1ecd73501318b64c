//! Compares the mount with an ordinary directory: equal random operations give equal results and
//! leave equal trees.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use crate::common::{mounted, needs_fuse, pattern, pool};
use test_support::Random;

/// Operations of each seed; about 1 ms each.
const STEPS: u32 = 2_500;
/// Small enough to be fast, large enough to leave the inode and to cross stripes.
const LENGTH_MAX: u64 = 1_500_000;

/// A path in a small tree, so that operations often meet. Its last name usually has the prefix of
/// its kind, and sometimes that of another kind.
fn a_path(random: &mut Random, kind: &str) -> String {
    let directory = |random: &mut Random| format!("d{}/", random.below(3));
    let directories: String = (0..random.below(3)).map(|_| directory(random)).collect();
    let kind = if random.below(12) == 0 { random.pick(&["d", "f", "l"]) } else { kind };
    format!("{directories}{kind}{}", random.below(4))
}

/// One step, applied to either root.
#[derive(Debug)]
enum Step {
    Create(String),
    Write(String, u64, usize),
    Append(String, usize),
    Truncate(String, u64),
    Read(String, u64, usize),
    Rename(String, String),
    MakeDirectory(String),
    RemoveDirectory(String),
    RemoveFile(String),
    Link(String),
    Mode(String, u32),
    List(String),
}

fn a_step(random: &mut Random) -> Step {
    let kind = random.pick(&["f", "f", "d"]);
    let file = a_path(random, "f");
    let length = |random: &mut Random| {
        if random.below(4) == 0 { random.below(300_000_usize) } else { random.below(9_000) }
    };
    match random.below(26) {
        0..4 => Step::Create(file),
        4..8 => Step::Write(file, random.below(LENGTH_MAX), length(random)),
        8..10 => Step::Append(file, length(random)),
        10..12 => Step::Truncate(file, random.below(LENGTH_MAX)),
        12..14 => Step::Read(file, random.below(LENGTH_MAX), length(random)),
        14..16 => Step::Rename(a_path(random, kind), a_path(random, kind)),
        16..20 => Step::MakeDirectory(a_path(random, "d")),
        20 => Step::RemoveDirectory(a_path(random, "d")),
        21 => Step::RemoveFile(file),
        22 => Step::Link(a_path(random, "l")),
        23 => Step::Mode(a_path(random, kind), random.below(0o200) | 0o700),
        _ => Step::List(a_path(random, "d")),
    }
}

/// Applies a step; returns the bytes or names that it read.
fn take(step: &Step, root: &Path) -> io::Result<Vec<u8>> {
    let none = |()| Vec::new();
    match step {
        Step::Create(path) => OpenOptions::new().write(true).create_new(true).open(root.join(path)).map(|_| Vec::new()),
        Step::Write(path, offset, length) => {
            // Half of the writes also open for reading, which uses the page cache.
            let file = OpenOptions::new().read(length % 2 == 0).write(true).open(root.join(path))?;
            file.write_all_at(&pattern(*length), *offset).map(none)
        }
        Step::Append(path, length) => {
            io::Write::write_all(&mut OpenOptions::new().append(true).open(root.join(path))?, &pattern(*length))
                .map(none)
        }
        Step::Truncate(path, length) => {
            OpenOptions::new().write(true).open(root.join(path))?.set_len(*length).map(none)
        }
        Step::Read(path, offset, length) => {
            let mut data = vec![0; *length];
            let read = fs::File::open(root.join(path))?.read_at(&mut data, *offset)?;
            data.truncate(read);
            Ok(data)
        }
        Step::Rename(from, to) => fs::rename(root.join(from), root.join(to)).map(none),
        Step::MakeDirectory(path) => fs::create_dir(root.join(path)).map(none),
        Step::RemoveDirectory(path) => fs::remove_dir(root.join(path)).map(none),
        Step::RemoveFile(path) => fs::remove_file(root.join(path)).map(none),
        Step::Link(path) => symlink("somewhere/else", root.join(path)).map(none),
        Step::Mode(path, mode) => fs::set_permissions(root.join(path), fs::Permissions::from_mode(*mode)).map(none),
        Step::List(path) => {
            let mut names: Vec<_> = fs::read_dir(root.join(path))?.map(|entry| entry.unwrap().file_name()).collect();
            names.sort_unstable();
            Ok(names.join(std::ffi::OsStr::new("/")).into_encoded_bytes())
        }
    }
}

/// Everything that a walk can see: kind, mode, length, number of links, content.
fn tree(root: &Path) -> BTreeMap<String, (u32, u64, u64, Vec<u8>)> {
    let mut seen = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let (content, length) = match () {
                () if meta.is_dir() => (Vec::new(), 0),
                () if meta.is_symlink() => {
                    (fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(), meta.len())
                }
                () => (fs::read(&path).unwrap(), meta.len()),
            };
            if meta.is_dir() {
                open.push(path.clone());
            }
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            seen.insert(name, (meta.mode(), meta.nlink(), length, content));
        }
    }
    seen
}

fn compare(seed: u64) {
    let mount = mounted(pool());
    let plain = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut random = Random::new(seed);
    let mut done = 0;
    for number in 0..STEPS {
        let step = a_step(&mut random);
        let (ours, theirs) = (take(&step, mount.point()), take(&step, plain.path()));
        let (ours, theirs) = (ours.map_err(|error| error.raw_os_error()), theirs.map_err(|error| error.raw_os_error()));
        assert!(
            ours == theirs,
            "seed {seed}, step {number}: {step:?}: {:?} but {:?} on a disk",
            brief(&ours),
            brief(&theirs)
        );
        done += u32::from(ours.is_ok());
    }
    assert!(done > STEPS / 4, "seed {seed}: only {done} of {STEPS} steps did something, so nothing is shown");
    let (ours, theirs) = (tree(mount.point()), tree(plain.path()));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "seed {seed}");
    for (name, ours) in &ours {
        assert!(
            *ours == theirs[name],
            "seed {seed}: {name}: {:?} but {:?}",
            (ours.0, ours.1, ours.2),
            (theirs[name].0, theirs[name].1, theirs[name].2)
        );
    }
}

fn brief(outcome: &Result<Vec<u8>, Option<i32>>) -> Result<(usize, &[u8]), Option<i32>> {
    outcome.as_ref().map(|data| (data.len(), &data[..data.len().min(40)])).map_err(|error| *error)
}

#[test]
fn the_mount_answers_as_an_ordinary_directory_does() {
    needs_fuse!();
    for seed in [1, 2, 3] {
        compare(seed);
    }
}
