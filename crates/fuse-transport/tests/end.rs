//! Shutdown of a session, in a process of its own: after an unmount no thread or descriptor is
//! left.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the failure")]

#[allow(dead_code, reason = "the other tests use more of it")]
mod common;

use common::Mounted;
use fuse_transport::Config;

/// Not a test: the entry point of child processes.
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

/// Polls a condition: a thread gets its name, or leaves the list, slightly after its start or join.
fn comes_true(holds: impl Fn() -> bool) -> bool {
    (0..100_000).any(|_| holds())
}

#[test]
fn nothing_is_left_behind_an_unmount() {
    let Some(mut mounted) = Mounted::new(&Config { threads: 4, ..Config::default() }) else { return };
    assert_eq!(devices(), 4, "a descriptor for each thread");
    for _ in 0..4 {
        assert_eq!(mounted.act("stat", "file"), 0);
    }
    assert!(comes_true(|| threads() == 4), "each thread hears the connection through its descriptor");
    mounted.end();
    assert!(mounted.server.is_closed());
    assert!(comes_true(|| threads() == 0), "no thread");
    drop(mounted);
    assert_eq!(devices(), 0, "no descriptor");
}
