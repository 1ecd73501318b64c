//! Two mounts of one pool, and direct use of the pool: all views are consistent, and there is no
//! deadlock.
//!
//! Child processes of this test binary make the storms. Every test has a watchdog that unmounts by
//! force, so a deadlock fails the test and does not hang it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::*;
use mount::MountOptions;
use placement::FileId;
use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    pin::pin,
    process::{Child, Command},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};
use test_support::{Random, until};
use vfs::Vfs;

/// Time limit of a test, far longer than any of them takes.
const TIME_MAX: Duration = Duration::from_mins(2);
/// Environment variable with a child's task; not set in the tests themselves.
const TASK: &str = "TIDEMILL_TEST_TASK";
const PLACE: &str = "TIDEMILL_TEST_PLACE";

/// Pairs of mounts with different I/O paths: both with passthrough, both without, one of each.
fn option_pairs() -> [(MountOptions, MountOptions); 3] {
    let passthrough = options;
    let ordinary = || MountOptions { passthrough: false, ..options() };
    [(passthrough(), passthrough()), (ordinary(), ordinary()), (passthrough(), ordinary())]
}

/// A pool mounted twice.
struct Pair {
    one: TestMount,
    other: TestMount,
    vfs: Vfs,
    watchdog: Watchdog,
}

impl Pair {
    fn new((one, other): (MountOptions, MountOptions)) -> Self {
        let vfs = pool();
        let (one, other) = (mounted_with(vfs.clone(), &one), mounted_with(vfs.clone(), &other));
        let watchdog = Watchdog::over([one.point(), other.point()].map(Path::to_owned).to_vec());
        Self { one, other, vfs, watchdog }
    }

    /// A path through both mounts.
    fn both_paths(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.one.point().join(name), self.other.point().join(name))
    }
}

/// Unmounts by force unless dropped in time. That aborts the FUSE connections, so processes that
/// hang in them fail.
struct Watchdog {
    over: Arc<(Mutex<bool>, Condvar)>,
}

impl Watchdog {
    fn over(points: Vec<PathBuf>) -> Self {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&over);
        thread::spawn(move || {
            let (lock, changed) = &*told;
            let guard = lock.lock().unwrap();
            let (ended, _) = changed.wait_timeout_while(guard, TIME_MAX, |ended| !*ended).unwrap();
            if !*ended {
                let force = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
                for point in points {
                    rustix::mount::unmount(&point, force).ok();
                }
            }
        });
        Self { over }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.over.0.lock().unwrap() = true;
        self.over.1.notify_all();
    }
}

/// Starts this test binary again, with a task in a directory.
fn child(task: &str, place: &Path) -> Child {
    let (_crate, module) = module_path!().split_once("::").unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::a_child_does_its_task"), "--nocapture"]);
    command.env(TASK, task).env(PLACE, place).stdout(std::process::Stdio::null());
    command.spawn().unwrap()
}

fn all_end_well(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().unwrap().success(), "a child says above what went wrong");
    }
}

#[test]
fn a_child_does_its_task() {
    let (Ok(task), Ok(place)) = (env::var(TASK), env::var(PLACE)) else { return };
    let (task, seed) = task.split_once(' ').unwrap();
    let (place, random) = (Path::new(&place), Random::new(seed.parse().unwrap()));
    match task {
        "names" => storm_of_names(place, random),
        "bytes" => storm_of_bytes(place, random),
        other => panic!("no such task: {other}"),
    }
}

/// Random operations on names. Any step may fail, because names come and go.
fn storm_of_names(place: &Path, mut random: Random) {
    for _ in 0..1500 {
        let mut name = || place.join(format!("n{}", random.below(6)));
        let (one, other) = (name(), name());
        let done = match random.below(8) {
            0 => File::create(&one).map(drop),
            1 => fs::remove_file(&one),
            2 => fs::metadata(&one).map(drop),
            3 => fs::read_dir(place).map(|entries| entries.for_each(drop)),
            4 => File::open(&one).map(drop),
            _ => fs::rename(&one, &other),
        };
        if let Err(error) = done {
            let usual = error.kind() == ErrorKind::NotFound
                || !supports_prune() && error.kind() == ErrorKind::StaleNetworkFileHandle;
            assert!(usual, "{} or {}: {error}", one.display(), other.display());
        }
    }
}

/// Writes pieces of pages, so that the kernel holds a page while it writes.
fn storm_of_bytes(place: &Path, mut random: Random) {
    let file = OpenOptions::new().read(true).write(true).open(place.join("shared")).unwrap();
    for _ in 0..1500 {
        let at = random.below(64 << 10);
        if random.below(3) == 0 {
            file.read_at(&mut [0; 300], at).unwrap();
        } else {
            file.write_all_at(&[random.byte(); 100], at).unwrap();
        }
    }
}

/// Names in a directory, sorted.
fn names(point: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(point).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn is_missing(path: &Path) -> bool {
    matches!(fs::symlink_metadata(path), Err(error) if error.kind() == ErrorKind::NotFound)
}

#[test]
fn names_that_come_and_go_through_one_mount_do_so_in_the_other_at_once() {
    needs_fuse!();
    let pair = Pair::new((options(), options()));
    for round in 0..50 {
        let (here, there) = pair.both_paths("f");
        let (to_here, to_there) = pair.both_paths("g");
        assert!(is_missing(&there) && is_missing(&to_there), "round {round}: and that is remembered");
        fs::write(&here, b"bytes").unwrap();
        assert_eq!(fs::metadata(&there).unwrap().len(), 5);
        assert_eq!(names(pair.other.point()), ["f"]);
        fs::rename(&there, &to_there).unwrap();
        assert!(is_missing(&here) && !is_missing(&to_here));
        assert_eq!(names(pair.one.point()), ["g"]);
        fs::remove_file(&to_here).unwrap();
        assert!(is_missing(&to_there));
        fs::create_dir_all(pair.one.point().join("d/e")).unwrap();
        assert!(pair.other.point().join("d/e").is_dir());
        fs::remove_dir(pair.other.point().join("d/e")).unwrap();
        fs::remove_dir(pair.one.point().join("d")).unwrap();
        assert!(is_missing(&pair.other.point().join("d")));
    }
}

#[test]
fn attributes_that_change_through_one_mount_do_so_in_the_other_at_once() {
    needs_fuse!();
    for options_of_pair in option_pairs() {
        let pair = Pair::new(options_of_pair);
        let (here, there) = pair.both_paths("f");
        fs::write(&here, b"").unwrap();
        for round in 1..60_u32 {
            let before = fs::metadata(&there).unwrap();
            assert_eq!(before.len(), u64::from(round - 1) * 3000);
            fs::set_permissions(&here, fs::Permissions::from_mode(0o600 + round % 8)).unwrap();
            assert_eq!(fs::metadata(&there).unwrap().mode() & 0o777, 0o600 + round % 8);
            OpenOptions::new().append(true).open(&here).unwrap().write_all(&[7; 3000]).unwrap();
            let (one, other) = (fs::metadata(&here).unwrap(), fs::metadata(&there).unwrap());
            let shown = |found: &fs::Metadata| {
                (found.len(), found.mode(), found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec())
            };
            assert_eq!(shown(&one), shown(&other));
            assert!(other.mtime_nsec() != before.mtime_nsec() || other.mtime() >= before.mtime());
            let time = std::time::UNIX_EPOCH + Duration::from_secs(u64::from(round) * 1000);
            File::open(&there).unwrap().set_modified(time).unwrap();
            assert_eq!(fs::metadata(&here).unwrap().modified().unwrap(), time);
        }
        let linked = pair.both_paths("g");
        fs::hard_link(&here, &linked.0).unwrap();
        assert_eq!(fs::metadata(&there).unwrap().nlink(), 2);
        fs::remove_file(&linked.1).unwrap();
        assert_eq!((fs::metadata(&here).unwrap().nlink(), fs::metadata(&there).unwrap().nlink()), (1, 1));
    }
}

#[test]
fn bytes_that_are_written_through_one_mount_are_read_through_the_other_at_once() {
    needs_fuse!();
    for options_of_pair in option_pairs() {
        let pair = Pair::new(options_of_pair);
        for length in [5, 4096, 5000, 200_000, 3 << 20] {
            let (here, there) = pair.both_paths(&format!("f{length}"));
            fs::write(&here, vec![0; length]).unwrap();
            let mut open = File::open(&there).unwrap();
            for round in 1..=12_u8 {
                let writer = if round % 2 == 0 { &there } else { &here };
                OpenOptions::new().write(true).open(writer).unwrap().write_all(&vec![round; length]).unwrap();
                for path in [&here, &there] {
                    assert!(fs::read(path).unwrap() == vec![round; length], "{length} bytes, round {round}");
                }
                let mut through_the_old = Vec::new();
                open.seek(SeekFrom::Start(0)).unwrap();
                open.read_to_end(&mut through_the_old).unwrap();
                assert!(through_the_old == vec![round; length], "{length} bytes, round {round}, an open from before");
            }
            File::options().write(true).open(&here).unwrap().set_len(3).unwrap();
            assert_eq!(fs::read(&there).unwrap(), [12; 3]);
        }
    }
}

#[test]
fn what_is_written_beside_the_mounts_shows_in_both_at_once() {
    needs_fuse!();
    let pair = Pair::new((options(), options()));
    for round in 0..100_u8 {
        now(pair.vfs.write_file(b"f", &vec![round; 6000])).unwrap();
        for mount in [&pair.one, &pair.other] {
            assert!(fs::read(mount.point().join("f")).unwrap() == vec![round; 6000], "round {round}");
            assert_eq!(names(mount.point()), ["f"]);
        }
        now(pair.vfs.unlink(FileId::ROOT, b"f")).unwrap();
        for mount in [&pair.one, &pair.other] {
            assert!(is_missing(&mount.point().join("f")), "round {round}");
        }
    }
}

/// Polls a future to completion on this thread.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        thread::yield_now();
    }
}

#[test]
fn a_mapping_shows_what_is_written_through_the_other_mount() {
    needs_fuse!();
    let same = option_pairs().into_iter().take(2);
    for options_of_pair in same {
        let pair = Pair::new(options_of_pair);
        let (here, there) = pair.both_paths("f");
        fs::write(&here, vec![0; 100_000]).unwrap();
        let file = File::open(&there).unwrap();
        // SAFETY: the file keeps its length while it is mapped.
        let map = unsafe { memmap2::Mmap::map(&file).unwrap() };
        let writer = OpenOptions::new().write(true).open(&here).unwrap();
        for round in 1..=50 {
            writer.write_all_at(&vec![round; 100_000], 0).unwrap();
            assert!(map.iter().all(|byte| *byte == round), "round {round}");
        }
    }
}

#[test]
fn what_is_stored_into_a_mapping_and_synced_is_read_through_the_other_mount() {
    needs_fuse!();
    let same = option_pairs().into_iter().take(2);
    for options_of_pair in same {
        let pair = Pair::new(options_of_pair);
        let (here, there) = pair.both_paths("f");
        fs::write(&here, vec![0; 100_000]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&here).unwrap();
        // SAFETY: the file keeps its length while it is mapped.
        let mut map = unsafe { memmap2::MmapMut::map_mut(&file).unwrap() };
        let mut reader = File::open(&there).unwrap();
        for round in 1..=20 {
            map.fill(round);
            map.flush().unwrap();
            until("the other mount reads what was synced", || {
                let mut bytes = Vec::new();
                reader.seek(SeekFrom::Start(0)).unwrap();
                reader.read_to_end(&mut bytes).unwrap();
                bytes == vec![round; 100_000]
            });
        }
    }
}

/// Polls until `end` is seen. Each poll must see at least the value that any earlier one saw.
fn check_growth(floor: &AtomicU64, end: u64, seen: impl Fn() -> u64) {
    while floor.load(SeqCst) < end {
        let least = floor.load(SeqCst);
        let seen = seen();
        assert!(seen >= least, "{seen} is older than {least}, which somebody was shown");
        floor.fetch_max(seen, SeqCst);
    }
}

#[test]
fn who_looks_through_one_mount_after_an_answer_of_the_other_sees_no_less() {
    needs_fuse!();
    for options_of_pair in option_pairs() {
        let pair = Pair::new(options_of_pair);
        let ((here, there), point) = (pair.both_paths("f"), pair.other.point());
        fs::write(&here, b"").unwrap();
        let (lengths, made, end) = (AtomicU64::new(0), AtomicU64::new(0), 400);
        let count = || {
            let mut last = made.load(SeqCst);
            while point.join(format!("n{}", last + 1)).exists() {
                last += 1;
            }
            assert!(last == 0 || point.join(format!("n{last}")).exists());
            last
        };
        thread::scope(|scope| {
            scope.spawn(|| check_growth(&lengths, end, || fs::metadata(&there).unwrap().len()));
            scope.spawn(|| check_growth(&lengths, end, || fs::read(&there).unwrap().len() as u64));
            scope.spawn(|| check_growth(&made, end, count));
            let mut file = OpenOptions::new().append(true).open(&here).unwrap();
            for step in 1..=end {
                File::create(pair.one.point().join(format!("n{step}"))).unwrap();
                made.fetch_max(step, SeqCst);
                file.write_all(b"x").unwrap();
                lengths.fetch_max(step, SeqCst);
            }
        });
    }
}

/// Regression: a kernel that asks for a file's length discards the reply if an invalidation of that
/// file arrives meanwhile.
#[test]
fn a_read_reaches_the_end_that_another_mount_wrote_while_others_make_the_kernel_forget_bytes_of_the_same_file() {
    const RECORD: usize = 1000;
    needs_fuse!();
    for options_of_pair in option_pairs() {
        let pair = Pair::new(options_of_pair);
        let (here, there) = pair.both_paths("f");
        fs::write(&here, vec![0; 8192]).unwrap();
        let stop = AtomicU64::new(0);
        let goes_on = || stop.load(SeqCst) == 0;
        let write_there = || OpenOptions::new().write(true).open(&there).unwrap();
        thread::scope(|scope| {
            let (reader, writer, noise) = (File::open(&here).unwrap(), write_there(), write_there());
            scope.spawn(move || {
                while goes_on() {
                    noise.write_all_at(b"noise", 100).unwrap();
                }
            });
            scope.spawn(|| {
                let file = File::open(&here).unwrap();
                while goes_on() {
                    file.read_exact_at(&mut [0; 5], 100).unwrap();
                }
            });
            for number in 0..100_u8 {
                let (at, wanted) = (8192 + u64::from(number) * RECORD as u64, [1 + number; RECORD]);
                writer.write_all_at(&wanted, at).unwrap();
                let mut found = [0; RECORD];
                let read = reader.read_at(&mut found, at);
                if read.as_ref().ok() != Some(&found.len()) || found != wanted {
                    stop.store(1, SeqCst);
                    panic!("record {number}: {read:?} read");
                }
            }
            stop.store(1, SeqCst);
        });
    }
}

#[test]
fn storms_of_renames_in_one_directory_from_both_mounts_end_and_leave_one_truth() {
    needs_fuse!();
    let pair = Pair::new((options(), options()));
    let places = [pair.one.point(), pair.other.point()];
    let children = (0..4).map(|seed| child(&format!("names {seed}"), places[seed % 2])).collect();
    all_end_well(children);
    let there = names(pair.one.point());
    assert_eq!(there, names(pair.other.point()));
    for name in (0..6).map(|number| format!("n{number}")) {
        let (one, other) = pair.both_paths(&name);
        let found = |path: &Path| fs::metadata(path).ok().map(|found| (found.ino(), found.nlink()));
        assert_eq!(found(&one), found(&other), "{name}");
        assert_eq!(found(&one).is_some(), there.contains(&name));
    }
}

#[test]
fn storms_of_writes_to_the_same_pages_from_both_mounts_end_and_leave_one_truth() {
    needs_fuse!();
    for options_of_pair in option_pairs() {
        let pair = Pair::new(options_of_pair);
        fs::write(pair.one.point().join("shared"), vec![0; 64 << 10]).unwrap();
        let begin = Instant::now();
        let places = [pair.one.point(), pair.other.point()];
        all_end_well((0..4).map(|seed| child(&format!("bytes {seed}"), places[seed % 2])).collect());
        let (one, other) = pair.both_paths("shared");
        assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "both read the same");
        assert!(begin.elapsed() < TIME_MAX, "nobody was waited for as long as the bound");
    }
}

#[test]
fn what_one_mount_holds_open_lives_when_the_other_removes_it_and_a_mount_that_ends_takes_its_own_along() {
    needs_fuse!();
    let Pair { one, other, vfs, watchdog: _watchdog } = Pair::new((options(), options()));
    let before = vfs.usage().files;
    fs::write(one.point().join("f"), vec![9; 50_000]).unwrap();
    let mut open = File::open(other.point().join("f")).unwrap();
    fs::remove_file(one.point().join("f")).unwrap();
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert!(bytes == vec![9; 50_000]);
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    drop(open);
    until("it goes with its last open", || vfs.usage().files == before);
    fs::write(one.point().join("g"), b"stays").unwrap();
    drop(other);
    assert_eq!(fs::read(one.point().join("g")).unwrap(), b"stays", "the first mount goes on alone");
    fs::remove_file(one.point().join("g")).unwrap();
    until("nobody is waited for any more", || vfs.usage().files == before);
}
