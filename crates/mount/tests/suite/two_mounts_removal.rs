//! Two mounts of one pool: inodes that one mount removes while the other one's kernel knows them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::*;
use mount::MountOptions;
use std::{
    fs::{self, File},
    io::{ErrorKind, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};
use test_support::until;
use vfs::Vfs;

struct Pair {
    one: TestMount,
    other: TestMount,
    vfs: Vfs,
    /// Number of inodes before the test creates any.
    files: u64,
}

impl Pair {
    fn of(vfs: Vfs, passthrough: bool) -> Self {
        let options = MountOptions { passthrough, ..options() };
        let (one, other) = (mounted_with(vfs.clone(), &options), mounted_with(vfs.clone(), &options));
        let files = vfs.usage().files;
        Self { one, other, vfs, files }
    }

    fn both_paths(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.one.point().join(name), self.other.point().join(name))
    }

    /// Waits until all removed inodes are gone: only the initial ones and `made` more exist.
    fn has_only(&self, made: u64) {
        until("what was removed goes", || self.vfs.usage().files == self.files + made);
    }
}

/// Runs a test on a pool with passthrough and on one without.
fn with_and_without_passthrough(test: fn(&Pair)) {
    needs_fuse!();
    needs_prune!();
    for passthrough in [true, false] {
        test(&Pair::of(pool(), passthrough));
    }
}

/// Content that repeats one byte: small enough to be inline, or longer.
fn content(round: u64) -> Vec<u8> {
    vec![round.to_le_bytes()[0]; if round.is_multiple_of(2) { 100 } else { 9000 }]
}

/// Replaces a file by rename again and again, while `look` runs all the time.
fn replaced_meanwhile(path: &Path, rounds: u64, looks: [&(dyn Fn() + Sync); 2]) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for look in looks {
            let over = &over;
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    look();
                }
            });
        }
        let new = path.with_extension("new");
        for round in 1..=rounds {
            fs::write(&new, content(round)).unwrap();
            fs::rename(&new, path).unwrap();
        }
        over.store(true, SeqCst);
    });
}

#[test]
fn a_name_that_one_mount_replaces_is_opened_through_the_other_at_every_moment() {
    with_and_without_passthrough(|pair| {
        let (here, there) = pair.both_paths("f");
        fs::write(&here, content(0)).unwrap();
        let read = || {
            let bytes = fs::read(&there).expect("the old file or the new one, never none");
            assert!([100, 9000].contains(&bytes.len()), "{} bytes", bytes.len());
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "of two files");
        };
        let stat = || assert!([100, 9000].contains(&fs::metadata(&there).expect("there").len()));
        replaced_meanwhile(&here, 3000, [&read, &stat]);
        pair.has_only(1);
    });
}

#[test]
fn a_link_to_a_name_that_another_mount_replaces_is_made_or_finds_none() {
    with_and_without_passthrough(|pair| {
        let ((here, there), (_, link)) = (pair.both_paths("f"), pair.both_paths("g"));
        fs::write(&here, content(0)).unwrap();
        let make = || match fs::hard_link(&there, &link) {
            Ok(()) => fs::remove_file(&link).unwrap(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        };
        let open = || drop(File::open(&there).unwrap());
        replaced_meanwhile(&here, 2000, [&make, &open]);
        pair.has_only(1);
    });
}

#[test]
fn what_one_mount_removes_and_the_other_has_open_goes_with_its_close() {
    with_and_without_passthrough(|pair| {
        for length in [10, 50_000] {
            let (here, there) = pair.both_paths("f");
            fs::write(&here, vec![9; length]).unwrap();
            let mut open = File::open(&there).unwrap();
            fs::remove_file(&here).unwrap();
            let mut bytes = Vec::new();
            open.read_to_end(&mut bytes).unwrap();
            assert!(bytes == vec![9; length]);
            assert_eq!(open.metadata().unwrap().nlink(), 0);
            drop(open);
            pair.has_only(0);
        }
    });
}

#[test]
fn what_one_mount_removes_or_moves_under_the_names_that_the_other_knows_goes_with_its_last_name() {
    with_and_without_passthrough(|pair| {
        let ((one, there), (two, _), (three, third)) =
            (pair.both_paths("f"), pair.both_paths("g"), pair.both_paths("h"));
        fs::write(&one, b"bytes").unwrap();
        fs::hard_link(&one, &two).unwrap();
        for name in [&there, &pair.other.point().join("g")] {
            fs::metadata(name).unwrap();
        }
        fs::remove_file(&two).unwrap();
        fs::rename(&one, &three).unwrap();
        assert_eq!(fs::metadata(&third).unwrap().nlink(), 1);
        fs::remove_file(&third).unwrap();
        pair.has_only(0);
    });
}

#[test]
fn trees_that_one_mount_makes_and_the_other_removes_leave_nothing() {
    with_and_without_passthrough(|pair| {
        for round in 0..5 {
            let (here, there) = pair.both_paths("tree");
            for directory in 0..10 {
                let directory = here.join(format!("d{directory}/e"));
                fs::create_dir_all(&directory).unwrap();
                (0..10).for_each(|file| fs::write(directory.join(format!("f{file}")), content(file)).unwrap());
            }
            let looked = if round % 2 == 0 { &there } else { &here };
            assert!(fs::metadata(looked.join("d0/e/missing")).is_err(), "which a kernel remembers");
            fs::remove_dir_all(&there).unwrap();
            assert!(fs::metadata(&here).is_err());
        }
        pair.has_only(0);
    });
}

#[test]
fn space_that_the_other_mounts_kernel_must_let_go_of_first_is_there_for_who_waits() {
    needs_fuse!();
    for passthrough in [true, false] {
        let pair = Pair::of(small_pool(Duration::from_secs(10)), passthrough);
        let (here, there) = pair.both_paths("f");
        for round in 0..4 {
            fs::write(&here, vec![round; 40 << 20]).unwrap();
            assert!(fs::read(&there).unwrap() == vec![round; 40 << 20]);
            fs::remove_file(&here).unwrap();
        }
        pair.has_only(0);
    }
}
