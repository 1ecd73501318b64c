//! A full pool: writers wait, continue, give up or are killed, and do not hold up other requests.
//! Needs a usable /dev/fuse.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::{TestMount, mounted_with, needs_fuse, options, small_pool};
use test_support::until;
use vfs::Vfs;

const MIB: usize = 1 << 20;

/// Mounts without passthrough: passthrough writes do not wait for space.
fn mounted(vfs: Vfs) -> TestMount {
    mounted_with(vfs, &mount::MountOptions { passthrough: false, ..options() })
}

/// Writes until the pool is full; returns the number of MiB written.
fn fill(mount: &TestMount, name: &str) -> usize {
    let mut file = File::create(mount.point().join(name)).unwrap();
    let piece = vec![7; MIB];
    for count in 0.. {
        match file.write_all(&piece) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                return count;
            }
        }
    }
    unreachable!("a pool of limited size takes no endless file");
}

/// Fills the pool through vfs. A pool with a short wait cannot be filled through the mount without
/// a wait.
fn fill_beside(vfs: &Vfs, mount: &TestMount) {
    let capacity = usize::try_from(vfs.usage().capacity).unwrap();
    fs::write(mount.point().join("hog"), vec![7; capacity / 10 * 9]).unwrap();
}

/// Starts a process that writes more than fits, and so waits.
fn waiting_writer(vfs: &Vfs, mount: &TestMount, name: &str) -> Child {
    let target = format!("of={}", mount.point().join(name).display());
    let bytes = format!("count={}", vfs.usage().capacity / MIB as u64 / 5);
    let child =
        Command::new("dd").args(["if=/dev/zero", "bs=1M", &bytes, &target]).stderr(Stdio::null()).spawn().unwrap();
    until("the writer waits", || vfs.usage().waiting > 0);
    child
}

#[test]
fn a_writer_is_told_no_space_after_the_bounded_wait_and_nothing_written_is_lost() {
    needs_fuse!();
    let wait = Duration::from_millis(300);
    let vfs = small_pool(wait);
    let mount = mounted(vfs.clone());
    let begin = Instant::now();
    let written = fill(&mount, "file");
    assert!(begin.elapsed() >= wait, "it waited for space first");
    assert!(written > 0);
    let data = fs::read(mount.point().join("file")).unwrap();
    assert!(data.len() >= written * MIB);
    assert!(data.iter().all(|byte| *byte == 7));
    assert!(vfs.usage().refused >= 1);
    fs::remove_file(mount.point().join("file")).unwrap();
    fs::write(mount.point().join("after"), vec![1; MIB]).unwrap();
}

#[test]
fn a_store_into_a_mapping_that_finds_no_space_is_told_by_msync() {
    needs_fuse!();
    let vfs = small_pool(Duration::from_millis(100));
    let mount = mounted(vfs.clone());
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(mount.point().join("map")).unwrap();
    file.set_len(8 * MIB as u64).unwrap();
    fill(&mount, "hog");
    // SAFETY: no process truncates the file.
    let mut map = unsafe { memmap2::MmapMut::map_mut(&file).unwrap() };
    map.fill(1);
    assert_eq!(map.flush().unwrap_err().kind(), ErrorKind::StorageFull);
    fs::remove_file(mount.point().join("hog")).unwrap();
}

#[test]
fn a_waiting_writer_goes_on_when_a_file_is_removed() {
    needs_fuse!();
    let vfs = small_pool(Duration::from_mins(1));
    let mount = mounted(vfs.clone());
    fill_beside(&vfs, &mount);
    let mut writer = waiting_writer(&vfs, &mount, "patient");
    // The writer waits a moment before its request is deferred, and would take space freed in that
    // moment.
    until("its request is deferred", || mount.mount.traffic().deferred_requests > 0);
    fs::remove_file(mount.point().join("hog")).unwrap();
    assert!(writer.wait().unwrap().success());
    assert_eq!(mount.mount.traffic().deferred_requests, vfs.usage().waited);
}

#[test]
fn readers_and_removers_are_not_held_up_by_waiting_writers() {
    needs_fuse!();
    let vfs = small_pool(Duration::from_mins(1));
    let mount = mounted(vfs.clone());
    fill_beside(&vfs, &mount);
    // More writers than threads that serve requests.
    let mut writers: Vec<Child> = (0..20).map(|number| waiting_writer(&vfs, &mount, &format!("w{number}"))).collect();
    until("all wait", || vfs.usage().waiting >= 20);
    let begin = Instant::now();
    assert_eq!(fs::read(mount.point().join("hog")).unwrap()[0], 7);
    assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 21);
    assert!(begin.elapsed() < Duration::from_secs(10));
    for writer in &mut writers {
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
}

#[test]
fn a_killed_waiting_writer_is_gone_at_once() {
    needs_fuse!();
    let vfs = small_pool(Duration::from_mins(1));
    let mount = mounted(vfs.clone());
    fill_beside(&vfs, &mount);
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::TERM, rustix::process::Signal::ABORT] {
        let mut writer = waiting_writer(&vfs, &mount, "victim");
        let begin = Instant::now();
        rustix::process::kill_process(rustix::process::Pid::from_child(&writer), signal).unwrap();
        assert!(!writer.wait().unwrap().success());
        assert!(begin.elapsed() < Duration::from_secs(5), "{signal:?} took {:?}", begin.elapsed());
        until("its wait is over", || vfs.usage().waiting == 0);
        fs::remove_file(mount.point().join("victim")).unwrap();
    }
}

#[test]
fn an_unmount_while_a_writer_waits_does_not_hang() {
    needs_fuse!();
    let vfs = small_pool(Duration::from_mins(1));
    let mount = mounted(vfs.clone());
    fill_beside(&vfs, &mount);
    let mut writer = waiting_writer(&vfs, &mount, "victim");
    let begin = Instant::now();
    assert_eq!(mount.mount.unmount().unwrap(), mount::UnmountOutcome::Detached);
    assert!(begin.elapsed() < Duration::from_secs(5));
    writer.kill().unwrap();
    writer.wait().unwrap();
    let ended = thread::spawn(move || mount.mount.wait());
    until("the session ends with its last user", || ended.is_finished());
}
