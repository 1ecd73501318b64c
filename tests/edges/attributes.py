"""Owners, permissions, times, extended attributes and access lists."""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from calls import AT_SYMLINK_NOFOLLOW, UTIME_NOW, UTIME_OMIT, edge, in_child, opened, outcome, set_times

NOBODY, DAEMON, GROUP = 65534, 1, 4321
# From linux/time.h; the time module does not define it.
CLOCK_REALTIME_COARSE = 5


def mode(path: str = "f") -> str:
    """File type and permissions."""
    return stat.filemode(os.lstat(path).st_mode)


def tick() -> None:
    """Waits for the next tick of the kernel's coarse clock, so that a later timestamp is larger."""
    start = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) == start:
        time.sleep(0.001)


def moved(path: str, work: Callable[..., object], *args: object) -> str:
    """Returns which times of a path a call changes, or its error."""
    before = os.lstat(path)
    tick()
    try:
        work(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
    after = os.lstat(path)
    return "".join(
        letter for letter, name in (("a", "st_atime_ns"), ("m", "st_mtime_ns"), ("c", "st_ctime_ns")) if getattr(after, name) != getattr(before, name)
    )


def run(*words: str) -> list[object]:
    """Exit code and output of a program."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    return [done.returncode, done.stdout, done.stderr.replace(os.getcwd(), "")]


@edge
def times_that_a_call_on_a_file_moves(_: Path) -> object:
    Path("f").write_bytes(b"x" * 100)
    with opened("f") as file:
        calls = [
            (os.pwrite, file, b"y", 0),
            (os.pwrite, file, b"", 0),
            (os.pwrite, file, b"y", 9000),
            (os.ftruncate, file, 10),
            (os.ftruncate, file, 10),
            (os.truncate, "f", 10),
            (os.truncate, "f", 20),
            (os.chmod, "f", 0o600),
            (os.chmod, "f", 0o600),
            (os.chown, "f", 5, 5),
            (os.chown, "f", -1, -1),
            (os.link, "f", "g"),
            (os.rename, "g", "h"),
            (os.unlink, "h"),
            (os.setxattr, "f", "user.a", b"1"),
            (os.removexattr, "f", "user.a"),
            (os.rename, "f", "f2"),
            (os.rename, "f2", "f"),
            (os.utime, "f", (1, 2)),
            (os.fsync, file),
            (os.posix_fallocate, file, 0, 5),
            (os.posix_fallocate, file, 0, 50_000),
            (os.stat, "f"),
        ]
        return [outcome(*call) if call[0] is os.rename and call[1] in {"f", "f2"} else moved("f", *call) for call in calls]


@edge
def times_of_a_file_opened_to_truncate(_: Path) -> object:
    Path("f").write_bytes(b"x" * 100)
    return [
        moved("f", lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))),
        moved("f", lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))),
        moved("f", lambda: os.close(os.open("f", os.O_WRONLY))),
    ]


@edge
def times_of_a_renamed_file_and_folder(_: Path) -> object:
    seen = []
    os.mkdir("a")
    os.mkdir("b")
    for make in (lambda name: Path(name).touch(), os.mkdir, lambda name: os.symlink("x", name)):
        make("a/one")
        before = os.lstat("a/one")
        tick()
        os.rename("a/one", "b/two")
        after = os.lstat("b/two")
        seen.append([after.st_mtime_ns == before.st_mtime_ns, after.st_ctime_ns > before.st_ctime_ns, after.st_ino == before.st_ino])
        tick()
        os.rename("b/two", "b/three")
        seen.append([os.lstat("b/three").st_ctime_ns > after.st_ctime_ns])
        os.rename("b/three", f"b/{len(seen)}")
    return seen


@edge
def times_that_a_call_in_a_folder_moves(_: Path) -> object:
    for name in ("d", "e", "d/sub"):
        os.mkdir(name)
    calls = [
        (os.mknod, "d/f"),
        (lambda: Path("d/f").write_bytes(b"x"),),
        (os.chmod, "d/f", 0o600),
        (os.rename, "d/f", "d/g"),
        (os.link, "d/g", "d/h"),
        (os.rename, "d/h", "e/h"),
        (os.rename, "e/h", "d/h"),
        (os.unlink, "d/h"),
        (os.symlink, "x", "d/s"),
        (os.mkdir, "d/m"),
        (os.rmdir, "d/m"),
        (os.mkdir, "d/sub/x"),
        (os.mknod, "d/g"),
        (os.unlink, "d/nope"),
        (os.chmod, "d", 0o700),
        (os.rename, "d", "d2"),
        (os.rename, "d2", "d"),
    ]
    return [outcome(*call) if call[0] is os.rename and call[1] in {"d", "d2"} else moved("d", *call) for call in calls]


@edge
def an_exchange_moves_times(_: Path) -> object:
    from calls import RENAME_EXCHANGE, rename2

    os.mkdir("a")
    os.mkdir("b")
    Path("a/f").write_bytes(b"1")
    os.mkdir("b/d")
    before = [os.lstat(name) for name in ("a", "b", "a/f", "b/d")]
    tick()
    rename2("a/f", "b/d", RENAME_EXCHANGE)
    after = [os.lstat(name) for name in ("a", "b", "b/d", "a/f")]
    return [
        [new.st_mtime_ns > old.st_mtime_ns, new.st_ctime_ns > old.st_ctime_ns, new.st_nlink, new.st_ino == old.st_ino]
        for old, new in zip(before, after, strict=True)
    ]


@edge
def setting_times(_: Path) -> object:
    Path("f").touch()
    seen = []
    for access, change in (
        ((1, 2), (3, 4)),
        ((0, 0), (0, 0)),
        ((-5, 7), (-1, 999_999_999)),
        ((2**33, 1), (2**34 - 1, 1)),
        ((9, UTIME_OMIT), (8, 0)),
        ((7, 0), (9, UTIME_OMIT)),
        ((0, UTIME_OMIT), (0, UTIME_OMIT)),
    ):
        set_times("f", access, change)
        seen.append([os.stat("f").st_atime_ns, os.stat("f").st_mtime_ns])
    return seen


@edge
def setting_times_to_now(_: Path) -> object:
    Path("f").touch()
    set_times("f", (1, 0), (1, 0))
    low = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
    seen = []
    for access, change in (((0, UTIME_NOW), (5, 0)), ((0, UTIME_OMIT), (0, UTIME_NOW)), ((0, UTIME_NOW), (0, UTIME_NOW))):
        set_times("f", access, change)
        status, high = os.stat("f"), time.time_ns()
        seen.append([low <= at <= high for at in (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)])
    return seen


@edge
def setting_bad_times(_: Path) -> object:
    Path("f").touch()
    return [outcome(set_times, "f", (0, bad), (0, 0)) for bad in (-1, 10**9, 2**31)] + [outcome(set_times, "nope", (1, 1), (1, 1))]


@edge
def setting_times_of_a_link(_: Path) -> object:
    Path("f").touch()
    os.symlink("f", "l")
    set_times("l", (1, 2), (3, 4), AT_SYMLINK_NOFOLLOW)
    return [os.lstat("l").st_mtime_ns, os.stat("f").st_mtime_ns > 10**18]


@edge
def setting_times_as_another_user(place: Path) -> object:
    place.chmod(0o777)
    for name, rights in (("open", 0o666), ("closed", 0o644)):
        Path(name).touch()
        os.chmod(name, rights)
    both = ((0, UTIME_NOW), (0, UTIME_NOW))
    return [
        in_child(lambda name=name, times=times: set_times(name, *times), NOBODY)
        for name in ("open", "closed")
        for times in (both, ((1, 1), (1, 1)), ((0, UTIME_OMIT), (0, UTIME_OMIT)), ((0, UTIME_NOW), (0, UTIME_OMIT)))
    ]


@edge
def set_times_stay_through_reads_and_closes(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 10_000)
        os.utime(file, ns=(5 * 10**18, 6 * 10**17))
    return [os.stat("f").st_mtime_ns, len(Path("f").read_bytes()), os.stat("f").st_mtime_ns]


@edge
def a_write_through_one_descriptor_is_seen_in_the_times_of_the_path(_: Path) -> object:
    with opened("f") as file:
        seen = []
        for size in (10, 5000, 100_000):
            before = os.stat("f").st_mtime_ns
            tick()
            os.write(file, b"x" * size)
            seen.append([os.stat("f").st_mtime_ns > before, os.stat("f").st_mtime_ns == os.fstat(file).st_mtime_ns])
        return seen


@edge
def stamps_never_go_backwards(_: Path) -> object:
    last, backwards = 0, 0
    with opened("f") as file:
        for turn in range(300):
            stamp = (lambda at: os.pwrite(file, b"x" * (at * 50), 0), lambda at: os.chmod("f", 0o600 + at % 64), lambda _at: os.utime("f"))[turn % 3]
            stamp(turn)
            now = os.stat("f").st_ctime_ns
            backwards += now < last
            last = now
    return backwards


@edge
def changing_permissions(_: Path) -> object:
    Path("f").touch()
    os.mkdir("d")
    seen = []
    for bits in (0, 0o7777, 0o4755, 0o2755, 0o1755, 0o10644):
        os.chmod("f", bits)
        os.chmod("d", bits)
        seen += [mode("f"), mode("d")]
    return seen


@edge
def permissions_of_a_link_are_not_changed(_: Path) -> object:
    os.symlink("f", "l")
    return [outcome(os.chmod, "l", 0o600), mode("l"), outcome(run, "chmod", "-h", "600", "l")[0] != 7]


@edge
def the_owner_changes_permissions_and_nobody_else(place: Path) -> object:
    place.chmod(0o777)
    Path("f").touch()
    os.chown("f", NOBODY, GROUP)
    as_owner = [in_child(lambda bits=bits: os.chmod("f", bits), NOBODY) for bits in (0o600, 0o2755)]
    return [as_owner, mode(), in_child(lambda: os.chmod("f", 0o777), DAEMON), in_child(lambda: os.chmod("f", 0o2755), NOBODY, (GROUP,)), mode()]


@edge
def the_owner_gives_a_file_to_own_groups_only(place: Path) -> object:
    place.chmod(0o777)
    Path("f").touch()
    os.chown("f", NOBODY, NOBODY)
    tries = [(-1, GROUP), (-1, 77), (DAEMON, -1), (NOBODY, GROUP), (-1, -1)]
    return [in_child(lambda to=to: os.chown("f", *to), NOBODY, (NOBODY, GROUP)) for to in tries] + [[os.stat("f").st_uid, os.stat("f").st_gid]]


@edge
def owners_beyond_sixteen_bits(_: Path) -> object:
    Path("f").touch()
    os.chown("f", 4_000_000_000, 3_999_999_999)
    return [os.stat("f").st_uid, os.stat("f").st_gid]


@edge
def a_new_owner_loses_set_id_bits(_: Path) -> object:
    seen = []
    os.mkdir("d")
    for bits in (0o6755, 0o2745, 0o4644, 0o6777):
        for name in ("f", "d"):
            Path(name).touch()
            os.chmod(name, bits)
            os.chown(name, 5, 6)
            seen.append(mode(name))
    return seen


# Calls that another user may make on a file that all may write.
BY_OTHERS: dict[str, Callable[[], object]] = {
    "write": lambda: in_child_file(lambda file: os.write(file, b"x")),
    "write of nothing": lambda: in_child_file(lambda file: os.write(file, b"")),
    "ftruncate": lambda: in_child_file(lambda file: os.ftruncate(file, 3)),
    "truncate": lambda: os.truncate("f", 4),
    "open to truncate": lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC)),
    "open to write": lambda: os.close(os.open("f", os.O_WRONLY)),
    "write 100,000": lambda: in_child_file(lambda file: os.write(file, b"x" * 100_000)),
}


def after_others(bits: int) -> list[object]:
    """The permissions of a file after calls of another user."""
    seen = []
    for way, work in BY_OTHERS.items():
        Path("f").write_bytes(b"12345")
        os.chmod("f", bits)
        seen.append([way, in_child(work, NOBODY), mode()])
        os.unlink("f")
    return seen


@edge
def a_write_by_another_user_loses_set_id_bits(place: Path) -> object:
    place.chmod(0o777)
    return [after_others(bits) for bits in (0o6777, 0o2777, 0o4777, 0o1777)]


@edge
def set_group_id_without_the_right_to_run(place: Path) -> object:
    place.chmod(0o777)
    return after_others(0o2767)


def in_child_file(work: object) -> object:
    """Calls `work` with the file open for writing."""
    with opened("f", os.O_WRONLY) as file:
        return work(file)


@edge
def a_write_by_root_keeps_set_id_bits(_: Path) -> object:
    Path("f").touch()
    os.chmod("f", 0o6755)
    in_child_file(lambda file: os.write(file, b"x" * 9000))
    return [mode(), os.truncate("f", 3), mode()]


@edge
def a_set_group_id_folder_hands_down_its_group(place: Path) -> object:
    place.chmod(0o777)
    os.mkdir("d")
    os.chown("d", -1, GROUP)
    os.chmod("d", 0o2777)

    def make() -> None:
        Path("d/f").touch()
        os.mkdir("d/sub")
        os.symlink("x", "d/l")
        os.close(os.open("d/g", os.O_CREAT | os.O_WRONLY, 0o2775))
        os.mknod("d/p", 0o10600)

    said = in_child(make, NOBODY, (NOBODY,), 0)
    return [said, [[name, os.lstat(f"d/{name}").st_gid, mode(f"d/{name}")] for name in ("f", "sub", "l", "g", "p")]]


@edge
def the_sticky_bit(place: Path) -> object:
    place.chmod(0o1777)
    os.mkdir("sub")
    Path("theirs").touch()
    in_child(lambda: Path("mine").touch(), NOBODY)
    tries = [
        lambda: os.unlink("theirs"),
        lambda: os.rename("theirs", "x"),
        lambda: os.rename("mine", "theirs"),
        lambda: os.rmdir("sub"),
        lambda: os.rename("mine", "x"),
        lambda: os.unlink("x"),
    ]
    return [in_child(work, NOBODY) for work in tries]


@edge
def permissions_are_enforced(place: Path) -> object:
    place.chmod(0o755)
    seen = []
    for bits in (0o000, 0o400, 0o200, 0o100, 0o700, 0o040, 0o004, 0o002, 0o001, 0o777):
        for name in ("f", "d"):
            Path(name).touch() if name == "f" else os.mkdir(name)
            os.chown(name, NOBODY, GROUP)
            os.chmod(name, bits)
        for user, groups in ((NOBODY, (NOBODY,)), (DAEMON, (DAEMON, GROUP)), (DAEMON, (DAEMON,))):
            calls = [
                lambda: os.close(os.open("f", os.O_RDONLY)),
                lambda: os.close(os.open("f", os.O_WRONLY)),
                lambda: os.listdir("d"),
                lambda: Path("d/x").touch(),
                lambda: outcome(os.stat, "d/nope"),
                lambda: os.access("f", os.X_OK),
            ]
            seen.append([oct(bits), [in_child(call, user, groups) for call in calls]])
        os.unlink("f")
        subprocess.run(["rm", "-rf", "d"], check=True)
    return seen


@edge
def attributes_are_set_and_read(_: Path) -> object:
    Path("f").touch()
    os.mkdir("d")
    seen = []
    for name in ("f", "d"):
        for key in ("user.one", "user.two", "trusted.three", "security.four"):
            seen.append(outcome(os.setxattr, name, key, key.encode() * 10))
        seen += [
            sorted(os.listxattr(name)),
            os.getxattr(name, "user.one").decode(),
            outcome(os.removexattr, name, "user.one"),
            outcome(os.removexattr, name, "user.one"),
            sorted(os.listxattr(name)),
        ]
    return seen


@edge
def attributes_are_created_and_replaced(_: Path) -> object:
    Path("f").touch()
    steps = [(b"1", os.XATTR_REPLACE), (b"2", os.XATTR_CREATE), (b"3", os.XATTR_CREATE), (b"4", os.XATTR_REPLACE), (b"", 0), (b"5", 3)]
    return [[outcome(os.setxattr, "f", "user.x", value, flags), outcome(lambda: os.getxattr("f", "user.x").decode())] for value, flags in steps]


@edge
def names_and_values_of_attributes_have_limits(_: Path) -> object:
    Path("f").touch()
    names = ["user." + "n" * length for length in (1, 250, 251)] + ["user.", "user", "", "nope.x", "system.x", "system.nope", "trusted.", "user.a b/ü"]
    values = [outcome(os.setxattr, "f", "user.v", b"v" * length) for length in (0, 1, 4096, 65536, 65537)]
    return [
        [outcome(os.setxattr, "f", name, b"x") for name in names],
        values,
        len(os.getxattr("f", "user.v")),
        outcome(os.getxattr, "f", "user.nope"),
        outcome(os.getxattr, "f", "nope.x"),
        outcome(os.removexattr, "f", "nope.x"),
    ]


@edge
def a_short_buffer_for_attributes(_: Path) -> object:
    import ctypes

    from calls import LIBC, checked

    Path("f").touch()
    os.setxattr("f", "user.x", b"12345678")
    buffer = ctypes.create_string_buffer(100)
    gets = [outcome(lambda size=size: checked(LIBC.getxattr(b"f", b"user.x", buffer, size))) for size in (0, 1, 7, 8, 100)]
    lists = [outcome(lambda size=size: checked(LIBC.listxattr(b"f", buffer, size))) for size in (0, 1, 6, 7, 100)]
    return [gets, lists]


@edge
def attributes_of_links_and_fifos(_: Path) -> object:
    Path("f").touch()
    os.symlink("f", "l")
    os.mkfifo("p")
    seen = [outcome(os.setxattr, name, key, b"1", 0, follow_symlinks=False) for name in ("l", "p") for key in ("user.x", "trusted.x", "security.x")]
    return [seen, outcome(os.setxattr, "l", "user.y", b"1"), os.listxattr("f"), sorted(os.listxattr("l", follow_symlinks=False))]


@edge
def attributes_need_rights(place: Path) -> object:
    place.chmod(0o777)
    Path("f").touch()
    os.setxattr("f", "user.x", b"1")
    os.setxattr("f", "trusted.x", b"1")
    calls = [
        lambda: os.getxattr("f", "user.x").decode(),
        lambda: os.setxattr("f", "user.x", b"2"),
        lambda: os.getxattr("f", "trusted.x").decode(),
        lambda: os.setxattr("f", "trusted.x", b"2"),
        lambda: os.listxattr("f"),
        lambda: os.setxattr("f", "security.x", b"2"),
        lambda: os.removexattr("f", "user.x"),
    ]
    seen = []
    for bits in (0o644, 0o600, 0o666):
        os.chmod("f", bits)
        seen.append([in_child(call, NOBODY) for call in calls])
    return seen


@edge
def attributes_follow_their_file(_: Path) -> object:
    Path("f").touch()
    os.setxattr("f", "user.x", b"1")
    os.link("f", "g")
    os.rename("f", "h")
    with opened("h") as file:
        os.setxattr(file, "user.y", b"2")
        os.unlink("h")
        Path("h").touch()
        return [sorted(os.listxattr("g")), os.listxattr("h"), os.getxattr(file, "user.x").decode()]


@edge
def many_attributes(_: Path) -> object:
    Path("f").touch()
    for number in range(100):
        os.setxattr("f", f"user.{number:03}", bytes([number]) * number)
    return [
        sorted(os.listxattr("f")) == [f"user.{number:03}" for number in range(100)],
        all(os.getxattr("f", f"user.{number:03}") == bytes([number]) * number for number in range(100)),
    ]


@edge
def access_lists_by_setfacl(place: Path) -> object:
    place.chmod(0o777)
    Path("f").touch(0o640)
    seen = [run("setfacl", "-m", "u:nobody:rw,g:daemon:r,m::rw", "f"), run("getfacl", "-cE", "f"), mode()]
    seen += [
        in_child(lambda: Path("f").write_bytes(b"may"), NOBODY),
        in_child(lambda: Path("f").read_bytes().decode(), 77, (DAEMON,)),
        in_child(lambda: Path("f").read_bytes().decode(), 77, (77,)),
    ]
    os.chmod("f", 0o600)
    seen += [
        run("getfacl", "-cE", "f"),
        in_child(lambda: Path("f").read_bytes().decode(), NOBODY),
        run("setfacl", "-b", "f"),
        run("getfacl", "-cE", "f"),
        os.listxattr("f"),
        mode(),
    ]
    return seen


@edge
def default_access_lists_are_inherited(place: Path) -> object:
    place.chmod(0o777)
    os.mkdir("d", 0o755)
    seen = [run("setfacl", "-d", "-m", "u:nobody:rwx,g::rx,o::-", "d"), run("getfacl", "-cE", "d")]
    os.umask(0o077)
    Path("d/f").touch()
    os.mkdir("d/sub")
    os.mkfifo("d/p", 0o666)
    os.symlink("x", "d/l")
    seen += [[name, mode(name), run("getfacl", "-cE", name)] for name in ("d/f", "d/sub", "d/p")]
    with opened("d", os.O_TMPFILE | os.O_RDWR, 0o666) as file:
        seen.append(stat.filemode(os.fstat(file).st_mode))
    seen += [in_child(lambda: Path("d/sub/y").touch(), NOBODY), run("setfacl", "-k", "d"), run("getfacl", "-cE", "d")]
    Path("d/after").touch()
    return [*seen, mode("d/after")]


@edge
def a_default_list_is_for_folders(_: Path) -> object:
    Path("f").touch()
    return [run("setfacl", "-d", "-m", "u:nobody:r", "f"), run("setfacl", "-m", "u:nobody:r", "nope")[0]]


@edge
def access_lists_as_the_kernel_encodes_them(_: Path) -> object:
    Path("f").touch(0o640)
    entry = lambda tag, bits, who=0xFFFFFFFF: struct.pack("<HHI", tag, bits, who)
    head = struct.pack("<I", 2)
    small = head + entry(1, 6) + entry(4, 4) + entry(32, 0)
    full = head + entry(1, 7) + entry(2, 5, 77) + entry(4, 4) + entry(16, 5) + entry(32, 1)
    bad = [
        b"",
        b"x",
        struct.pack("<I", 1) + small[4:],
        head + entry(1, 6),
        small + entry(32, 0),
        head + entry(2, 5, 77) + entry(1, 7) + entry(4, 4) + entry(32, 1),
        full[:-3],
    ]
    key = "system.posix_acl_access"
    seen = [[outcome(os.setxattr, "f", key, value), outcome(lambda: os.getxattr("f", key).hex()), mode()] for value in (small, full, *bad)]
    return [*seen, outcome(os.removexattr, "f", key), outcome(os.removexattr, "f", key), mode()]


@edge
def permissions_and_access_lists_move_together(_: Path) -> object:
    Path("f").touch(0o600)
    seen = []
    run("setfacl", "-m", "u:daemon:rwx", "f")
    for bits in (0o777, 0o640, 0o604, 0o4711):
        os.chmod("f", bits)
        seen.append([mode(), run("getfacl", "-cE", "f")[1]])
    return seen


@edge
def only_the_owner_sets_access_lists(place: Path) -> object:
    place.chmod(0o777)
    Path("f").touch(0o666)
    return [in_child(lambda: run("setfacl", "-m", "u:daemon:rwx", "f")[0], NOBODY), os.listxattr("f")]


@edge
def set_group_id_is_lost_with_a_new_list_of_another_group(place: Path) -> object:
    place.chmod(0o777)
    Path("f").touch()
    os.chown("f", NOBODY, GROUP)
    os.chmod("f", 0o2770)
    in_child(lambda: run("setfacl", "-m", "u:daemon:r", "f")[0], NOBODY)
    return mode()


@edge
def link_counts_of_folders(_: Path) -> object:
    seen = []
    for name in ("d", "d/a", "d/b", "d/a/x", "e"):
        os.mkdir(name)
    Path("d/f").touch()
    seen.append([os.stat(name).st_nlink for name in ("d", "d/a", "e")])
    os.rename("d/a", "e/a")
    seen.append([os.stat(name).st_nlink for name in ("d", "e/a", "e")])
    os.rmdir("d/b")
    return [seen, [os.stat(name).st_nlink for name in ("d", "e/a", "e")]]


@edge
def inode_numbers_are_one_for_each_file(_: Path) -> object:
    for number in range(100):
        Path(f"f{number}").touch()
    os.link("f1", "g")
    numbers = {os.stat(f"f{number}").st_ino for number in range(100)}
    with opened("f7") as file:
        return [
            len(numbers),
            os.stat("g").st_ino == os.stat("f1").st_ino,
            os.fstat(file).st_ino == os.stat("f7").st_ino,
            len({os.stat(name).st_dev for name in os.listdir()}),
        ]
