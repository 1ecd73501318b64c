//! Tests of path resolution: dots, symlinks, limits, permissions on the path, and the path cache.

use crate::pool_test::{TestPool, at, operand, with_and_without_capabilities};
use crate::resolve::{Destination, LastComponent, LastMode, PATH_BYTES_MAX, ResolvedPath};
use crate::{Caller, Errno, PathArg, PathBase, XattrTarget};
use placement::FileId;
use rustix::fs::{AtFlags, OFlags, RenameFlags, XattrFlags};
use rustix::thread::CapabilitySet;
use std::os::fd::AsFd;

const MODES: [LastMode; 4] = [LastMode::Follow, LastMode::NoFollow, LastMode::Parent, LastMode::ParentAndEntry];

/// User who owns nothing in the pool.
fn stranger() -> Caller {
    Caller::new(54_321, 54_321, &[], CapabilitySet::empty())
}

fn resolve(pool: &TestPool, caller: &Caller, path: &str, mode: LastMode) -> Result<Destination, Errno> {
    pool.process.wait(pool.process.resolve(caller, at(path), mode))
}

fn resolve_in_pool(pool: &TestPool, path: &str, mode: LastMode) -> ResolvedPath {
    match resolve(pool, &Caller::effective(), path, mode).unwrap() {
        Destination::Pool(resolved) => resolved,
        Destination::Host(path) => panic!("{path:?} is of the host"),
    }
}

fn real_path(pool: &TestPool, path: &str) -> Result<String, Errno> {
    pool.process.real_path(at(path)).map(|path| String::from_utf8(path).unwrap())
}

#[test]
fn a_real_path_has_no_dots_no_symlinks_and_no_repeated_slashes() {
    with_and_without_capabilities(|| {
        let pool = TestPool::start();
        pool.mkdir("a");
        pool.mkdir("a/b");
        pool.make("a/b/f", b"");
        pool.symlink("a/b", "down");
        pool.symlink("../..", "a/b/up");
        pool.symlink("/tidemill/a", "absolute");
        pool.symlink("/usr/../tidemill//a/./b/", "detour");
        let cases = [
            ("", ""),
            ("/", ""),
            (".", ""),
            ("..", ""),
            ("../../a", "/a"),
            ("a/./b//f", "/a/b/f"),
            ("a/b/../b/f", "/a/b/f"),
            ("a/b/..", "/a"),
            ("a/b/.", "/a/b"),
            ("a/b/", "/a/b"),
            ("down/f", "/a/b/f"),
            ("down/..", "/a"),
            ("down/up/a", "/a"),
            ("absolute/b/up/down/", "/a/b"),
            ("detour/f", "/a/b/f"),
        ];
        for (path, expected) in cases {
            // The second resolution may use the path cache.
            for _ in 0..2 {
                assert_eq!(real_path(&pool, path), Ok(format!("/tidemill{expected}")), "{path}");
            }
        }
    });
}

#[test]
fn a_path_fails_at_its_first_name_that_leads_nowhere() {
    with_and_without_capabilities(|| {
        let pool = TestPool::start();
        pool.mkdir("d");
        pool.make("d/f", b"");
        pool.symlink("none", "dangling");
        pool.symlink("self", "self");
        let (too_long, longest) = ("n".repeat(256), "n".repeat(255));
        let cases = [
            ("none", Errno::NOENT),
            ("none/f", Errno::NOENT),
            ("none/../d", Errno::NOENT),
            ("d/f/", Errno::NOTDIR),
            ("d/f/.", Errno::NOTDIR),
            ("d/f/..", Errno::NOTDIR),
            ("d/f/none", Errno::NOTDIR),
            ("dangling", Errno::NOENT),
            ("dangling/f", Errno::NOENT),
            ("self", Errno::LOOP),
            ("self/f", Errno::LOOP),
            (&longest, Errno::NOENT),
            (&too_long, Errno::NAMETOOLONG),
            ("d/f\0", Errno::INVAL),
        ];
        for (path, errno) in cases {
            for _ in 0..2 {
                assert_eq!(real_path(&pool, path), Err(errno), "{path:?}");
            }
        }
    });
}

#[test]
fn forty_symlinks_are_followed_and_no_more() {
    let pool = TestPool::start();
    pool.make("0", b"");
    for number in 1..=41 {
        pool.symlink(&(number - 1).to_string(), &number.to_string());
    }
    assert_eq!(real_path(&pool, "40"), Ok("/tidemill/0".to_owned()));
    assert_eq!(real_path(&pool, "41"), Err(Errno::LOOP));
}

#[test]
fn a_path_is_too_long_with_the_prefix_that_the_program_wrote() {
    let pool = TestPool::start();
    pool.mkdir("d");
    let directory = pool.open("d", OFlags::RDONLY).unwrap();
    let long = |bytes: usize| "/".repeat(bytes);
    let limit = PATH_BYTES_MAX - b"/tidemill".len();
    assert_eq!(real_path(&pool, &long(limit)), Ok("/tidemill".to_owned()));
    assert_eq!(real_path(&pool, &long(limit + 1)), Err(Errno::NAMETOOLONG));
    let relative = |path: &str| {
        pool.process.real_path(PathArg { base: PathBase::Descriptor(directory.as_fd()), path: path.as_bytes() })
    };
    let dots = ["./".repeat(PATH_BYTES_MAX / 2), ".".to_owned()].concat();
    assert_eq!(relative(&dots), Ok(b"/tidemill/d".to_vec()));
    assert_eq!(relative(&format!("{dots}/")), Err(Errno::NAMETOOLONG));
}

#[test]
fn a_path_may_have_more_directories_than_fit_in_one_message() {
    let pool = TestPool::start();
    let mut path = String::new();
    for _ in 0..300 {
        path.push_str("/d");
        pool.mkdir(&path);
    }
    pool.make(&format!("{path}/f"), b"deep");
    assert_eq!(pool.text(&format!("{path}/f")), b"deep");
    assert_eq!(real_path(&pool, &format!("{path}/f")), Ok(format!("/tidemill{path}/f")));
    assert_eq!(real_path(&pool, &format!("{path}{}", "/..".repeat(299))), Ok("/tidemill/d".to_owned()));
}

#[test]
fn a_symlink_out_of_the_pool_leads_to_the_host_with_all_names_that_follow() {
    let pool = TestPool::start();
    pool.mkdir("d");
    pool.symlink("/else/where", "d/out");
    pool.symlink("/else/where/", "slash");
    pool.symlink("/tidemills", "similar");
    let cases = [
        ("d/out", "/else/where"),
        ("d/out/", "/else/where/"),
        ("d/out/a/../b", "/else/where/a/../b"),
        ("d/out/a/b/", "/else/where/a/b/"),
        ("slash", "/else/where//"),
        ("similar/a", "/tidemills/a"),
    ];
    for (path, expected) in cases {
        match resolve(&pool, &Caller::effective(), path, LastMode::Follow) {
            Ok(Destination::Host(found)) => assert_eq!(found.to_str(), Ok(expected), "{path}"),
            other => panic!("{path}: {other:?}"),
        }
    }
    let link = resolve_in_pool(&pool, "d/out", LastMode::NoFollow);
    assert_eq!(link.names(), [b"d".to_vec(), b"out".to_vec()]);
}

#[test]
fn the_last_name_is_looked_up_only_if_the_mode_or_a_slash_needs_it() {
    let pool = TestPool::start();
    pool.mkdir("d");
    pool.make("d/f", b"");
    for (mode, looks_up) in MODES.into_iter().zip([true, true, false, true]) {
        let resolved = resolve_in_pool(&pool, "d/f", mode);
        assert_eq!((resolved.found.is_some(), resolved.slash), (looks_up, false), "{mode:?}");
        let resolved = resolve_in_pool(&pool, "d/f/", mode);
        assert_eq!((resolved.found.is_some(), resolved.slash), (true, true), "{mode:?}");
        assert_eq!(resolved.existing().err(), Some(Errno::NOTDIR), "{mode:?}");
        let resolved = resolve_in_pool(&pool, "d/none", mode);
        assert_eq!(resolved.existing().err(), Some(Errno::NOENT), "{mode:?}");
    }
}

#[test]
fn a_path_that_ends_in_dots_has_no_name_to_create_or_remove() {
    let pool = TestPool::start();
    pool.mkdir("d");
    let name = |path| {
        let resolved = resolve_in_pool(&pool, path, LastMode::Parent);
        resolved.name(Errno::BUSY, Errno::NOTEMPTY).map(|name| name.as_bytes().to_vec())
    };
    assert_eq!(name("d"), Ok(b"d".to_vec()));
    for path in ["", "/", ".", "d/.", "d/./"] {
        assert_eq!(name(path), Err(Errno::BUSY), "{path}");
    }
    for path in ["..", "d/..", "d/../"] {
        assert_eq!(name(path), Err(Errno::NOTEMPTY), "{path}");
    }
    assert_eq!(resolve_in_pool(&pool, "d/..", LastMode::Parent).last, LastComponent::DotDot);
}

#[test]
fn every_directory_on_a_path_must_let_the_user_search_it() {
    let pool = TestPool::start();
    for path in ["a", "a/closed", "a/closed/b"] {
        pool.mkdir(path);
    }
    pool.make("a/closed/b/f", b"");
    pool.symlink("a/closed/b", "link");
    pool.process.chmod(at("a/closed"), 0o706, AtFlags::empty()).unwrap();
    for mode in MODES {
        for path in ["a/closed/b", "a/closed/b/f", "a/closed/none", "a/closed/.", "a/closed/..", "link/f"] {
            let denied = resolve(&pool, &stranger(), path, mode).map(drop);
            assert_eq!(denied, Err(Errno::ACCESS), "{path} {mode:?}");
        }
        assert!(resolve(&pool, &stranger(), "a/closed", mode).is_ok(), "the directory itself is seen, {mode:?}");
        let searcher = Caller::new(54_321, 54_321, &[], CapabilitySet::DAC_READ_SEARCH);
        assert!(resolve(&pool, &searcher, "a/closed/b/f", mode).is_ok(), "{mode:?}");
    }
}

#[test]
fn an_acl_lets_a_user_search_a_directory_on_the_path() {
    let pool = TestPool::start();
    pool.mkdir("d");
    pool.make("d/f", b"");
    pool.process.chmod(at("d"), 0o700, AtFlags::empty()).unwrap();
    // Owner, user 54321, group, mask, others.
    let entries: [(u16, u16, u32); 5] =
        [(0x01, 7, u32::MAX), (0x02, 1, 54_321), (0x04, 0, u32::MAX), (0x10, 1, u32::MAX), (0x20, 0, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        acl.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    let target = XattrTarget::Path { arg: at("d"), follow: true };
    pool.process.set_xattr(target, b"system.posix_acl_access", &acl, XattrFlags::empty()).unwrap();
    assert!(resolve(&pool, &stranger(), "d/f", LastMode::Follow).is_ok());
    let other = Caller::new(54_322, 54_322, &[], CapabilitySet::empty());
    assert_eq!(resolve(&pool, &other, "d/f", LastMode::Follow).map(drop), Err(Errno::ACCESS));
    pool.process.chmod(at("d"), 0o700, AtFlags::empty()).unwrap();
    let denied = resolve(&pool, &stranger(), "d/f", LastMode::Follow).map(drop);
    assert_eq!(denied, Err(Errno::ACCESS), "chmod has set the mask");
}

#[test]
fn a_path_is_remembered_by_its_names_alone_and_only_if_all_are_directories() {
    let pool = TestPool::start();
    pool.mkdir("a");
    pool.mkdir("a/b");
    pool.make("a/b/f", b"");
    pool.symlink("a", "link");
    let known = |text: &str| pool.process.path_cache.get(&(FileId::ROOT, text.into())).map(|path| path.directory());
    assert_eq!(known("a/b/c"), None);
    resolve_in_pool(&pool, ".//a/./b/f", LastMode::Follow);
    let directory = resolve_in_pool(&pool, "a/b/.", LastMode::Follow).directory.file;
    assert_eq!(known("a/b"), Some(directory));
    resolve_in_pool(&pool, "link/b/f", LastMode::Follow);
    resolve_in_pool(&pool, "a/b/../b/f", LastMode::Follow);
    assert_eq!((known("link/b"), known("a/b/../b")), (None, None));
}

#[test]
fn a_cached_path_leads_to_what_has_its_name_now() {
    with_and_without_capabilities(|| {
        let pool = TestPool::start();
        let other = pool.another(None);
        pool.mkdir("a");
        pool.mkdir("a/b");
        pool.make("a/b/f", b"old");
        assert_eq!(pool.text("a/b/f"), b"old");
        other.rename(operand("a/b"), operand("moved"), RenameFlags::empty()).unwrap();
        assert_eq!(real_path(&pool, "a/b/f"), Err(Errno::NOENT));
        assert_eq!(pool.open("a/b/f", OFlags::RDWR | OFlags::CREATE).map(drop), Err(Errno::NOENT));
        assert_eq!(pool.text("moved/f"), b"old");
        other.mkdir(at("a/b"), 0o755).unwrap();
        pool.make("a/b/f", b"new");
        assert_eq!((pool.text("a/b/f"), pool.text("moved/f")), (b"new".to_vec(), b"old".to_vec()));
        other.rename(operand("moved"), operand("a/b"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!((pool.text("a/b/f"), pool.text("moved/f")), (b"old".to_vec(), b"new".to_vec()));
        other.unlink(at("a/b/f"), AtFlags::empty()).unwrap();
        assert_eq!(pool.process.unlink(at("a/b/f"), AtFlags::empty()), Err(Errno::NOENT));
        other.unlink(at("a/b"), AtFlags::REMOVEDIR).unwrap();
        pool.symlink("../moved", "a/b");
        assert_eq!(pool.text("a/b/f"), b"new", "a symlink has taken the directory's name");
    });
}
