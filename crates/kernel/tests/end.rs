//! The end of a session, alone in its process: after an unmount neither a thread nor a descriptor is left.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the failure")]

#[allow(dead_code, reason = "the other tests use more of it")]
mod common;

use common::Mounted;
use kernel::Config;

/// Not a test: what children run.
#[test]
#[ignore = "run by the other tests, in processes of their own"]
fn child() {
    common::child::run();
}

fn devices() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|link| link.path().read_link().ok());
    links.filter(|target| target.ends_with("fuse")).count()
}

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("kernel-")).count()
}

#[test]
fn nothing_is_left_behind_an_unmount() {
    let Some(mut mounted) = Mounted::new(&Config { threads: 4, ..Config::default() }) else { return };
    assert_eq!(devices(), 4, "a descriptor for each thread");
    assert_eq!(mounted.act("stat", "file"), 0);
    mounted.end();
    assert!(mounted.server.is_ended());
    // A joined thread may stand in the list for a moment more.
    assert!((0..1_000_000).any(|_| threads() == 0), "no thread");
    drop(mounted);
    assert_eq!(devices(), 0, "no descriptor");
}
