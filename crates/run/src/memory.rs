//! How much memory a pool may take: never more than the control group allows, half of what is free unless told.

use base::ByteSize;
use std::fs;
use std::path::{Path, PathBuf};

/// What the machine and the control group have to give, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the machine.
    pub total: u64,
    /// Memory that is free or can be freed without swapping.
    pub available: u64,
    /// What the control group still lets us take; none without a limit.
    pub group: Option<u64>,
}

/// A pool below this cannot hold even a few small files.
pub const POOL_BYTES_MIN: u64 = 16 << 20;

impl Limits {
    /// Reads the limits of this machine and of this process's control group (version 1 or 2).
    pub fn read() -> Self {
        let (total, available) = parse_meminfo(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
        Self { total, available, group: group_headroom(Path::new("/")) }
    }

    /// The size of the pool: what was asked for, or half of what is free; in both cases never above the group's limit.
    /// The second value says why it is less than was asked for.
    pub fn pool(&self, asked: Option<ByteSize>) -> (ByteSize, Option<String>) {
        let ceiling = self.group.unwrap_or(u64::MAX).min(self.total).max(POOL_BYTES_MIN);
        let wanted = asked.map_or(self.available / 2, |size| size.0);
        let size = ByteSize(wanted.clamp(POOL_BYTES_MIN, ceiling));
        let lowered = asked.filter(|asked| size < *asked).map(|asked| {
            let whose = if self.group.is_some_and(|group| group < self.total) {
                "the control group allows"
            } else {
                "the machine has"
            };
            format!("--memory {asked} is more than {whose}: the pool takes {size}")
        });
        (size, lowered)
    }
}

fn parse_meminfo(text: &str) -> (u64, u64) {
    let kib = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
            .unwrap_or(0)
    };
    (kib("MemTotal:") << 10, kib("MemAvailable:") << 10)
}

/// The least of (limit - used) over our control group and its parents.
fn group_headroom(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().filter_map(|line| line_headroom(root, line)).min()
}

/// One line of /proc/self/cgroup: `0::/path` (version 2) or `4:memory:/path` (version 1).
fn line_headroom(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (base, limit_file, used_file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
        "memory" => ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        _ => return None,
    };
    let base = root.join(base);
    let leaf: PathBuf = base.join(path.trim_start_matches('/'));
    leaf.ancestors()
        .take_while(|group| group.starts_with(&base))
        .filter_map(|group| {
            let limit = read_number(&group.join(limit_file))?;
            Some(limit.saturating_sub(read_number(&group.join(used_file)).unwrap_or(0)))
        })
        .min()
}

/// A number from a control file; `max` and the huge number of version 1 mean no limit.
fn read_number(path: &Path) -> Option<u64> {
    const UNLIMITED_V1: u64 = 1 << 62;
    fs::read_to_string(path).ok()?.trim().parse().ok().filter(|number| *number < UNLIMITED_V1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("has a parent")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn half_of_the_free_memory_is_taken_unless_told() {
        let limits = Limits { total: 8 << 30, available: 4 << 30, group: None };
        assert_eq!(limits.pool(None), (ByteSize(2 << 30), None));
        assert_eq!(limits.pool(Some(ByteSize(1 << 30))).0, ByteSize(1 << 30));
    }

    #[test]
    fn the_group_limit_is_never_passed_and_that_is_said() {
        let limits = Limits { total: 8 << 30, available: 4 << 30, group: Some(1 << 30) };
        assert_eq!(limits.pool(None).0, ByteSize(1 << 30));
        let (size, why) = limits.pool(Some(ByteSize(2 << 30)));
        assert_eq!(size, ByteSize(1 << 30));
        assert!(why.expect("said").contains("control group"));
    }

    #[test]
    fn the_tightest_group_up_the_tree_counts() {
        let root = tempfile::tempdir().expect("made");
        write(&root.path().join("proc/self/cgroup"), "0::/job/step\n");
        write(&root.path().join("sys/fs/cgroup/job/memory.max"), "1000\n");
        write(&root.path().join("sys/fs/cgroup/job/memory.current"), "400\n");
        write(&root.path().join("sys/fs/cgroup/job/step/memory.max"), "max\n");
        assert_eq!(group_headroom(root.path()), Some(600));
    }

    #[test]
    fn version_one_groups_are_read_and_their_unlimited_is_no_limit() {
        let root = tempfile::tempdir().expect("made");
        write(&root.path().join("proc/self/cgroup"), "5:cpu:/x\n4:memory:/job\n");
        write(&root.path().join("sys/fs/cgroup/memory/memory.limit_in_bytes"), "9223372036854771712\n");
        write(&root.path().join("sys/fs/cgroup/memory/job/memory.limit_in_bytes"), "500\n");
        assert_eq!(group_headroom(root.path()), Some(500));
    }
}
