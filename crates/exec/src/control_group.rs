//! Finds the memory control group (cgroup) of this process, version 1 or 2, and its directory.
//!
//! ```text
//! /proc/self/cgroup       4:memory:/docker/ab/job           the group, from the hierarchy's root
//! /proc/self/mountinfo    ... /docker/ab /sys/fs/cgroup/memory ... - cgroup x rw,memory
//!                             root       mount point        => /sys/fs/cgroup/memory/job
//! ```
//!
//! Parsing does no I/O. `memory_group` makes groups.

use std::path::{Component, Path, PathBuf};

/// The two cgroup interfaces of the kernel. A memory controller is bound to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A separate hierarchy: `memory.limit_in_bytes`.
    One,
    /// The unified hierarchy: `memory.max`.
    Two,
}

/// A control group that accounts memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlGroup {
    /// The interface version, which determines its files.
    pub version: CgroupVersion,
    /// Its directory.
    pub dir: PathBuf,
}

/// Reasons why control groups cannot limit memory here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryGroupError {
    /// The kernel has no memory controller, or hides it.
    #[error("the kernel names no control group of this process that could account memory")]
    NoController,
    /// No mount shows the group; a container may hide the file system.
    #[error("no mounted file system shows the control group {0}")]
    NotMounted(String),
    /// Version 2: the group does not delegate the memory controller. It must be told to, and must
    /// have no processes itself.
    #[error("the control group {} does not pass the memory controller on to groups below it (cgroup.subtree_control)", .0.display())]
    NotDelegated(PathBuf),
    /// Version 1 on old kernels: child groups would escape the limits of this group.
    #[error("the control group {} does not count what groups below it take (memory.use_hierarchy)", .0.display())]
    NotHierarchical(PathBuf),
    /// An I/O error on a file or directory of the group.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl ControlGroup {
    /// Finds the memory control group of a process in its `/proc/PID/cgroup` and
    /// `/proc/PID/mountinfo`.
    ///
    /// # Errors
    /// There is no such group, or no mount shows its directory.
    pub fn parse(cgroup: &str, mountinfo: &str) -> Result<Self, MemoryGroupError> {
        let (version, path) = membership(cgroup).ok_or(MemoryGroupError::NoController)?;
        let mounts = mountinfo.lines().filter_map(CgroupMount::parse).filter(|mount| mount.shows_memory(version));
        // A later mount covers an earlier one.
        let dir = mounts.filter_map(|mount| mount.locate(Path::new(path))).next_back();
        dir.map(|dir| Self { version, dir }).ok_or_else(|| MemoryGroupError::NotMounted(path.to_owned()))
    }
}

/// Returns the version of the memory controller and the path of the group. Version 1 wins if both
/// are in use, because the controller is bound to one.
fn membership(cgroup: &str) -> Option<(CgroupVersion, &str)> {
    let of = |wanted: fn(&str) -> bool| {
        cgroup.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            wanted(controllers).then_some(path)
        })
    };
    let one = of(|controllers| controllers.split(',').any(|name| name == "memory"));
    one.map(|path| (CgroupVersion::One, path)).or_else(|| of(str::is_empty).map(|path| (CgroupVersion::Two, path)))
}

/// A line of mountinfo.
struct CgroupMount<'a> {
    /// The mounted part of the file system.
    root: PathBuf,
    /// The mount point.
    point: PathBuf,
    kind: &'a str,
    super_options: &'a str,
}

impl<'a> CgroupMount<'a> {
    /// Parses `36 35 0:32 ROOT POINT OPTIONS [TAGS ...] - TYPE SOURCE SUPER_OPTIONS`.
    fn parse(line: &'a str) -> Option<Self> {
        let (own, rest) = line.split_once(" - ")?;
        let mut own = own.split(' ').skip(3);
        let mut rest = rest.split(' ');
        let (root, point) = (unescape(own.next()?), unescape(own.next()?));
        Some(Self { root, point, kind: rest.next()?, super_options: rest.nth(1)? })
    }

    fn shows_memory(&self, version: CgroupVersion) -> bool {
        match version {
            CgroupVersion::One => {
                self.kind == "cgroup" && self.super_options.split(',').any(|option| option == "memory")
            }
            CgroupVersion::Two => self.kind == "cgroup2",
        }
    }

    /// Returns the directory of a group if this mount shows it. Groups outside our namespace have
    /// paths with `/../..`.
    fn locate(&self, group: &Path) -> Option<PathBuf> {
        let below = group.strip_prefix(&self.root).ok()?;
        let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        plain.then(|| if below.as_os_str().is_empty() { self.point.clone() } else { self.point.join(below) })
    }
}

/// Decodes the octal escapes of mountinfo (`\040` for a blank).
fn unescape(word: &str) -> PathBuf {
    let mut parts = word.split('\\');
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |mut text, part| {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            None => text.extend(["\\", part]),
        }
        text
    });
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "9:name=systemd:/\n4:cpu,memory:/job/step\n0::/unified\n";
    const TWO: &str = "0::/user.slice/x.scope\n";
    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,cpu,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
";

    fn found(cgroup: &str, mounts: &str) -> Option<(CgroupVersion, String)> {
        let group = ControlGroup::parse(cgroup, mounts).ok()?;
        Some((group.version, group.dir.to_str().unwrap().to_owned()))
    }

    #[test]
    fn a_memory_controller_of_version_one_counts_also_beside_the_unified_hierarchy() {
        assert_eq!(found(ONE, MOUNTS), Some((CgroupVersion::One, "/sys/fs/cgroup/memory/job/step".into())));
    }

    #[test]
    fn a_group_of_version_two_is_found() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(found(TWO, mounts), Some((CgroupVersion::Two, "/sys/fs/cgroup/user.slice/x.scope".into())));
        assert_eq!(
            found("0::/\n", mounts),
            Some((CgroupVersion::Two, "/sys/fs/cgroup".into())),
            "the root of a namespace"
        );
    }

    #[test]
    fn a_part_of_the_hierarchy_that_is_mounted_is_where_its_groups_are() {
        let mounts = "35 31 0:32 /docker/ab /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let inside = found("4:memory:/docker/ab\n", mounts);
        assert_eq!(inside, Some((CgroupVersion::One, "/sys/fs/cgroup/memory".into())));
        let below = found("4:memory:/docker/ab/c\n", mounts);
        assert_eq!(below, Some((CgroupVersion::One, "/sys/fs/cgroup/memory/c".into())));
        assert_eq!(found("4:memory:/docker/abc\n", mounts), None, "another group whose name begins alike");
    }

    #[test]
    fn a_group_that_no_mount_shows_is_none() {
        let message = |cgroup, mounts| ControlGroup::parse(cgroup, mounts).unwrap_err().to_string();
        assert!(message("4:memory:/../other\n", MOUNTS).contains("/../other"), "outside of our namespace");
        assert!(message(TWO, "").contains("/user.slice/x.scope"));
        assert!(message("9:name=systemd:/\n3:cpuset:/\nnonsense\n", MOUNTS).contains("no control group"));
    }

    #[test]
    fn the_mount_on_top_counts_and_escapes_are_undone() {
        let mounts = "1 2 0:3 / /a rw - cgroup2 x rw\n4 2 0:3 / /b\\040c\\134 rw - cgroup2 x rw\nnonsense\n";
        assert_eq!(found("0::/g\n", mounts), Some((CgroupVersion::Two, "/b c\\/g".into())));
    }
}
