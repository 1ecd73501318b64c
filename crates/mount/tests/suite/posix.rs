//! POSIX and Linux features besides names and bytes: links, unnamed files, extended attributes and
//! ACLs, ranges, birth times. With passthrough and without. Needs a usable /dev/fuse.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on has failed")]

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use crate::common::{TestMount, mounted_with, needs_fuse, options, pattern, pool, with_and_without_passthrough};
use rustix::{
    fs::{
        AtFlags, CWD, FallocateFlags, Mode, OFlags, SeekFrom, StatxFlags, XattrFlags, copy_file_range, fallocate,
        getxattr, linkat, listxattr, openat, removexattr, seek, setxattr, statx,
    },
    io::Errno,
};

const MIB: usize = 1 << 20;

with_and_without_passthrough! {
    a_file_has_as_many_names_as_it_is_given
    a_file_without_a_name_can_be_given_one
    extended_attributes_are_kept_up_to_their_limits
    a_default_acl_is_inherited_and_stands_in_for_the_umask
    ranges_are_allocated_punched_and_zeroed
    holes_and_data_are_found
    a_range_is_copied
    the_time_of_birth_is_told
    names_are_up_to_255_bytes_of_any_kind
    syncing_succeeds
}

fn a_file_has_as_many_names_as_it_is_given(mount: &TestMount) {
    let at = |name: &str| mount.point().join(name);
    for directory in 0..8 {
        fs::create_dir(at(&format!("d{directory}"))).unwrap();
    }
    fs::write(at("first"), pattern(10_000)).unwrap();
    for directory in 0..8 {
        fs::hard_link(at("first"), at(&format!("d{directory}/link"))).unwrap();
    }
    let found = fs::metadata(at("d3/link")).unwrap();
    assert_eq!((found.nlink(), found.ino()), (9, fs::metadata(at("first")).unwrap().ino()));
    OpenOptions::new().append(true).open(at("d5/link")).unwrap().write_all_at(b"more", 0).unwrap();
    assert_eq!(&fs::read(at("first")).unwrap()[10_000..], b"more");
    fs::remove_file(at("first")).unwrap();
    for directory in 0..8 {
        assert_eq!(fs::metadata(at(&format!("d{directory}/link"))).unwrap().nlink(), 8 - directory);
        fs::remove_file(at(&format!("d{directory}/link"))).unwrap();
    }
    let refused = fs::hard_link(at("d0"), at("d1/dir")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::PERM.raw_os_error()));
    fs::write(at("x"), b"").unwrap();
    fs::write(at("y"), b"").unwrap();
    assert_eq!(fs::hard_link(at("x"), at("y")).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}

fn a_file_without_a_name_can_be_given_one(mount: &TestMount) {
    let unnamed = |more: OFlags| openat(CWD, mount.point(), OFlags::TMPFILE | OFlags::RDWR | more, Mode::from(0o640));
    let name = |file: &std::os::fd::OwnedFd, to: &Path| {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        linkat(CWD, path, CWD, to, AtFlags::SYMLINK_FOLLOW)
    };
    let file = unnamed(OFlags::empty()).unwrap();
    rustix::io::pwrite(&file, &pattern(9000), 0).unwrap();
    assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 0);
    name(&file, &mount.point().join("named")).unwrap();
    drop(file);
    assert!(fs::read(mount.point().join("named")).unwrap() == pattern(9000));
    assert_eq!(fs::metadata(mount.point().join("named")).unwrap().nlink(), 1);
    let private = unnamed(OFlags::EXCL).unwrap();
    assert_eq!(name(&private, &mount.point().join("never")), Err(Errno::NOENT));
}

fn extended_attributes_are_kept_up_to_their_limits(mount: &TestMount) {
    let path = mount.point().join("file");
    fs::write(&path, b"x").unwrap();
    let get = |name: &str| -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; 65_536];
        let length = getxattr(&path, name, &mut value[..])?;
        value.truncate(length);
        Ok(value)
    };
    setxattr(&path, "user.small", b"value", XattrFlags::empty()).unwrap();
    assert_eq!(setxattr(&path, "user.small", b"other", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&path, "user.none", b"other", XattrFlags::REPLACE), Err(Errno::NODATA));
    assert_eq!(get("user.small").unwrap(), b"value");
    assert_eq!(getxattr(&path, "user.small", &mut [0_u8; 4]), Err(Errno::RANGE));
    setxattr(&path, "user.largest", &pattern(65_536), XattrFlags::empty()).unwrap();
    assert!(get("user.largest").unwrap() == pattern(65_536));
    assert_eq!(setxattr(&path, "user.larger", &pattern(65_537), XattrFlags::empty()), Err(Errno::TOOBIG));
    let longest = format!("user.{}", "n".repeat(250));
    setxattr(&path, longest.as_str(), b"", XattrFlags::empty()).unwrap();
    let longer = format!("{longest}n");
    assert_eq!(setxattr(&path, longer.as_str(), b"", XattrFlags::empty()), Err(Errno::RANGE));
    let mut names = vec![0; 1000];
    let length = listxattr(&path, &mut names[..]).unwrap();
    let mut listed: Vec<&[u8]> = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    listed.sort_unstable();
    assert_eq!(listed, [b"user.largest", longest.as_bytes(), b"user.small"]);
    removexattr(&path, "user.largest").unwrap();
    assert_eq!(removexattr(&path, "user.largest"), Err(Errno::NODATA));
    assert_eq!(get("user.largest"), Err(Errno::NODATA));
    fs::rename(&path, mount.point().join("moved")).unwrap();
    assert_eq!(getxattr(mount.point().join("moved"), "user.small", &mut [0_u8; 10]), Ok(5));
}

/// An ACL in the kernel's encoding: version 2, then tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn a_default_acl_is_inherited_and_stands_in_for_the_umask(mount: &TestMount) {
    const NONE: u32 = u32::MAX;
    let directory = mount.point().join("dir");
    fs::create_dir(&directory).unwrap();
    // Owner rwx, user 1234 rwx, group r-x, mask rwx, others nothing.
    let default = acl(&[(0x01, 7, NONE), (0x02, 7, 1234), (0x04, 5, NONE), (0x10, 7, NONE), (0x20, 0, NONE)]);
    setxattr(&directory, "system.posix_acl_default", &default, XattrFlags::empty()).unwrap();
    let mut value = vec![0; 1000];
    let made = directory.join("file");
    OpenOptions::new().write(true).create_new(true).mode(0o666).open(&made).unwrap();
    let length = getxattr(&made, "system.posix_acl_access", &mut value[..]).unwrap();
    let inherited = acl(&[(0x01, 6, NONE), (0x02, 7, 1234), (0x04, 5, NONE), (0x10, 6, NONE), (0x20, 0, NONE)]);
    assert_eq!(value[..length], inherited);
    assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o660, "the umask does not count, the default ACL does");
    let below = directory.join("below");
    fs::create_dir(&below).unwrap();
    let length = getxattr(&below, "system.posix_acl_default", &mut value[..]).unwrap();
    assert_eq!(value[..length], default);
    let plain = mount.point().join("plain");
    File::create(&plain).unwrap();
    assert_eq!(getxattr(&plain, "system.posix_acl_access", &mut value[..]), Err(Errno::NODATA));
    assert_eq!(fs::metadata(&plain).unwrap().mode() & 0o022, 0, "elsewhere the umask counts");
    // The group permission bits and the ACL's mask are one value.
    fs::set_permissions(&made, fs::Permissions::from_mode(0o640)).unwrap();
    let length = getxattr(&made, "system.posix_acl_access", &mut value[..]).unwrap();
    let masked = acl(&[(0x01, 6, NONE), (0x02, 7, 1234), (0x04, 5, NONE), (0x10, 4, NONE), (0x20, 0, NONE)]);
    assert_eq!(value[..length], masked);
}

fn ranges_are_allocated_punched_and_zeroed(mount: &TestMount) {
    let path = mount.point().join("file");
    fs::write(&path, vec![1; 3 * MIB]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, MIB as u64 - 10, MIB as u64 + 20).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 3 * MIB);
    assert!(bytes[..MIB - 10].iter().chain(&bytes[2 * MIB + 10..]).all(|byte| *byte == 1));
    assert!(bytes[MIB - 10..2 * MIB + 10].iter().all(|byte| *byte == 0));
    fallocate(&file, FallocateFlags::empty(), 3 * MIB as u64, 100).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3 * MIB as u64 + 100);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 4 * MIB as u64, 100).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3 * MIB as u64 + 100);
    let collapse = FallocateFlags::COLLAPSE_RANGE;
    assert_eq!(fallocate(&file, collapse, 0, 4096), Err(Errno::OPNOTSUPP));
}

fn holes_and_data_are_found(mount: &TestMount) {
    let path = mount.point().join("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(8 * MIB as u64).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(5)), Ok(5));
    file.write_all_at(&vec![1; MIB], 4 * MIB as u64).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(4 * MIB as u64));
    // Memory is allocated in huge pages at most, so the hole begins at most that much later.
    let hole = seek(&file, SeekFrom::Hole(4 * MIB as u64)).unwrap();
    assert!((5 * MIB as u64..=6 * MIB as u64).contains(&hole), "{hole}");
    assert_eq!(seek(&file, SeekFrom::Data(8 * MIB as u64)), Err(Errno::NXIO));
}

fn a_range_is_copied(mount: &TestMount) {
    let at = |name: &str| mount.point().join(name);
    fs::write(at("from"), pattern(2 * MIB)).unwrap();
    fs::write(at("to"), b"0123456789").unwrap();
    let (from, to) = (File::open(at("from")).unwrap(), OpenOptions::new().write(true).open(at("to")).unwrap());
    let (mut source, mut target) = (1000, 5);
    while source < 1000 + MIB as u64 {
        let left = 1000 + MIB - usize::try_from(source).unwrap();
        assert!(copy_file_range(&from, Some(&mut source), &to, Some(&mut target), left).unwrap() > 0);
    }
    let copied = fs::read(at("to")).unwrap();
    assert!(copied[..5] == *b"01234" && copied[5..] == pattern(2 * MIB)[1000..1000 + MIB]);
    fs::copy(at("from"), at("copy")).unwrap();
    assert!(fs::read(at("copy")).unwrap() == pattern(2 * MIB));
}

fn the_time_of_birth_is_told(mount: &TestMount) {
    let path = mount.point().join("file");
    fs::write(&path, b"x").unwrap();
    let found = statx(CWD, &path, AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::BTIME).unwrap();
    assert!(StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME));
    let born = fs::metadata(&path).unwrap().created().unwrap();
    fs::write(&path, b"again").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().created().unwrap(), born);
    assert!(born <= fs::metadata(&path).unwrap().modified().unwrap());
}

fn names_are_up_to_255_bytes_of_any_kind(mount: &TestMount) {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt};
    let name = |length: usize| mount.point().join(OsString::from_vec(vec![0xfe; length]));
    fs::write(name(255), b"x").unwrap();
    assert_eq!(fs::read(name(255)).unwrap(), b"x");
    for length in [256, 1024] {
        let refused = fs::write(name(length), b"x").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()), "{length}");
        let refused = fs::metadata(name(length)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()), "{length}");
    }
}

fn syncing_succeeds(mount: &TestMount) {
    let file = File::create(mount.point().join("file")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    File::open(mount.point()).unwrap().sync_all().unwrap();
    rustix::fs::syncfs(&file).unwrap();
}

#[test]
fn a_million_bytes_beyond_the_limit_is_too_large() {
    needs_fuse!();
    let mount = mounted_with(pool(), &options());
    let file = File::create(mount.point().join("file")).unwrap();
    file.set_len(1 << 40).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 40);
    assert!(file.metadata().unwrap().blocks() < 100, "holes take no space");
    println!("{:?}", file.metadata().unwrap().blocks());
}
