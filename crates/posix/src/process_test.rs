//! Tests of a process: connecting, the working directory, its descriptors, programs, a fork.

use crate::pool_test::{CREATE, PREFIX, TestPool, at, of, operand, without_capabilities};
use crate::{Errno, ExecTarget, FdKind, PathArg, PathBase, PosixProcess, errno};
use placement::FileId;
use rustix::fs::{AtFlags, OFlags, RenameFlags};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use wire::{Object, Refusal};

const NONE: AtFlags = AtFlags::empty();

fn relative(path: &str) -> PathArg<'_> {
    PathArg { base: PathBase::Cwd, path: path.as_bytes() }
}

fn directory(process: &PosixProcess) -> Option<String> {
    let text = String::from_utf8(process.directory()?).unwrap();
    Some(text.split_once(':').unwrap().1.to_owned())
}

#[test]
fn a_pool_that_cannot_be_reached_is_told_from_a_file_that_does_not_exist() {
    let pool = TestPool::start();
    let invalid = pool.host.path().join("invalid");
    std::fs::write(&invalid, "not a pool").unwrap();
    let mut private = std::fs::metadata(&invalid).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut private, 0o600);
    std::fs::set_permissions(&invalid, private).unwrap();
    for (path, expected) in [(pool.host.path().join("none"), Errno::NODEV), (invalid, Errno::INVAL)] {
        let (errno, problem) = PosixProcess::connect(path.as_os_str().as_bytes(), PREFIX, None).unwrap_err();
        assert_eq!(errno, expected, "{problem}");
        assert!(problem.to_string().contains(path.to_str().unwrap()), "{problem}");
    }
}

#[test]
fn a_refusal_has_the_errno_of_a_program_and_not_of_a_mount() {
    let file = Object::File(FileId(7));
    let unavailable = Refusal::Unavailable { object: file.clone(), tries: 3, why: "it is gone".into() };
    for (refusal, expected) in [
        (Refusal::NotFound(file.clone()), Errno::NOENT),
        (unavailable, Errno::NOTCONN),
        (Refusal::Exists(file), Errno::EXIST),
        (Refusal::SessionEnded, Errno::STALE),
    ] {
        assert_eq!(errno(&refusal), expected, "{refusal:?}");
    }
}

#[test]
fn relative_paths_start_in_the_working_directory() {
    let pool = TestPool::start();
    pool.mkdir("a");
    pool.mkdir("a/b");
    pool.make("a/f", b"tide");
    pool.symlink("a/b", "link");
    let process = &pool.process;
    assert_eq!((directory(process), process.getcwd()), (None, Err(Errno::NOENT)));
    assert_eq!(process.stat(relative("a"), NONE), Err(Errno::NOENT), "it is not in the pool");
    process.chdir(at("link")).unwrap();
    assert_eq!(directory(process).as_deref(), Some("/tidemill/a/b"), "a path without symlinks");
    assert_eq!(process.stat(relative("../f"), NONE).unwrap().size, 4);
    process.chdir(relative("..")).unwrap();
    assert_eq!(process.stat(relative("f"), NONE).unwrap().size, 4);
    for (path, errno) in [("f", Errno::NOTDIR), ("none", Errno::NOENT), ("", Errno::NOENT)] {
        assert_eq!(process.chdir(relative(path)), Err(errno), "{path}");
    }
    let descriptor = pool.open("a/b", OFlags::RDONLY).unwrap();
    process.chdir(of(&descriptor)).unwrap();
    assert_eq!(process.getcwd(), Ok(b"/tidemill/a/b".to_vec()));
    let file = pool.open("a/f", OFlags::RDONLY).unwrap();
    assert_eq!(process.chdir(of(&file)), Err(Errno::NOTDIR));
    pool.process.chmod(at("a/b"), 0o600, NONE).unwrap();
    without_capabilities(|| {
        assert_eq!(process.chdir(at("a/b")), Err(Errno::ACCESS));
        assert_eq!(process.chdir(of(&descriptor)), Err(Errno::ACCESS));
    });
    process.leave_pool();
    assert_eq!(directory(process), None);
}

#[test]
fn a_removed_working_directory_has_no_path_and_takes_no_file() {
    let pool = TestPool::start();
    pool.mkdir("d");
    pool.process.chdir(at("d")).unwrap();
    pool.process.unlink(at("d"), AtFlags::REMOVEDIR).unwrap();
    assert_eq!(pool.process.getcwd(), Err(Errno::NOENT));
    assert_eq!(pool.process.open(relative("f"), CREATE, 0o600).map(drop), Err(Errno::NOENT));
    assert_eq!(pool.process.mkdir(relative("new"), 0o700), Err(Errno::NOENT));
    assert_eq!(pool.process.stat(relative("."), NONE).unwrap().links, 0);
}

#[test]
fn a_started_program_is_in_the_directory_of_its_parent_also_after_a_rename() {
    let pool = TestPool::start();
    for path in ["d", "d/sub", "other"] {
        pool.mkdir(path);
    }
    pool.make("d/sub/f", b"tide");
    pool.process.chdir(at("d/sub")).unwrap();
    let given = pool.process.directory().unwrap();
    let child = pool.another(Some(&given));
    assert_eq!(child.directory(), Some(given.clone()));
    pool.process.rename(operand("d/sub"), operand("moved"), RenameFlags::empty()).unwrap();
    pool.process.mkdir(at("d/sub"), 0o755).unwrap();
    let child = pool.another(Some(&given));
    assert_eq!(child.stat(relative("f"), NONE).unwrap().size, 4, "the directory, and not its name");
    pool.process.unlink(at("moved/f"), NONE).unwrap();
    pool.process.leave_pool();
    pool.process.unlink(at("moved"), AtFlags::REMOVEDIR).unwrap();
    drop(child);
    for (cwd, expected) in [
        (&b"/tidemill/other"[..], Some("/tidemill/other")),
        (b"/tidemill/none", Some("/tidemill/none")),
        (b"/usr", None),
        (b"7:/usr", None),
        (b"", None),
    ] {
        let child = pool.another(Some(cwd));
        assert_eq!(directory(&child).as_deref(), expected, "{:?}", str::from_utf8(cwd));
        if cwd.ends_with(b"none") {
            assert_eq!(child.getcwd(), Err(Errno::NOENT));
            assert_eq!(child.stat(relative("f"), NONE), Err(Errno::NOENT));
        }
    }
}

#[test]
fn a_descriptor_number_that_the_kernel_gave_to_another_file_is_not_of_the_pool() {
    let pool = TestPool::start();
    let descriptor = pool.open("f", CREATE).unwrap();
    let number = descriptor.as_raw_fd();
    let host = std::fs::File::open(pool.host.path()).unwrap();
    // The program closes the descriptor without our notice, and gets its number again.
    let mut descriptor = descriptor;
    rustix::io::dup2(&host, &mut descriptor).unwrap();
    assert_eq!(descriptor.as_raw_fd(), number);
    assert!(!pool.process.is_recorded(descriptor.as_fd()));
    assert_eq!(pool.process.flags(descriptor.as_fd()), Err(Errno::BADF));
    assert!(pool.process.remove(number).is_none(), "the stale entry was removed");
}

#[test]
fn a_file_without_a_name_lives_until_its_last_descriptor_is_closed() {
    let pool = TestPool::start();
    pool.mkdir_striped("d");
    let files = || pool.process.statfs(at("")).unwrap().files - pool.process.statfs(at("")).unwrap().free_files;
    let before = files();
    let descriptor = pool.open("d/f", CREATE).unwrap();
    let copy = descriptor.try_clone().unwrap();
    pool.process.record_dup(descriptor.as_fd(), copy.as_raw_fd());
    pool.process.unlink(at("d/f"), NONE).unwrap();
    pool.close(descriptor);
    assert_eq!(pool.process.write(copy.as_fd(), b"tide", None), Ok(4));
    assert_eq!(pool.process.stat(of(&copy), AtFlags::EMPTY_PATH).unwrap().size, 4);
    assert_eq!(files(), before + 1);
    pool.close(copy);
    assert_eq!(files(), before);
}

#[test]
fn a_descriptor_from_another_process_is_identified_by_its_lock() {
    let pool = TestPool::start();
    pool.make("f", b"tide");
    let descriptors = [OFlags::RDWR, OFlags::RDONLY, OFlags::PATH].map(|flags| pool.open("f", flags).unwrap());
    let heir = pool.another(None);
    let adopted: Vec<FdKind> =
        descriptors.iter().filter_map(|descriptor| heir.adopt(descriptor.as_fd(), |_| true).ok()).collect();
    assert_eq!(adopted.len(), 3);
    assert_eq!(heir.adopt(descriptors[0].as_fd(), |_| false), Err(Errno::BADF), "it is no open of this file");
    let host = std::fs::File::open(pool.host.path()).unwrap();
    assert_eq!(heir.adopt(host.as_fd(), |_| true), Err(Errno::BADF));
    let found = heir.stat(of(&descriptors[0]), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(found.size, 4);
}

#[test]
fn a_program_is_copied_whole_if_the_user_may_run_it() {
    let pool = TestPool::start();
    let bytes: Vec<u8> = (0..(9_u32 << 20)).map(|at| u8::try_from(at % 251).unwrap()).collect();
    pool.make("f", &bytes);
    pool.mkdir("d");
    assert_eq!(pool.process.program(at("f"), c"f").map(drop), Err(Errno::ACCESS), "it has no execute bit");
    pool.process.chmod(at("f"), 0o700, NONE).unwrap();
    let Ok(ExecTarget::Memory(memory)) = pool.process.program(at("f"), c"f") else { panic!("no copy") };
    let mut copy = std::fs::File::from(memory);
    std::io::Seek::rewind(&mut copy).unwrap();
    let mut found = Vec::new();
    copy.read_to_end(&mut found).unwrap();
    assert!(found == bytes, "the copy of {} bytes differs", found.len());
    for (path, errno) in [("d", Errno::ACCESS), ("none", Errno::NOENT), ("f/", Errno::NOTDIR)] {
        assert_eq!(pool.process.program(at(path), c"f").map(drop), Err(errno), "{path}");
    }
    pool.symlink("/bin/true", "out");
    let Ok(ExecTarget::Host(path)) = pool.process.program(at("out"), c"out") else { panic!("not of the host") };
    assert_eq!(path.as_c_str(), c"/bin/true");
}

#[test]
fn a_pause_ends_where_the_process_did_not_fork() {
    let pool = TestPool::start();
    let descriptor = pool.open("f", CREATE).unwrap();
    pool.process.pause().resume(false);
    pool.process.pause().resume(true);
    assert_eq!(pool.process.write_any(descriptor.as_fd(), b"tide", None), Ok(4));
    assert_eq!(pool.process.stat(at("f"), NONE).unwrap().size, 4, "a child makes a new connection");
}

#[test]
fn statfs_counts_the_memory_of_the_pool() {
    let pool = TestPool::start();
    let before = pool.process.statfs(at("")).unwrap();
    assert_eq!((before.block_bytes, before.blocks), (4096, (32 << 20) / 4096));
    pool.mkdir_striped("d");
    pool.make("d/f", &vec![7; 4 << 20]);
    let descriptor: OwnedFd = pool.open("d/f", OFlags::RDONLY).unwrap();
    let after = pool.process.fstatfs(descriptor.as_fd()).unwrap();
    let taken = before.free_blocks - after.free_blocks;
    assert!((1024..=1040).contains(&taken), "{taken} blocks for 4 MiB");
    assert_eq!(pool.process.statfs(at("none")), Err(Errno::NOENT));
    let host = std::fs::File::open(pool.host.path()).unwrap();
    assert_eq!(pool.process.fstatfs(host.as_fd()), Err(Errno::BADF));
    pool.symlink(pool.host.path().to_str().unwrap(), "out");
    let of_host = pool.process.statfs(at("out")).unwrap();
    assert_eq!(of_host.block_bytes, rustix::fs::statvfs(pool.host.path()).unwrap().f_frsize);
}
