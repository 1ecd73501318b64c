//! Tests of both cgroup versions on directories that imitate them; `tests/memory.rs` has real ones.

use super::*;

const MIB: u64 = 1 << 20;

fn imitate(dir: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(dir).expect("made");
    for (name, text) in files {
        fs::write(dir.join(name), text).expect("written");
    }
}

fn machine(cgroup: &str, mountinfo: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("made");
    imitate(&root.path().join("proc/self"), &[("cgroup", cgroup), ("mountinfo", mountinfo)]);
    root
}

fn version_two(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = machine("0::/job\n", "30 23 0:26 / /cg rw - cgroup2 x rw\n");
    imitate(&root.path().join("cg/job"), files);
    root
}

/// A run's group of this version, with one free child group that has these files.
fn groups(version: CgroupVersion, files: &[(&str, &str)]) -> (tempfile::TempDir, Arc<MemoryGroups>) {
    let root = tempfile::tempdir().expect("made");
    let dir = root.path().join("0");
    imitate(&dir, files);
    let made = AtomicU64::new(1);
    let groups = MemoryGroups { version, dir: root.path().into(), free: Mutex::new(vec![dir]), created: made };
    (root, groups.into())
}

#[test]
fn a_group_of_version_two_must_pass_memory_on() {
    let told = |files: &[(&str, &str)]| {
        PlannedGroups::find_in(version_two(files).path(), "r").map(drop).map_err(|no| no.to_string())
    };
    assert_eq!(told(&[("cgroup.subtree_control", "cpu memory pids\n")]), Ok(()));
    assert!(told(&[("cgroup.subtree_control", "cpu pids\n")]).unwrap_err().contains("cgroup.subtree_control"));
    assert!(told(&[]).is_err(), "not a control group");
}

#[test]
fn a_group_without_a_limit_of_memory_is_none_and_nothing_is_left_of_it() {
    let root = version_two(&[("cgroup.subtree_control", "memory\n")]);
    let planned = PlannedGroups::find_in(root.path(), "r").expect("it seems so");
    assert_eq!(planned.path(), root.path().join("cg/job/r"));
    // The imitation creates no control files in a new directory.
    assert!(matches!(planned.make(), Err(MemoryGroupError::NotDelegated(_))));
    assert!(!root.path().join("cg/job/r").exists());
}

#[test]
fn a_group_that_may_not_be_made_says_which() {
    let root = version_two(&[("cgroup.subtree_control", "memory\n"), ("r", "in the way")]);
    let why = PlannedGroups::find_in(root.path(), "r").expect("planned").make().unwrap_err().to_string();
    assert!(why.contains("cg/job/r: "), "{why}");
}

#[test]
fn a_group_of_version_one_must_count_groups_below_it() {
    let root = machine("4:memory:/job\n", "30 23 0:26 / /cg rw - cgroup x rw,memory\n");
    let job = root.path().join("cg/job");
    imitate(&job, &[("memory.use_hierarchy", "0\n")]);
    assert!(matches!(PlannedGroups::find_in(root.path(), "r"), Err(MemoryGroupError::NotHierarchical(_))));
    imitate(&job, &[("memory.use_hierarchy", "1\n")]);
    assert!(PlannedGroups::find_in(root.path(), "r").is_ok());
    fs::remove_file(job.join("memory.use_hierarchy")).expect("removed");
    assert!(PlannedGroups::find_in(root.path(), "r").is_ok(), "later kernels always do");
}

#[test]
fn the_limit_leaves_room_for_files_and_for_what_the_kernel_needs() {
    let files = [("memory.max", "max"), ("memory.swap.max", "max"), ("memory.oom.group", "0"), ("cgroup.procs", "")];
    let (root, groups) = groups(CgroupVersion::Two, &files);
    let read = |file: &str| fs::read_to_string(root.path().join("0").join(file)).expect("read");
    let group = groups.acquire(1024 * MIB, 300 * MIB).expect("limited");
    assert_eq!(read("memory.max"), (1024 * MIB + 300 * MIB + 128 * MIB).to_string());
    assert_eq!((read("memory.swap.max").as_str(), read("memory.oom.group").as_str()), ("0ax", "1"), "written over");
    assert_eq!(group.own, 1024 * MIB, "the watcher's limit is what was declared");
}

#[test]
fn in_version_one_swap_counts_too_where_it_is_accounted() {
    let (root, groups) = groups(CgroupVersion::One, &[("memory.limit_in_bytes", ""), ("cgroup.procs", "")]);
    drop(groups.acquire(MIB, 0).expect("limited"));
    let path = root.path().join("0/memory.memsw.limit_in_bytes");
    assert!(!path.exists(), "only the kernel makes controls");
    fs::write(&path, "").expect("written");
    drop(groups.acquire(MIB, 0).expect("limited"));
    assert_eq!(fs::read_to_string(path).expect("read"), (69 * MIB).to_string());
}

#[test]
fn only_anonymous_memory_and_its_swap_are_the_tools_own() {
    let stat = "cache 900\nrss 1\nswap 1\ntotal_cache 900\ntotal_rss 40\ntotal_rss_huge 7\ntotal_swap 2\n";
    let (_root, one) =
        groups(CgroupVersion::One, &[("memory.limit_in_bytes", ""), ("cgroup.procs", ""), ("memory.stat", stat)]);
    assert_eq!(one.acquire(MIB, 0).expect("limited").held(), Some(42));
    let stat = "anon 40\nfile 900\nanon_thp 7\nshmem 900\n";
    let (_root, two) = groups(CgroupVersion::Two, &[("memory.max", ""), ("cgroup.procs", ""), ("memory.stat", stat)]);
    let group = two.acquire(30, 0).expect("limited");
    assert_eq!(group.held(), Some(40));
    assert_eq!(group.excess(group.held()), Some(MemoryExcess { own: 30, held: Some(40) }));
    assert_eq!(group.excess(Some(30)), None);
}

#[test]
fn what_the_kernel_killed_for_another_limit_is_not_the_tools_fault() {
    let files = [("memory.max", ""), ("cgroup.procs", ""), ("memory.events", "low 0\nmax 3\noom 1\noom_kill 1\n")];
    let (root, two) = groups(CgroupVersion::Two, &files);
    let group = two.acquire(MIB, 0).expect("limited");
    let events = |text| fs::write(root.path().join("0/memory.events"), text).expect("written");
    assert_eq!(group.excess(None), None, "an earlier task's");
    events("low 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 1\n");
    assert_eq!(group.excess(None), None, "the machine's or the job's");
    events("low 0\nmax 3\noom 2\noom_kill 2\n");
    assert_eq!(group.excess(None), Some(MemoryExcess { own: MIB, held: None }));
    let control = |killed| format!("oom_kill_disable 0\nunder_oom 0\noom_kill {killed}\n");
    let (root, one) =
        groups(CgroupVersion::One, &[("memory.limit_in_bytes", ""), ("cgroup.procs", ""), ("memory.failcnt", "7\n")]);
    fs::write(root.path().join("0/memory.oom_control"), control(0)).expect("written");
    let group = one.acquire(MIB, 0).expect("limited");
    fs::write(root.path().join("0/memory.oom_control"), control(1)).expect("written");
    assert_eq!(group.excess(None), None);
    fs::write(root.path().join("0/memory.failcnt"), "9\n").expect("written");
    assert!(group.excess(None).is_some());
}

#[test]
fn a_group_is_used_again_unless_a_process_is_left_in_it() {
    let (root, groups) = groups(CgroupVersion::Two, &[("memory.max", ""), ("cgroup.procs", "")]);
    let first = groups.acquire(MIB, 0).expect("limited");
    assert!(groups.acquire(MIB, 0).is_err(), "the imitation makes no second one");
    drop(first);
    let reused = groups.acquire(MIB, 0).expect("limited");
    fs::write(root.path().join("0/cgroup.procs"), "4711\n").expect("written");
    drop(reused);
    assert!(groups.free().is_empty());
}

#[tokio::test]
async fn a_tool_that_may_not_enter_its_group_runs_all_the_same_and_is_measured() {
    let (root, groups) = groups(CgroupVersion::Two, &[("memory.max", "")]);
    // This file refuses a written `0`.
    std::os::unix::fs::symlink("/proc/self/clear_refs", root.path().join("0/cgroup.procs")).expect("linked");
    let mut launch = crate::Launch::new("/bin/true", "/");
    launch.memory = Some(MemoryLimit { groups: groups.clone(), own: 1, files: 0 });
    let report = crate::run(launch, tokio_util::sync::CancellationToken::new()).await;
    assert!(report.ending.is_success(), "{report:?}");
    assert_eq!(fs::read_to_string(root.path().join("0/memory.max")).expect("read"), (1 + 64 * MIB).to_string());
    assert!(groups.free().is_empty());
}
