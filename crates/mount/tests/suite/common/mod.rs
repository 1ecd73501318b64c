//! Shared helpers of the mount tests: pools, mount points.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{path::Path, sync::Arc, time::Duration};

use arena::Arena;
use base::ByteSize;
use client::Client;
use mount::{Mount, MountOptions};
use node::NodeSettings;
use tempfile::TempDir;
use vfs::Vfs;

/// Skips a test where FUSE cannot be used, and prints the reason.
macro_rules! needs_fuse {
    () => {
        if let Err(reason) = mount::availability() {
            println!("skipped: {reason}; {}", reason.hint());
            return;
        }
    };
}
pub(crate) use needs_fuse;

/// Skips a test where the kernel does not support prune notices.
macro_rules! needs_prune {
    () => {
        if !supports_prune() {
            println!("skipped: this needs Linux 6.18");
            return;
        }
    };
}
pub(crate) use needs_prune;

/// True if the kernel supports prune notices: Linux 6.18 or later.
pub fn supports_prune() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|end: char| !end.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 18)
}

/// Makes two tests of each body: with passthrough and without.
macro_rules! with_and_without_passthrough {
    ($($name:ident)*) => {
        mod passed_through { $(#[test] fn $name() { $crate::common::on_a_mount(true, super::$name); })* }
        mod ordinary { $(#[test] fn $name() { $crate::common::on_a_mount(false, super::$name); })* }
    };
}
pub(crate) use with_and_without_passthrough;

/// A pool with plenty of space.
pub fn pool() -> Vfs {
    pool_of(256 << 20, Duration::from_secs(10))
}

/// A pool that is soon full.
pub fn small_pool(space_wait: Duration) -> Vfs {
    pool_of(64 << 20, space_wait)
}

fn pool_of(memory_bytes: u64, space_wait: Duration) -> Vfs {
    let arena = Arena::new(arena::ArenaOptions::with_capacity(memory_bytes)).unwrap();
    let settings =
        NodeSettings { memory: ByteSize(memory_bytes), partitions: 64, space_wait, ..NodeSettings::default() };
    Vfs::new(Client::embedded(node::embedded(settings, Arc::new(arena))))
}

/// A mount and the directory that it covers. The mount is dropped first.
pub struct TestMount {
    pub mount: Mount,
    pub directory: TempDir,
}

impl TestMount {
    pub fn point(&self) -> &Path {
        self.mount.point()
    }
}

pub fn options() -> MountOptions {
    MountOptions::default()
}

pub fn mounted(vfs: Vfs) -> TestMount {
    mounted_with(vfs, &options())
}

#[expect(clippy::needless_pass_by_value, reason = "tests read better so")]
pub fn mounted_with(vfs: Vfs, options: &MountOptions) -> TestMount {
    let directory = tempfile::tempdir().unwrap();
    let mount = Mount::new(&vfs, directory.path(), options).unwrap();
    TestMount { mount, directory }
}

pub fn on_a_mount(passthrough: bool, body: fn(&TestMount)) {
    needs_fuse!();
    body(&mounted_with(pool(), &MountOptions { passthrough, shared: true, ..options() }));
}

/// Bytes that differ from place to place, also between stripes.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[1]).collect()
}
