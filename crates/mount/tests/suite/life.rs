//! Lifetime of a mount: made, refused, ended, left behind and cleaned up. Needs a usable /dev/fuse.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use crate::common::{mounted, needs_fuse, options, pool, small_pool};
use mount::{Mount, MountError, RuntimeDir, UnmountOutcome, unmount_path};

/// Types of the mounts at `point`, from the kernel's list, without touching them.
fn kinds_at(point: &Path) -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = format!(" {} ", point.display());
    let lines = text.lines().filter(|line| line.contains(&point));
    lines.map(|line| line.split(" - ").nth(1).unwrap().split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_mount_shows_its_type_and_is_gone_when_dropped() {
    needs_fuse!();
    let mount = mounted(pool());
    let point = mount.point().to_owned();
    assert_eq!(kinds_at(&point), ["fuse.tidemill"]);
    fs::write(point.join("a"), b"x").unwrap();
    drop(mount.mount);
    assert!(kinds_at(&point).is_empty());
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0, "what is seen now is the directory beneath");
}

#[test]
fn a_panic_unmounts() {
    needs_fuse!();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let panicked = thread::spawn(move || {
        let _mount = Mount::new(&pool(), &path, &options()).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert!(kinds_at(directory.path()).is_empty());
}

#[test]
fn a_busy_mount_is_detached_and_its_open_files_still_work() {
    needs_fuse!();
    let mount = mounted(pool());
    fs::write(mount.point().join("a"), b"still here").unwrap();
    let mut open = fs::File::open(mount.point().join("a")).unwrap();
    assert_eq!(mount.mount.unmount().unwrap(), UnmountOutcome::Detached);
    assert!(kinds_at(mount.point()).is_empty());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    assert!(!mount.mount.has_ended());
    drop(open);
    mount.mount.wait();
    assert_eq!(mount.mount.unmount().unwrap(), UnmountOutcome::NotMounted);
}

#[test]
fn an_unmounter_works_from_another_thread_and_ends_the_wait() {
    needs_fuse!();
    let mount = mounted(pool());
    let unmounter = mount.mount.unmounter();
    let other = thread::spawn(move || unmounter.unmount().unwrap());
    mount.mount.wait();
    assert_eq!(other.join().unwrap(), UnmountOutcome::Clean);
    assert_eq!(mount.mount.unmount().unwrap(), UnmountOutcome::NotMounted);
}

#[test]
fn an_unmount_from_outside_ends_the_mount_and_spares_what_is_mounted_there_next() {
    needs_fuse!();
    let mount = mounted(pool());
    assert_eq!(unmount_path(mount.point()).unwrap(), UnmountOutcome::Clean);
    mount.mount.wait();
    let second = Mount::new(&pool(), mount.point(), &options()).unwrap();
    assert_eq!(mount.mount.unmount().unwrap(), UnmountOutcome::NotMounted);
    assert_eq!(kinds_at(second.point()), ["fuse.tidemill"]);
}

#[test]
fn only_our_mounts_are_unmounted_by_path() {
    let directory = tempfile::tempdir().unwrap();
    let error = unmount_path(directory.path()).unwrap_err();
    assert!(matches!(&error, MountError::NotTidemill { found, .. } if found == "an ordinary directory"), "{error}");
    let error = unmount_path(Path::new("/proc")).unwrap_err();
    assert!(matches!(&error, MountError::NotTidemill { found, .. } if found.contains("proc")), "{error}");
    let error = unmount_path(&directory.path().join("none")).unwrap_err();
    assert!(matches!(&error, MountError::NotTidemill { found, .. } if found == "not there"), "{error}");
}

#[test]
fn a_link_to_a_mount_can_be_unmounted() {
    needs_fuse!();
    let mount = mounted(pool());
    let parent = tempfile::tempdir().unwrap();
    let link = parent.path().join("link");
    std::os::unix::fs::symlink(mount.point(), &link).unwrap();
    assert_eq!(unmount_path(&link).unwrap(), UnmountOutcome::Clean);
}

#[test]
fn a_mount_point_that_does_not_fit_is_refused_by_what_is_wrong() {
    needs_fuse!();
    let parent = tempfile::tempdir().unwrap();
    let at = |name: &str| parent.path().join(name);
    let refused = |point: PathBuf| Mount::new(&pool(), &point, &options()).unwrap_err();
    assert!(matches!(refused(at("none")), MountError::Missing { .. }));
    fs::write(at("file"), b"").unwrap();
    assert!(matches!(refused(at("file")), MountError::NotDirectory { .. }));
    assert!(matches!(refused(at("file/below")), MountError::NotDirectory { .. }));
    assert!(matches!(refused(parent.path().to_owned()), MountError::NotEmpty { .. }));
    let mount = mounted(pool());
    let error = refused(mount.point().to_owned());
    assert!(matches!(&error, MountError::Mounted { kind, .. } if kind == "fuse.tidemill"), "{error}");
    assert!(error.hint().unwrap().contains("tidemill umount"));
}

#[test]
fn directories_of_one_pool_stand_beside_each_other() {
    needs_fuse!();
    let parent = tempfile::tempdir().unwrap();
    let at = |name: &str| parent.path().join(name);
    for name in ["a", "b", "c"] {
        fs::create_dir(at(name)).unwrap();
    }
    std::os::unix::fs::symlink(at("a"), at("link")).unwrap();
    let refused = |names: &[&str]| mount::check_points(&names.iter().map(|name| at(name)).collect::<Vec<_>>());
    refused(&["a", "b", "c"]).unwrap();
    assert!(matches!(refused(&["a", "b", "a"]), Err(MountError::Duplicate { .. })));
    assert!(matches!(refused(&["a", "link"]), Err(MountError::Duplicate { .. })));
    assert!(matches!(refused(&["a", "none"]), Err(MountError::Missing { .. })));
    for nested in [[".", "a"], ["a", "."], ["b", "link/.."]] {
        assert!(matches!(refused(&nested), Err(MountError::Nested { .. })), "{nested:?}");
    }
    assert!(matches!(refused(&["."]), Err(MountError::NotEmpty { .. })));
}

#[test]
fn a_pool_is_undone_from_any_thread_with_what_is_mounted_just_then() {
    needs_fuse!();
    let root = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::at(root.path().join("run")).unwrap();
    let registration = runtime.register("short").unwrap();
    let rollback = registration.rollback();
    let mount = Mount::new(&pool(), registration.mount_point(), &mount::MountOptions::named("short")).unwrap();
    thread::spawn(move || rollback.run()).join().unwrap();
    assert!(kinds_at(mount.point()).is_empty());
    assert!(!runtime.path().join("short").exists());
    mount.wait();
}

#[test]
fn a_claim_is_gone_without_a_trace_when_dropped() {
    let root = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::at(root.path().join("run")).unwrap();
    let staging = root.path().join("staging");
    let mut registration = runtime.register("run-1").unwrap();
    assert_eq!(registration.name(), "run-1");
    registration.add_directory(&staging).unwrap();
    fs::create_dir(&staging).unwrap();
    fs::write(staging.join("data"), b"x").unwrap();
    assert!(matches!(runtime.register("run-1"), Err(MountError::AlreadyRegistered { .. })));
    drop(registration);
    assert!(!staging.exists());
    assert!(!runtime.path().join("run-1").exists());
    runtime.register("run-1").unwrap();
}

#[test]
fn a_name_that_would_leave_the_directory_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::at(root.path().join("run")).unwrap();
    for name in ["", ".", "..", "a/b", ".lock", "a b", &"x".repeat(101)] {
        assert!(matches!(runtime.register(name), Err(MountError::BadName { .. })), "{name}");
    }
}

#[test]
fn a_runtime_directory_of_others_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let root = tempfile::tempdir().unwrap();
    let open = root.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(matches!(RuntimeDir::at(&open), Err(MountError::Untrusted { .. })));
    let link = root.path().join("link");
    symlink(root.path(), &link).unwrap();
    assert!(matches!(RuntimeDir::at(&link), Err(MountError::Untrusted { .. })));
    if rustix::process::geteuid().is_root() {
        let foreign = root.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&foreign, Some(12345), None).unwrap();
        let error = RuntimeDir::at(&foreign).unwrap_err();
        assert!(error.to_string().contains("belongs to user 12345"), "{error}");
    }
}

#[test]
fn sweeping_and_claiming_at_the_same_time_harms_no_one() {
    let root = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::at(root.path().join("run")).unwrap();
    thread::scope(|scope| {
        for worker in 0..4 {
            let runtime = runtime.clone();
            scope.spawn(move || {
                for round in 0..25 {
                    let registration = runtime.register(&format!("w{worker}-{round}")).unwrap();
                    let report = runtime.remove_stale().unwrap();
                    assert!(report.removed.is_empty() && report.failed.is_empty(), "{report:?}");
                    assert!(report.alive.iter().any(|name| name == registration.name()), "{report:?}");
                    assert!(registration.mount_point().is_dir());
                }
            });
        }
    });
    assert_eq!(runtime.remove_stale().unwrap(), mount::CleanupReport::default());
}

/// Environment variable by which this test binary, started again, runs as a child.
const CHILD: &str = "FUSE_TEST_CHILD";

/// Not a test: the work of the child of the tests below, until it is killed.
#[test]
fn child() {
    let Some(root) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let runtime = RuntimeDir::at(root.join("run")).unwrap();
    let mut registration = runtime.register("victim").unwrap();
    registration.add_mount(&root.join("user")).unwrap();
    registration.add_directory(&root.join("staging")).unwrap();
    fs::create_dir(root.join("staging")).unwrap();
    fs::write(root.join("staging/data"), b"x").unwrap();
    let options = mount::MountOptions::named(registration.name());
    let vfs = pool();
    let _own = Mount::new(&vfs, registration.mount_point(), &options).unwrap();
    let _users = Mount::new(&vfs, &root.join("user"), &options).unwrap();
    fs::write(root.join("user/file"), b"x").unwrap();
    fs::write(root.join("ready"), b"").unwrap();
    println!("\nready");
    thread::sleep(std::time::Duration::from_mins(10));
}

/// Not a test: a process that waits for its own mount, which Tidemill itself never does.
#[test]
fn child_that_waits_for_itself() {
    let Some(root) = std::env::var_os(STUCK_CHILD).map(PathBuf::from) else { return };
    let registration = RuntimeDir::at(root.join("run")).unwrap().register("stuck").unwrap();
    let vfs = small_pool(std::time::Duration::from_mins(10));
    // No passthrough: passthrough writes do not wait for space.
    let options = mount::MountOptions { passthrough: false, ..mount::MountOptions::named(registration.name()) };
    let mount = Mount::new(&vfs, registration.mount_point(), &options).unwrap();
    let file = mount.point().join("file");
    // Writes more than fits: the writer waits for space, for longer than this test runs.
    thread::spawn(move || fs::write(file, vec![1; 100 << 20]));
    test_support::until("the writer waits", || vfs.usage().waiting > 0);
    println!("\nready");
    thread::sleep(std::time::Duration::from_mins(10));
}

/// Environment variable for the child that hangs, as [`CHILD`].
const STUCK_CHILD: &str = "FUSE_TEST_STUCK_CHILD";

#[test]
fn a_killed_process_that_hangs_in_its_own_mount_is_freed_by_the_next_start() {
    needs_fuse!();
    let root = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::at(root.path().join("run")).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "life::child_that_waits_for_itself", "--nocapture"]).env(STUCK_CHILD, root.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "ready"), "the child failed");
    assert_eq!(runtime.remove_stale().unwrap().alive, ["stuck"], "while it lives it may wait as it likes");
    child.kill().unwrap();
    let report = runtime.remove_stale().unwrap();
    assert_eq!(report.removed, ["stuck"], "{report:?}");
    assert!(kinds_at(&runtime.path().join("stuck/mnt")).is_empty());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(9));
}

/// Starts a process with a pool mounted at `run/victim/mnt` and `user`, and with staging data.
fn mounting_child(root: &Path) -> Child {
    fs::create_dir(root.join("user")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "life::child", "--nocapture"])
        .env(CHILD, root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "ready"), "the child failed");
    child
}

#[test]
fn what_a_killed_process_left_is_swept_and_a_living_one_is_not_touched() {
    needs_fuse!();
    let root = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::at(root.path().join("run")).unwrap();
    let ours = runtime.register("ours").unwrap();
    let mut child = mounting_child(root.path());
    let points = [runtime.path().join("victim/mnt"), root.path().canonicalize().unwrap().join("user")];

    let report = runtime.remove_stale().unwrap();
    assert!(report.removed.is_empty() && report.unmounted.is_empty(), "{report:?}");
    assert!(points.iter().all(|point| kinds_at(point) == ["fuse.tidemill"]));

    child.kill().unwrap();
    child.wait().unwrap();
    assert!(points.iter().all(|point| kinds_at(point) == ["fuse.tidemill"]), "a killed process leaves its mounts");
    let report = runtime.remove_stale().unwrap();
    assert_eq!(report.removed, ["victim"], "{report:?}");
    assert_eq!(report.alive, ["ours"]);
    assert_eq!(report.unmounted, points);
    assert!(points.iter().all(|point| kinds_at(point).is_empty()));
    assert!(!root.path().join("staging").exists());
    assert!(!runtime.path().join("victim").exists());
    assert!(ours.mount_point().is_dir());
}

#[test]
fn the_mount_of_a_killed_process_can_be_unmounted_by_path() {
    needs_fuse!();
    let root = tempfile::tempdir().unwrap();
    let mut child = mounting_child(root.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let user = root.path().join("user");
    let error = Mount::new(&pool(), &user, &options()).unwrap_err();
    assert!(matches!(error, MountError::Mounted { .. }), "{error}");
    unmount_path(&user).unwrap();
    assert_eq!(fs::read_dir(&user).unwrap().count(), 0);
    RuntimeDir::at(root.path().join("run")).unwrap().remove_stale().unwrap();
}
