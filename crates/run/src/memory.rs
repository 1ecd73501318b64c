//! Size of a pool: by default half of the free memory, never more than the control group allows.

use base::{ByteSize, Problem};
use std::fs;
use std::path::{Path, PathBuf};

/// Memory limits of the machine and of the control group, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Memory of the machine.
    pub total: u64,
    /// Memory that is free or can be freed without swapping.
    pub available: u64,
    /// Memory that the control group still allows; `None` without a limit.
    pub group: Option<u64>,
}

/// The size of a pool, and the reason if it is less than was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSize {
    /// Upper bound of the pool's memory.
    pub size: ByteSize,
    /// A sentence for the user, if the pool is smaller than was asked for.
    pub lowered: Option<String>,
}

/// Divisor of the reserve: 1/8 of the free memory stays free for tools and this process.
const RESERVE_PART: u64 = 8;

/// Lower bound of the reserve: this process takes about 100 MiB with 100,000 tasks, 10 MiB in small
/// runs.
const RESERVE_BYTES_MIN: u64 = 16 << 20;

/// Upper bound of the reserve.
const RESERVE_BYTES_MAX: u64 = 1 << 30;

/// Smallest pool: a smaller one cannot hold even a few small files.
pub const POOL_BYTES_MIN: u64 = 16 << 20;

impl MemoryBudget {
    /// Reads the limits of this machine and of this process's control group (version 1 or 2).
    pub fn read() -> Self {
        let (total, available) = parse_meminfo(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
        Self { total, available, group: group_headroom(Path::new("/")) }
    }

    /// Memory that may still be taken: free in the machine, and allowed by the group.
    pub fn free(&self) -> u64 {
        self.available.min(self.group.unwrap_or(u64::MAX))
    }

    /// The limits for a pool if staging keeps copies on a RAM disk beside it: half.
    #[must_use]
    pub fn beside_copies(&self) -> Self {
        Self { total: self.total, available: self.available / 2, group: self.group.map(|group| group / 2) }
    }

    /// The limits for one of `parts` pools that start together on this machine: its share.
    #[must_use]
    pub fn shared_by(&self, parts: u32) -> Self {
        let part = |bytes: u64| bytes / u64::from(parts.max(1));
        Self { total: self.total, available: part(self.available), group: self.group.map(part) }
    }

    /// Upper bound of the copies on a RAM disk: as much as the largest pool beside them.
    pub fn copies(&self) -> ByteSize {
        ByteSize(self.beside_copies().ceiling())
    }

    /// Free memory without the reserve.
    fn ceiling(&self) -> u64 {
        let free = self.free();
        free.saturating_sub((free / RESERVE_PART).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX))
    }

    /// The size of the pool: the size that was asked for, or half of the free memory. A reserve is
    /// left for this process and its tools in both cases, so that a full pool fails tasks and does
    /// not get the whole run killed.
    ///
    /// # Errors
    /// The size that was asked for, or the memory that is left, is too small for any pool.
    pub fn pool(&self, requested: Option<ByteSize>) -> Result<PoolSize, Problem> {
        let least = ByteSize(POOL_BYTES_MIN);
        if let Some(requested) = requested.filter(|requested| *requested < least) {
            return Err(
                Problem::new(format!("--memory {requested} is too little")).hint(format!("a pool needs {least}"))
            );
        }
        let free = self.free();
        let ceiling = self.ceiling();
        if ceiling < POOL_BYTES_MIN {
            return Err(Problem::new(format!("{} lets us take only {}", self.tightest(), ByteSize(free)))
                .hint(format!("a pool needs {least}, and {} beside it", ByteSize(RESERVE_BYTES_MIN))));
        }
        let size = ByteSize(requested.map_or(free / 2, |requested| requested.0).clamp(POOL_BYTES_MIN, ceiling));
        let lowered = requested.filter(|requested| size < *requested).map(|requested| {
            let (free, left) = (ByteSize(free), ByteSize(free - ceiling));
            format!(
                "--memory {requested}: the pool takes only {size}; {free} are free in {}, and {left} of it stay so",
                self.tightest()
            )
        });
        Ok(PoolSize { size, lowered })
    }

    /// Name of the tightest limit.
    fn tightest(&self) -> &'static str {
        if self.group.is_some_and(|group| group < self.available) { "the control group" } else { "this machine" }
    }
}

/// Total and available memory of the machine in bytes; 0 for a missing line.
pub(crate) fn parse_meminfo(text: &str) -> (u64, u64) {
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

/// The headroom of one line of /proc/self/cgroup: `0::/path` (version 2) or `4:memory:/path`
/// (version 1).
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
            let used = read_number(&group.join(used_file)).unwrap_or(0);
            Some(limit.saturating_sub(used.saturating_sub(reclaimable(group))))
        })
        .min()
}

/// Bytes of inactive page cache: they count as used, but the kernel reclaims them first.
fn reclaimable(group: &Path) -> u64 {
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let value = |key: &str| stat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    // Version 1 has both lines; the limit applies to the total with descendant groups.
    value("total_inactive_file ").or_else(|| value("inactive_file ")).unwrap_or(0)
}

/// A number from a control file; `None` for `max` and the huge number of version 1, which mean no
/// limit.
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
        let limits = MemoryBudget { total: 8 << 30, available: 4 << 30, group: None };
        assert_eq!(limits.pool(None), Ok(PoolSize { size: ByteSize(2 << 30), lowered: None }));
        assert_eq!(limits.pool(Some(ByteSize(1 << 30))).expect("fits").size, ByteSize(1 << 30));
    }

    #[test]
    fn the_group_limit_is_never_passed_and_that_is_said() {
        let limits = MemoryBudget { total: 8 << 30, available: 4 << 30, group: Some(1 << 30) };
        assert_eq!(limits.pool(None).expect("fits").size, ByteSize(512 << 20), "half of what the group leaves");
        let pool = limits.pool(Some(ByteSize(2 << 30))).expect("fits");
        assert_eq!(pool.size, ByteSize(896 << 20), "an eighth stays for tools and ourselves");
        let said = pool.lowered.expect("said");
        assert_eq!(
            said,
            "--memory 2 GiB: the pool takes only 896 MiB; 1 GiB are free in the control group, and 128 MiB of it stay so"
        );
    }

    #[test]
    fn copies_on_a_ram_disk_get_their_half() {
        let limits = MemoryBudget { total: 8 << 30, available: 4 << 30, group: Some(1 << 30) };
        assert_eq!(limits.beside_copies().pool(None).expect("fits").size, ByteSize(256 << 20));
        assert_eq!(limits.beside_copies().pool(Some(ByteSize(1 << 30))).expect("fits").size, ByteSize(448 << 20));
    }

    #[test]
    fn what_is_too_small_for_a_pool_is_refused_and_never_raised() {
        let limits = MemoryBudget { total: 8 << 30, available: 4 << 30, group: None };
        assert!(limits.pool(Some(ByteSize(POOL_BYTES_MIN - 1))).is_err());
        assert!(limits.pool(Some(ByteSize(POOL_BYTES_MIN))).is_ok());
        let tight = MemoryBudget { group: Some(24 << 20), ..limits };
        let refused = tight.pool(None).expect_err("no room beside the reserve").to_string();
        assert!(refused.contains("control group"), "{refused}");
    }

    #[test]
    fn the_tightest_group_up_the_tree_counts() {
        let root = tempfile::tempdir().expect("made");
        write(&root.path().join("proc/self/cgroup"), "0::/job/step\n");
        write(&root.path().join("sys/fs/cgroup/job/memory.max"), "1000\n");
        write(&root.path().join("sys/fs/cgroup/job/memory.current"), "400\n");
        write(&root.path().join("sys/fs/cgroup/job/step/memory.max"), "max\n");
        assert_eq!(group_headroom(root.path()), Some(600));
        write(&root.path().join("sys/fs/cgroup/job/memory.stat"), "anon 100\ninactive_file 300\n");
        assert_eq!(group_headroom(root.path()), Some(900), "what the kernel can take back is free");
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
