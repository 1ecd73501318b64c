//! Load of the machine: processors and memory, of the machine or of our control group where that
//! has less.

use crate::memory::parse_meminfo;
use report::{MachineUse, MeasurementScope};
use std::fs;
use std::path::{Path, PathBuf};

/// Sources of the measurements, located once.
#[derive(Debug)]
pub struct MachineMeter {
    root: PathBuf,
    /// The group with the tightest processor limit, and the limit; `None` if no limit is below the
    /// machine's.
    cpu_group: Option<(PathBuf, f64)>,
    /// The group with the tightest memory limit, and the limit; `None` if no limit is below the
    /// machine's.
    memory_group: Option<(PathBuf, u64)>,
    cpus: f64,
    memory_bytes: u64,
}

/// Root of the cgroup v2 hierarchy.
const GROUPS: &str = "sys/fs/cgroup";

impl MachineMeter {
    /// Creates a meter of this machine; `None` if /proc does not provide the numbers.
    pub fn new() -> Option<Self> {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Option<Self> {
        let cpus = processors(&fs::read_to_string(root.join("proc/stat")).ok()?);
        let (memory_bytes, _) = parse_meminfo(&fs::read_to_string(root.join("proc/meminfo")).ok()?);
        let groups = groups(root);
        let tightest_cpu = groups.iter().filter_map(|group| Some((group.clone(), cpu_limit(group)?)));
        let tightest_memory =
            groups.iter().filter_map(|group| Some((group.clone(), number(&group.join("memory.max"))?)));
        Some(Self {
            root: root.to_owned(),
            cpu_group: tightest_cpu.filter(|(_, limit)| *limit < cpus).min_by(|one, other| one.1.total_cmp(&other.1)),
            memory_group: tightest_memory.filter(|(_, limit)| *limit < memory_bytes).min_by_key(|(_, limit)| *limit),
            cpus,
            memory_bytes,
        })
    }

    /// The report's entry before the first sample.
    pub fn blank(&self) -> MachineUse {
        let cpus = self
            .cpu_group
            .as_ref()
            .map_or((MeasurementScope::Machine, self.cpus), |(_, limit)| (MeasurementScope::Group, *limit));
        let memory = self.memory_group.as_ref();
        MachineUse::new(
            cpus,
            memory
                .map_or((MeasurementScope::Machine, self.memory_bytes), |(_, limit)| (MeasurementScope::Group, *limit)),
        )
    }

    /// Processor seconds spent so far and bytes of memory in use; `None` if they can no longer be
    /// read.
    pub fn read(&self) -> Option<(f64, u64)> {
        Some((self.cpu_s()?, self.memory()?))
    }

    fn cpu_s(&self) -> Option<f64> {
        match &self.cpu_group {
            Some((group, _)) => group_cpu_s(group),
            None => busy_s(&fs::read_to_string(self.root.join("proc/stat")).ok()?),
        }
    }

    /// Memory in use that the kernel cannot reclaim immediately: inactive page cache is not
    /// counted.
    fn memory(&self) -> Option<u64> {
        let Some((group, _)) = &self.memory_group else {
            let (total, available) = parse_meminfo(&fs::read_to_string(self.root.join("proc/meminfo")).ok()?);
            return Some(total.saturating_sub(available));
        };
        let idle = value(&fs::read_to_string(group.join("memory.stat")).ok()?, "inactive_file").unwrap_or(0);
        Some(number(&group.join("memory.current"))?.saturating_sub(idle))
    }
}

/// Our cgroup v2 group and its ancestors.
fn groups(root: &Path) -> Vec<PathBuf> {
    let base = root.join(GROUPS);
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    base.join(path).ancestors().take_while(|group| group.starts_with(&base)).map(Path::to_path_buf).collect()
}

/// The processor limit of a group. `cpu.max` is `quota period` in microseconds, or `max period`.
fn cpu_limit(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of centuries")]
fn group_cpu_s(group: &Path) -> Option<f64> {
    let stat = fs::read_to_string(group.join("cpu.stat")).ok()?;
    Some(value(&stat, "usage_usec")? as f64 / 1e6)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number after `key` in lines of the form `key number`.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Number of processors in /proc/stat.
fn processors(stat: &str) -> f64 {
    let lines = stat.lines().filter(|line| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' ')));
    lines.fold(0.0, |count, _| count + 1.0)
}

/// Seconds that processors were not idle, from the first line of /proc/stat: user, nice, system,
/// idle, iowait, irq, softirq, steal (guest time is part of user). The unit is 1/100 s, independent
/// of the kernel's tick rate.
#[expect(clippy::cast_precision_loss, reason = "hundredths of seconds of millennia")]
fn busy_s(stat: &str) -> Option<f64> {
    const TICKS_A_SECOND: f64 = 100.0;
    let fields: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    let busy: u64 =
        fields.iter().take(8).enumerate().filter(|(at, _)| ![3, 4].contains(at)).map(|(_, ticks)| ticks).sum();
    (fields.len() >= 4).then_some(busy as f64 / TICKS_A_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("made");
        let stat = "cpu  1000 50 300 9000 70 10 20 5 400 0\ncpu0 1 1\ncpu1 1 1\nctxt 7\n";
        let meminfo = "MemTotal: 4096 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n";
        for (name, text) in [("proc/stat", stat), ("proc/meminfo", meminfo)].iter().chain(files) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("has a parent")).expect("made");
            fs::write(path, text).expect("written");
        }
        root
    }

    #[test]
    fn the_machine_is_measured_where_no_group_has_less() {
        let root = machine(&[("proc/self/cgroup", "0::/job\n"), ("sys/fs/cgroup/job/cpu.max", "max 100000\n")]);
        let meter = MachineMeter::below(root.path()).expect("it tells");
        assert_eq!(
            meter.blank(),
            MachineUse::new((MeasurementScope::Machine, 2.0), (MeasurementScope::Machine, 4 << 20))
        );
        assert_eq!(meter.read(), Some((13.85, 3 << 20)), "idle and waiting for disks is not busy");
    }

    #[test]
    fn the_group_with_the_least_is_measured_where_it_has_less_than_the_machine() {
        let root = machine(&[
            ("proc/self/cgroup", "1:cpu:/old\n0::/job/step\n"),
            ("sys/fs/cgroup/job/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/job/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
            ("sys/fs/cgroup/job/step/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/job/step/memory.max", "1000\n"),
            ("sys/fs/cgroup/job/step/memory.current", "900\n"),
            ("sys/fs/cgroup/job/step/memory.stat", "anon 1\ninactive_file 300\n"),
            ("sys/fs/cgroup/job/memory.max", "99000000000\n"),
        ]);
        let meter = MachineMeter::below(root.path()).expect("it tells");
        assert_eq!(meter.blank(), MachineUse::new((MeasurementScope::Group, 0.5), (MeasurementScope::Group, 1000)));
        assert_eq!(meter.read(), Some((2.5, 600)), "what the kernel can take back is free");
    }

    #[test]
    fn a_machine_that_does_not_tell_is_not_measured() {
        let root = tempfile::tempdir().expect("made");
        assert!(MachineMeter::below(root.path()).is_none());
    }
}
