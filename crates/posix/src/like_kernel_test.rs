//! Comparison with the kernel: each call on names has the same errno and the same effect in the
//! pool as in a directory of the host. The paths of one call share a directory, so later ones meet
//! what earlier ones left.

use crate::pool_test::{TestPool, at, operand, without_capabilities};
use crate::{Errno, FileTimes, OpenOutcome};
use placement::FileId;
use rustix::fs::{self, Access, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use wire::Kind;

const NONE: AtFlags = AtFlags::empty();
const NOFOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW;

/// Paths on which each call is made, in a directory with the entries of [`fill_host`].
const PATHS: [&str; 34] = [
    "f",
    "f/",
    "f/.",
    "f/..",
    "f/x",
    "d",
    "d/",
    "d/.",
    "d/./",
    "d/..",
    "d/../f",
    "d/sub",
    "d/sub/",
    "d/sub/..",
    "d/sub/../sub",
    "d/sub/f",
    "d/none",
    "empty",
    "empty/",
    "empty/.",
    "empty/./",
    "none",
    "none/",
    "none/.",
    "none/./",
    "none/x",
    "to-f",
    "to-f/",
    "to-d",
    "to-d/",
    "to-d/sub",
    "dangling",
    "dangling/",
    "self",
];

/// Those of them on which calls with two paths are made, and the second paths.
const FIRST_PATHS: [&str; 12] =
    ["f", "f/", "d", "d/", "d/./", "d/..", "d/sub", "d/sub/f", "empty/", "none", "to-d", "dangling/"];
const SECOND_PATHS: [&str; 10] = ["f", "f/", "d", "d/sub", "d/sub/new", "empty", "new", "new/", "to-d/", "dangling"];

/// Symlinks of the directory, with their targets.
const SYMLINKS: [(&str, &str); 4] = [("to-f", "f"), ("to-d", "d"), ("dangling", "new"), ("self", "self")];

/// Call on one path, or on two.
#[derive(Debug, Clone, Copy)]
enum Call {
    Stat(AtFlags),
    Access,
    Open(OFlags),
    ReadLink,
    MakeDirectory,
    MakeFile,
    MakeSymlink,
    Unlink(AtFlags),
    Truncate,
    Touch(AtFlags),
    Chmod,
    RealPath,
    Link(&'static str, AtFlags),
    Rename(&'static str, RenameFlags),
}

/// All calls with one path; then those with two, for each second path.
fn calls() -> Vec<Call> {
    let opens = [
        OFlags::RDONLY,
        OFlags::RDWR,
        OFlags::CREATE | OFlags::WRONLY,
        OFlags::CREATE | OFlags::EXCL | OFlags::RDWR,
        OFlags::CREATE | OFlags::NOFOLLOW,
        OFlags::DIRECTORY,
        OFlags::NOFOLLOW,
        OFlags::NOFOLLOW | OFlags::DIRECTORY,
        OFlags::PATH,
        OFlags::PATH | OFlags::NOFOLLOW,
        OFlags::TRUNC | OFlags::WRONLY,
    ];
    let single = [
        Call::Stat(NONE),
        Call::Stat(NOFOLLOW),
        Call::Access,
        Call::ReadLink,
        Call::MakeDirectory,
        Call::MakeFile,
        Call::MakeSymlink,
        Call::Unlink(NONE),
        Call::Unlink(AtFlags::REMOVEDIR),
        Call::Truncate,
        Call::Touch(NONE),
        Call::Touch(NOFOLLOW),
        Call::Chmod,
        Call::RealPath,
    ];
    let double = SECOND_PATHS.iter().flat_map(|path| {
        [
            Call::Link(path, NONE),
            Call::Link(path, AtFlags::SYMLINK_FOLLOW),
            Call::Rename(path, RenameFlags::empty()),
            Call::Rename(path, RenameFlags::NOREPLACE),
            Call::Rename(path, RenameFlags::EXCHANGE),
        ]
    });
    single.into_iter().chain(opens.map(Call::Open)).chain(double).collect()
}

impl Call {
    fn paths(self) -> &'static [&'static str] {
        if matches!(self, Self::Link(..) | Self::Rename(..)) { &FIRST_PATHS } else { &PATHS }
    }
}

fn on_host(call: Call, path: &str, directory: &Path) -> Result<(), Errno> {
    let whole = |path: &str| format!("{}/{path}", directory.display());
    let path = whole(path);
    match call {
        Call::Stat(flags) => fs::statat(CWD, path, flags).map(drop),
        Call::Access => fs::access(path, Access::READ_OK),
        Call::Open(flags) => fs::open(path, flags, Mode::from_raw_mode(0o644)).map(drop),
        Call::ReadLink => fs::readlink(path, Vec::new()).map(drop),
        Call::MakeDirectory => fs::mkdir(path, Mode::from_raw_mode(0o755)),
        Call::MakeFile => fs::mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(0o644), 0),
        Call::MakeSymlink => fs::symlink("f", path),
        Call::Unlink(flags) => fs::unlinkat(CWD, path, flags),
        Call::Truncate => fs::open(&path, OFlags::WRONLY, Mode::empty()).and_then(|file| fs::ftruncate(file, 1)),
        Call::Touch(flags) => {
            let now = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
            fs::utimensat(CWD, path, &fs::Timestamps { last_access: now, last_modification: now }, flags)
        }
        Call::Chmod => fs::chmod(path, Mode::from_raw_mode(0o700)),
        Call::RealPath => std::fs::canonicalize(path).map(drop).map_err(|error| Errno::from_io_error(&error).unwrap()),
        Call::Link(new, flags) => fs::linkat(CWD, path, CWD, whole(new), flags),
        Call::Rename(new, flags) => fs::renameat_with(CWD, path, CWD, whole(new), flags),
    }
}

fn on_pool(call: Call, path: &str, pool: &TestPool, directory: &str) -> Result<(), Errno> {
    let whole = |path: &str| format!("{directory}/{path}");
    let path = whole(path);
    let process = &pool.process;
    match call {
        Call::Stat(flags) => process.stat(at(&path), flags).map(drop),
        Call::Access => process.access(at(&path), Access::READ_OK, AtFlags::EACCESS),
        Call::Open(flags) => process.open(at(&path), flags, 0o644).map(|opened| match opened {
            OpenOutcome::Pool(descriptor, _) => pool.close(descriptor),
            OpenOutcome::Host(path) => panic!("{path:?}"),
        }),
        Call::ReadLink => process.read_link(at(&path)).map(drop),
        Call::MakeDirectory => process.mkdir(at(&path), 0o755),
        Call::MakeFile => process.mknod(at(&path), 0o100_644, 0),
        Call::MakeSymlink => process.symlink(b"f", at(&path)),
        Call::Unlink(flags) => process.unlink(at(&path), flags),
        Call::Truncate => process.truncate(at(&path), 1),
        Call::Touch(flags) => process.set_times(at(&path), FileTimes::NOW, flags),
        Call::Chmod => process.chmod(at(&path), 0o700, NONE),
        Call::RealPath => process.real_path(at(&path)).map(drop),
        Call::Link(new, flags) => process.link(operand(&path), operand(&whole(new)), flags),
        Call::Rename(new, flags) => process.rename(operand(&path), operand(&whole(new)), flags),
    }
}

fn fill_host(directory: &Path) {
    for name in ["", "d", "d/sub", "empty"] {
        fs::mkdir(directory.join(name), Mode::from_raw_mode(0o755)).unwrap();
    }
    for name in ["f", "d/sub/f"] {
        let file = fs::open(directory.join(name), OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o644));
        fs::ftruncate(file.unwrap(), 4).unwrap();
    }
    for (name, target) in SYMLINKS {
        fs::symlink(target, directory.join(name)).unwrap();
    }
}

fn fill_pool(pool: &TestPool, directory: &str) {
    for name in ["", "/d", "/d/sub", "/empty"] {
        pool.mkdir(&format!("{directory}{name}"));
    }
    for name in ["f", "d/sub/f"] {
        let path = format!("{directory}/{name}");
        pool.process.mknod(at(&path), 0o100_644, 0).unwrap();
        pool.process.truncate(at(&path), 4).unwrap();
    }
    for (name, target) in SYMLINKS {
        pool.symlink(target, &format!("{directory}/{name}"));
    }
}

/// Kind and permissions, number of links, and size of each entry; links and size not of
/// directories.
type Tree = BTreeMap<String, (u32, u64, i64)>;

fn host_tree(directory: &Path, below: &str, tree: &mut Tree) {
    for entry in std::fs::read_dir(directory.join(below)).unwrap() {
        let name = format!("{below}{}", entry.as_ref().unwrap().file_name().to_str().unwrap());
        let found = entry.unwrap().metadata().unwrap();
        let (links, size) = if found.is_dir() { (0, 0) } else { (found.nlink(), found.size().cast_signed()) };
        tree.insert(name.clone(), (found.mode(), links, size));
        if found.is_dir() {
            host_tree(directory, &format!("{name}/"), tree);
        }
    }
}

fn pool_tree(pool: &TestPool, directory: &str, below: &str, tree: &mut Tree) {
    let (process, target) = (&pool.process, pool.process.stat(at(&format!("{directory}/{below}")), NONE).unwrap());
    let listed = process.wait(async { Ok(process.client.list(FileId(target.inode), 0, 100).await.unwrap()) }).unwrap();
    for entry in listed {
        let name = format!("{below}{}", str::from_utf8(entry.name.as_bytes()).unwrap());
        if entry.kind == Kind::Directory {
            pool_tree(pool, directory, &format!("{name}/"), tree);
        }
        let found = process.stat(at(&format!("{directory}/{name}")), NOFOLLOW).unwrap();
        let is_directory = entry.kind == Kind::Directory;
        let (links, size) = if is_directory { (0, 0) } else { (u64::from(found.links), found.size) };
        tree.insert(name, (found.mode, links, size));
    }
}

/// Returns the umask of this process without changing it.
fn own_umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let digits = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    u32::from_str_radix(digits.trim(), 8).unwrap()
}

/// Makes all calls, and fails if one differs.
fn compare() {
    let pool = TestPool::start();
    pool.process.set_umask(own_umask());
    let mut differences = Vec::new();
    for (number, call) in calls().into_iter().enumerate() {
        let (host, name) = (pool.host.path().join(number.to_string()), number.to_string());
        fill_host(&host);
        fill_pool(&pool, &name);
        for path in call.paths() {
            let (expected, found) = (on_host(call, path, &host), on_pool(call, path, &pool, &name));
            if expected != found {
                differences.push(format!("{call:?} {path}: {found:?}, and by the kernel {expected:?}"));
            }
        }
        let (mut of_host, mut of_pool) = (Tree::new(), Tree::new());
        host_tree(&host, "", &mut of_host);
        pool_tree(&pool, &name, "", &mut of_pool);
        if of_host != of_pool {
            differences.push(format!("{call:?}: {of_pool:?}, and by the kernel {of_host:?}"));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn every_call_on_names_does_what_the_kernel_does() {
    compare();
}

#[test]
fn every_call_on_names_does_what_the_kernel_does_for_a_user_without_capabilities() {
    without_capabilities(compare);
}
