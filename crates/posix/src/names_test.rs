//! Tests of the calls on names: mkdir, mknod, symlink, readlink, unlink, link, rename.

use crate::pool_test::{CREATE, TestPool, at, of, operand, with_and_without_capabilities, without_capabilities};
use crate::{Errno, PathArg, PathBase, PathOperand};
use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};
use std::ffi::CString;
use std::os::fd::AsFd;
use wire::TARGET_BYTES_MAX;

const NONE: AtFlags = AtFlags::empty();
const RMDIR: AtFlags = AtFlags::REMOVEDIR;
const REPLACE: RenameFlags = RenameFlags::empty();

/// Pool with a file, an empty and a full directory, and a symlink to each.
fn pool_with_names() -> TestPool {
    let pool = TestPool::start();
    pool.make("f", b"tide");
    pool.mkdir("empty");
    pool.mkdir("full");
    pool.mkdir("full/sub");
    pool.symlink("f", "to-f");
    pool.symlink("full", "to-full");
    pool
}

fn mode(pool: &TestPool, path: &str) -> u32 {
    pool.process.stat(at(path), AtFlags::SYMLINK_NOFOLLOW).unwrap().mode
}

fn exists(pool: &TestPool, path: &str) -> bool {
    pool.process.stat(at(path), AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

#[test]
fn a_new_name_is_refused_where_one_exists_or_none_can_be() {
    with_and_without_capabilities(|| {
        let pool = pool_with_names();
        let too_long = "n".repeat(256);
        let cases = [
            ("f", Errno::EXIST),
            ("full", Errno::EXIST),
            ("full/", Errno::EXIST),
            ("to-f", Errno::EXIST),
            ("", Errno::EXIST),
            ("full/.", Errno::EXIST),
            ("full/sub/..", Errno::EXIST),
            ("none/new", Errno::NOENT),
            ("new/.", Errno::NOENT),
            ("new/./", Errno::NOENT),
            ("f/new", Errno::NOTDIR),
            (&too_long, Errno::NAMETOOLONG),
        ];
        for (path, errno) in cases {
            assert_eq!(pool.process.mkdir(at(path), 0o755), Err(errno), "mkdir {path}");
            assert_eq!(pool.process.mknod(at(path), 0o100_644, 0), Err(errno), "mknod {path}");
            assert_eq!(pool.process.symlink(b"f", at(path)), Err(errno), "symlink {path}");
            assert_eq!(pool.process.link(operand("f"), operand(path), NONE), Err(errno), "link {path}");
        }
        assert!(!exists(&pool, "new"));
    });
}

#[test]
fn only_a_new_directory_may_have_a_slash_after_its_name() {
    with_and_without_capabilities(|| {
        let pool = pool_with_names();
        assert_eq!(pool.process.mknod(at("new/"), 0o100_644, 0), Err(Errno::NOENT));
        assert_eq!(pool.process.symlink(b"f", at("new/")), Err(Errno::NOENT));
        assert_eq!(pool.process.link(operand("f"), operand("new/"), NONE), Err(Errno::NOENT));
        assert_eq!(pool.process.mkdir(at("new/"), 0o755), Ok(()));
    });
}

#[test]
fn a_new_directory_keeps_the_sticky_bit_of_its_mode_and_no_set_id_bit() {
    let pool = TestPool::start();
    pool.process.set_umask(0o022);
    pool.process.mkdir(at("d"), 0o7777).unwrap();
    assert_eq!(mode(&pool, "d"), 0o041_755);
}

#[test]
fn mknod_makes_files_fifos_sockets_and_with_a_capability_devices() {
    let pool = TestPool::start();
    let cases = [
        ("plain", 0o600, Ok(0o100_600)),
        ("file", 0o104_640, Ok(0o104_640)),
        ("fifo", 0o010_600, Ok(0o010_600)),
        ("socket", 0o140_600, Ok(0o140_600)),
        ("directory", 0o040_755, Err(Errno::PERM)),
        ("symlink", 0o120_777, Err(Errno::INVAL)),
        ("unknown", 0o170_777, Err(Errno::INVAL)),
    ];
    for (path, asked, expected) in cases {
        let made = pool.process.mknod(at(path), asked, 0).map(|()| mode(&pool, path));
        assert_eq!(made, expected, "{path}");
    }
    without_capabilities(|| {
        for kind in [0o020_000, 0o060_000] {
            assert_eq!(pool.process.mknod(at("device"), kind | 0o600, 0x501), Err(Errno::PERM));
        }
    });
}

#[test]
fn a_symlink_has_any_text_of_one_byte_up_to_the_limit() {
    let pool = TestPool::start();
    let longest = vec![b'x'; TARGET_BYTES_MAX];
    assert_eq!(pool.process.symlink(b"", at("empty")), Err(Errno::NOENT));
    assert_eq!(pool.process.symlink(&[&longest[..], b"x"].concat(), at("long")), Err(Errno::NAMETOOLONG));
    for (path, text) in [("longest", &longest[..]), ("bytes", b"\xff /../ \n")] {
        pool.process.symlink(text, at(path)).unwrap();
        assert_eq!(pool.process.read_link(at(path)).as_deref(), Ok(text), "{path}");
    }
}

#[test]
fn readlink_reads_symlinks_alone_and_the_path_of_an_open_file() {
    let pool = pool_with_names();
    for (path, expected) in [
        ("to-f", Ok(&b"f"[..])),
        ("f", Err(Errno::INVAL)),
        ("full", Err(Errno::INVAL)),
        ("to-full/", Err(Errno::INVAL)),
        ("none", Err(Errno::NOENT)),
        ("f/none", Err(Errno::NOTDIR)),
    ] {
        assert_eq!(pool.process.read_link(at(path)).as_deref(), expected.as_deref(), "{path}");
    }
    let descriptor = pool.open("to-full/../f", OFlags::RDONLY).unwrap();
    let magic = PathArg { base: PathBase::Magic(descriptor.as_fd()), path: b"" };
    assert_eq!(pool.process.read_link(magic), Ok(b"/tidemill/f".to_vec()));
}

#[test]
fn a_removal_is_refused_with_the_errno_of_the_system() {
    with_and_without_capabilities(|| {
        let pool = pool_with_names();
        let cases = [
            ("full", NONE, Errno::ISDIR),
            ("full/", NONE, Errno::ISDIR),
            ("full/.", NONE, Errno::ISDIR),
            ("", NONE, Errno::ISDIR),
            ("f/", NONE, Errno::NOTDIR),
            ("none", NONE, Errno::NOENT),
            ("none/", NONE, Errno::NOENT),
            ("f/none", NONE, Errno::NOTDIR),
            ("to-full/", NONE, Errno::NOTDIR),
            ("full", RMDIR, Errno::NOTEMPTY),
            ("to-full", RMDIR, Errno::NOTDIR),
            ("f", RMDIR, Errno::NOTDIR),
            ("none", RMDIR, Errno::NOENT),
            ("empty/.", RMDIR, Errno::INVAL),
            ("empty/./", RMDIR, Errno::INVAL),
            ("empty/..", RMDIR, Errno::NOTEMPTY),
            ("", RMDIR, Errno::BUSY),
            ("f", AtFlags::EMPTY_PATH, Errno::INVAL),
        ];
        for (path, flags, errno) in cases {
            // The second attempt may find the directory in the path cache.
            for _ in 0..2 {
                assert_eq!(pool.process.unlink(at(path), flags), Err(errno), "{path} {flags:?}");
            }
        }
        for (path, flags) in [("to-full", NONE), ("f", NONE), ("empty/", RMDIR), ("full/sub", RMDIR)] {
            assert_eq!(pool.process.unlink(at(path), flags), Ok(()), "{path}");
            assert!(!exists(&pool, path), "{path}");
        }
        assert!(exists(&pool, "full"), "the symlink was removed and not its target");
    });
}

#[test]
fn a_missing_name_is_reported_before_a_denied_permission() {
    let pool = pool_with_names();
    pool.make("full/f", b"");
    pool.process.chmod(at("full"), 0o555, NONE).unwrap();
    without_capabilities(|| {
        let unlink = |path, flags| pool.process.unlink(at(path), flags);
        let rename = |old, new| pool.process.rename(operand(old), operand(new), REPLACE);
        for _ in 0..2 {
            assert_eq!(unlink("full/none", NONE), Err(Errno::NOENT));
            assert_eq!(unlink("full/f", NONE), Err(Errno::ACCESS));
            assert_eq!(unlink("full/sub", RMDIR), Err(Errno::ACCESS));
            assert_eq!(rename("full/none", "g"), Err(Errno::NOENT));
            assert_eq!(rename("full/f", "g"), Err(Errno::ACCESS));
            assert_eq!(rename("f", "full/g"), Err(Errno::ACCESS));
            assert_eq!(pool.process.mkdir(at("full/new"), 0o755), Err(Errno::ACCESS));
            assert_eq!(pool.process.mkdir(at("full/sub"), 0o755), Err(Errno::EXIST));
        }
    });
    assert_eq!(pool.text("full/f"), b"");
}

#[test]
fn a_link_is_another_name_of_the_file_or_of_the_symlink_itself() {
    with_and_without_capabilities(|| {
        let pool = pool_with_names();
        let link = |old, new, flags| pool.process.link(operand(old), operand(new), flags);
        link("to-f", "also-link", NONE).unwrap();
        link("to-f", "also-file", AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(mode(&pool, "also-link"), 0o120_777);
        let (file, also) =
            (pool.process.stat(at("f"), NONE).unwrap(), pool.process.stat(at("also-file"), NONE).unwrap());
        assert_eq!((file.inode, file.links), (also.inode, 2));
        let cases = [
            ("full", "new", NONE, Errno::PERM),
            ("full", "f", NONE, Errno::EXIST),
            ("none", "new", NONE, Errno::NOENT),
            ("f/", "new", NONE, Errno::NOTDIR),
            ("f", "new", AtFlags::REMOVEDIR, Errno::INVAL),
        ];
        for (old, new, flags, errno) in cases {
            assert_eq!(link(old, new, flags), Err(errno), "{old} {new}");
        }
    });
}

#[test]
fn a_rename_is_refused_with_the_errno_of_the_system() {
    with_and_without_capabilities(|| {
        let pool = pool_with_names();
        let cases = [
            ("none", "new", REPLACE, Errno::NOENT),
            ("f", "none/new", REPLACE, Errno::NOENT),
            ("f", "to-f/new", REPLACE, Errno::NOTDIR),
            ("f", "full", REPLACE, Errno::ISDIR),
            ("full", "f", REPLACE, Errno::NOTDIR),
            ("empty", "full", REPLACE, Errno::NOTEMPTY),
            ("full", "full/sub/new", REPLACE, Errno::INVAL),
            ("full", "full/sub", REPLACE, Errno::INVAL),
            ("full/sub", "full", REPLACE, Errno::NOTEMPTY),
            ("f/", "new", REPLACE, Errno::NOTDIR),
            ("f", "new/", REPLACE, Errno::NOTDIR),
            ("", "new", REPLACE, Errno::BUSY),
            ("full/.", "new", REPLACE, Errno::BUSY),
            ("full/./", "new", REPLACE, Errno::BUSY),
            ("full/..", "new", REPLACE, Errno::BUSY),
            ("f", "full/..", REPLACE, Errno::BUSY),
            ("f", "full/..", RenameFlags::NOREPLACE, Errno::EXIST),
            ("f", "to-f", RenameFlags::NOREPLACE, Errno::EXIST),
            ("none", "new", RenameFlags::NOREPLACE, Errno::NOENT),
            ("f", "new", RenameFlags::EXCHANGE, Errno::NOENT),
            ("full", "full/sub", RenameFlags::EXCHANGE, Errno::INVAL),
            ("full/sub", "full", RenameFlags::EXCHANGE, Errno::INVAL),
            ("full", "f/", RenameFlags::EXCHANGE, Errno::NOTDIR),
            ("f", "new", RenameFlags::NOREPLACE | RenameFlags::EXCHANGE, Errno::INVAL),
            ("f", "new", RenameFlags::WHITEOUT, Errno::INVAL),
        ];
        for (old, new, flags, errno) in cases {
            assert_eq!(pool.process.rename(operand(old), operand(new), flags), Err(errno), "{old} {new} {flags:?}");
        }
        assert_eq!(pool.text("f"), b"tide");
    });
}

#[test]
fn a_rename_replaces_exchanges_or_moves_and_never_follows_a_symlink() {
    with_and_without_capabilities(|| {
        let pool = pool_with_names();
        let rename = |old, new, flags| pool.process.rename(operand(old), operand(new), flags).unwrap();
        rename("full", "empty", REPLACE);
        assert!(exists(&pool, "empty/sub") && !exists(&pool, "full"));
        rename("empty/", "moved/", RenameFlags::NOREPLACE);
        rename("f", "moved/sub", RenameFlags::EXCHANGE);
        assert_eq!((pool.text("moved/sub"), mode(&pool, "f") >> 12), (b"tide".to_vec(), 0o4));
        rename("moved/sub", "to-full", REPLACE);
        assert_eq!((pool.text("to-full"), mode(&pool, "to-full")), (b"tide".to_vec(), 0o100_644));
        rename("to-full", "to-full", REPLACE);
        assert_eq!(pool.text("to-full"), b"tide");
    });
}

#[test]
fn a_rename_by_a_known_path_acts_where_the_path_leads_now() {
    with_and_without_capabilities(|| {
        let pool = pool_with_names();
        let other = pool.another(None);
        pool.mkdir("d");
        pool.make("d/one", b"old");
        pool.process.rename(operand("d/one"), operand("d/two"), REPLACE).unwrap();
        other.rename(operand("d"), operand("away"), REPLACE).unwrap();
        assert_eq!(pool.process.rename(operand("d/two"), operand("d/three"), REPLACE), Err(Errno::NOENT));
        pool.mkdir("d");
        pool.make("d/two", b"new");
        pool.process.rename(operand("d/two"), operand("d/three"), REPLACE).unwrap();
        assert_eq!((pool.text("d/three"), pool.text("away/two")), (b"new".to_vec(), b"old".to_vec()));
        pool.process.rename(operand("d/three"), operand("away/three"), REPLACE).unwrap();
        assert_eq!(pool.text("away/three"), b"new", "another directory");
    });
}

#[test]
fn a_directory_that_the_user_may_not_write_keeps_its_parent() {
    let pool = pool_with_names();
    pool.process.chmod(at("full/sub"), 0o555, NONE).unwrap();
    without_capabilities(|| {
        let rename = |old, new| pool.process.rename(operand(old), operand(new), REPLACE);
        assert_eq!(rename("full/sub", "empty/sub"), Err(Errno::ACCESS), "its `..` would change");
        assert_eq!(rename("full/sub", "full/other"), Ok(()));
    });
}

#[test]
fn no_name_moves_between_the_pool_and_the_host_and_names_of_the_host_are_the_kernels() {
    let pool = pool_with_names();
    let file = pool.symlink_to_host("out", b"host");
    let host = |name: &str| CString::new(pool.host.path().join(name).to_str().unwrap()).unwrap();
    let (old, new) = (host("out"), host("new"));
    let of_host = |path| PathOperand::Host(CWD, path);
    for (from, to) in [(operand("f"), of_host(&new)), (of_host(&old), operand("new"))] {
        assert_eq!(pool.process.rename(from, to, REPLACE), Err(Errno::XDEV));
        assert_eq!(pool.process.link(from, to, NONE), Err(Errno::XDEV));
    }
    pool.process.link(of_host(&old), of_host(&new), NONE).unwrap();
    pool.process.rename(of_host(&new), of_host(&host("moved")), REPLACE).unwrap();
    assert_eq!(std::fs::read(pool.host.path().join("moved")).unwrap(), b"host");
    pool.symlink(pool.host.path().to_str().unwrap(), "dir");
    pool.process.mkdir(at("dir/made"), 0o700).unwrap();
    pool.process.symlink(b"made", at("dir/link")).unwrap();
    pool.process.mknod(at("dir/fifo"), 0o010_600, 0).unwrap();
    assert!(pool.host.path().join("made").is_dir());
    assert_eq!(pool.process.read_link(at("dir/link")), Ok(b"made".to_vec()));
    for (path, flags) in [("dir/link", NONE), ("dir/fifo", NONE), ("dir/made", RMDIR)] {
        assert_eq!(pool.process.unlink(at(path), flags), Ok(()), "{path}");
    }
    assert!(file.exists() && !pool.host.path().join("made").exists());
}

#[test]
fn a_file_without_a_name_gets_none_by_an_empty_path_alone() {
    let pool = TestPool::start();
    let descriptor = pool.open("f", CREATE).unwrap();
    let by_path = pool.process.link(PathOperand::Pool(of(&descriptor)), operand("g"), NONE);
    assert_eq!(by_path, Err(Errno::NOENT), "the flag is missing");
    assert_eq!(pool.process.link(PathOperand::Pool(of(&descriptor)), operand("g"), AtFlags::EMPTY_PATH), Ok(()));
}
