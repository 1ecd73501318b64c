//! Operations of child processes on a mount: one per process. The exit code is the error number.

use std::{env, fs::File, os::fd::AsFd, path::Path};

use rustix::{
    fs::{
        Access, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom,
        StatxFlags, Timespec, Timestamps, XattrFlags,
    },
    io::{Errno, Result},
};

/// Environment variables of a child: the operation and the path.
pub(crate) const VERB: &str = "FUSE_CHILD_VERB";
pub(crate) const PATH: &str = "FUSE_CHILD_PATH";

/// Performs the operation of the environment and exits; returns if there is none.
pub(crate) fn run() {
    let (Ok(verb), Ok(path)) = (env::var(VERB), env::var(PATH)) else { return };
    std::process::exit(act(&verb, Path::new(&path)).map_or_else(Errno::raw_os_error, |()| 0));
}

fn open(path: &Path, flags: OFlags) -> Result<File> {
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o640)).map(File::from)
}

fn act(verb: &str, path: &Path) -> Result<()> {
    let beside = path.with_file_name("new");
    match verb {
        "stat" => rustix::fs::stat(path).map(drop),
        "statx" => rustix::fs::statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
            .map(drop),
        "access" => rustix::fs::access(path, Access::WRITE_OK),
        "statfs" => rustix::fs::statfs(path).map(drop),
        "chmod" => rustix::fs::chmod(path, Mode::from_raw_mode(0o600)),
        "chown" => rustix::fs::chown(path, Some(rustix::fs::Uid::from_raw(5)), None),
        "truncate" => open(path, OFlags::WRONLY).and_then(|file| rustix::fs::ftruncate(&file, 77)),
        "utimens" => utimens(path),
        "readlink" => rustix::fs::readlink(path, Vec::new()).map(drop),
        "symlink" => rustix::fs::symlink("target", path),
        "mkdir" => rustix::fs::mkdir(path, Mode::from_raw_mode(0o750)),
        "mknod" => rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0),
        "rmdir" => rustix::fs::rmdir(path),
        "unlink" => rustix::fs::unlink(path),
        "link" => rustix::fs::link(path, &beside),
        "rename" => rustix::fs::renameat_with(CWD, path, CWD, &beside, RenameFlags::NOREPLACE),
        "readdir" => std::fs::read_dir(path).map_or(Err(Errno::IO), |all| {
            let names: Vec<_> = all.flatten().map(|entry| entry.file_name()).collect();
            if names == ["file", "other"] { Ok(()) } else { Err(Errno::BADMSG) }
        }),
        "open" => open(path, OFlags::RDWR | OFlags::TRUNC).map(drop),
        "create" => open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).map(drop),
        "tmpfile" => open(path, OFlags::RDWR | OFlags::TMPFILE).map(drop),
        other => act_on_open(other, path),
    }
}

fn utimens(path: &Path) -> Result<()> {
    let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: at(0, rustix::fs::UTIME_NOW), last_modification: at(12, 34) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())
}

fn act_on_open(verb: &str, path: &Path) -> Result<()> {
    let file = open(path, OFlags::RDWR)?;
    let mut buffer = [0; 100];
    match verb {
        "read" => rustix::io::pread(&file, &mut buffer, 3).map(drop),
        "write" => rustix::io::pwrite(&file, b"abc", 5).map(drop),
        "cycle" => {
            rustix::io::pwrite(&file, b"through", 0)?;
            let length = rustix::io::pread(&file, &mut buffer, 0)?;
            if &buffer[..length] == b"through" { Ok(()) } else { Err(Errno::BADMSG) }
        }
        "fsync" => rustix::fs::fsync(&file),
        "fdatasync" => rustix::fs::fdatasync(&file),
        "flock" => rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive),
        "lock" => rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared),
        "wait" => rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive),
        "setxattr" => rustix::fs::fsetxattr(&file, "user.a", b"value", XattrFlags::CREATE),
        "getxattr" => rustix::fs::fgetxattr(&file, "user.a", &mut buffer).map(drop),
        "listxattr" => rustix::fs::flistxattr(&file, &mut buffer).map(drop),
        "removexattr" => rustix::fs::fremovexattr(&file, "user.a"),
        "fallocate" => rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 10, 20),
        "lseek" => rustix::fs::seek(&file, SeekFrom::Data(4)).map(drop),
        "copy" => {
            let (mut from, mut to) = (1, 2);
            let other = open(&path.with_file_name("other"), OFlags::WRONLY)?;
            rustix::fs::copy_file_range(file.as_fd(), Some(&mut from), other.as_fd(), Some(&mut to), 50).map(drop)
        }
        _ => Err(Errno::NOSYS),
    }
}
