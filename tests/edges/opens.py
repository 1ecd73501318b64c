"""Opening and creating files, and open files that outlive their names."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import stat
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

from calls import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    AT_SYMLINK_FOLLOW,
    AT_SYMLINK_NOFOLLOW,
    LIBC,
    allocate,
    checked,
    edge,
    in_child,
    link_at,
    look,
    opened,
    outcome,
    statx,
)

NOBODY = 65534


def rights(path: str = "f") -> str:
    """File type and permissions."""
    return stat.filemode(os.lstat(path).st_mode)


@edge
def modes_at_create_lose_the_mask(_: Path) -> object:
    seen = []
    for mask in (0, 0o022, 0o077, 0o777):
        os.umask(mask)
        for kind, make in (
            ("f", lambda name: os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o7777))),
            ("d", lambda name: os.mkdir(name, 0o7777)),
            ("p", lambda name: os.mkfifo(name, 0o666)),
        ):
            make(f"{kind}{mask}")
            seen.append(rights(f"{kind}{mask}"))
    return seen


@edge
def a_file_made_without_rights_can_be_written_by_its_maker(_: Path) -> object:
    with opened("f", os.O_CREAT | os.O_RDWR | os.O_EXCL, 0) as file:
        return [os.write(file, b"abc"), os.pread(file, 9, 0).decode(), rights()]


@edge
def a_file_made_read_only_can_be_written_by_its_maker_as_another_user(place: Path) -> object:
    place.chmod(0o777)

    def make() -> object:
        with opened("f", os.O_CREAT | os.O_RDWR, 0o400) as file:
            return [os.write(file, b"abc"), outcome(os.open, "f", os.O_WRONLY), rights()]

    return in_child(make, NOBODY)


@edge
def a_program_that_runs_is_neither_written_nor_cut_and_goes_on(_: Path) -> object:
    program = Path("/usr/bin/sleep").read_bytes()
    Path("f").write_bytes(program)
    Path("f").chmod(0o755)
    running = subprocess.Popen(["./f", "60"])
    try:
        flags = (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        came = [*(outcome(os.open, "f", flag) for flag in flags), outcome(os.truncate, "f", 1)]
        return [*came, Path("f").read_bytes() == program, running.poll()]
    finally:
        running.kill()
        running.wait()


@edge
def each_access_mode_forbids_the_other(_: Path) -> object:
    Path("f").write_bytes(b"x")
    with opened("f", os.O_RDONLY) as read, opened("f", os.O_WRONLY) as write, opened("f", os.O_PATH) as path:
        calls = [outcome(os.write, read, b"y"), outcome(os.read, write, 1), outcome(os.ftruncate, read, 0)]
        on_path = [
            outcome(os.read, path, 1),
            outcome(os.write, path, b""),
            outcome(os.fchmod, path, 0o600),
            outcome(os.ftruncate, path, 0),
            outcome(os.fsync, path),
        ]
        return [calls, on_path, os.fstat(path).st_size]


@edge
def a_path_descriptor_is_a_way_to_its_file(_: Path) -> object:
    Path("f").write_bytes(b"x")
    with opened("f", os.O_PATH) as path, opened(f"/proc/self/fd/{path}", os.O_RDWR) as again:
        os.rename("f", "g")
        Path("f").write_bytes(b"other")
        return [os.read(again, 9).decode(), Path(f"/proc/self/fd/{path}").read_bytes().decode(), os.fstat(path).st_nlink]


@edge
def a_path_descriptor_does_nothing_else(_: Path) -> object:
    Path("f").write_bytes(b"x")
    os.mkdir("d")
    Path("d/in").touch()
    os.symlink("f", "l")
    number, some = ctypes.c_int(), ctypes.create_string_buffer(4096)
    calls: dict[str, Callable[[int], object]] = {
        "flags": lambda file: fcntl.fcntl(file, fcntl.F_GETFL) & (os.O_PATH | os.O_ACCMODE),
        "set flags": lambda file: fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND),
        "seek": lambda file: os.lseek(file, 0, os.SEEK_SET),
        "read at": lambda file: os.pread(file, 1, 0),
        "read pieces": lambda file: os.readv(file, [bytearray(1)]),
        "write at": lambda file: os.pwrite(file, b"x", 0),
        "map": lambda file: mmap.mmap(file, 1, mmap.MAP_PRIVATE, mmap.PROT_READ),
        "room": lambda file: allocate(file, 0, 0, 1),
        "advice": lambda file: os.posix_fadvise(file, 0, 0, os.POSIX_FADV_NORMAL),
        "owner": lambda file: os.fchown(file, 0, 0),
        "mode": lambda file: os.fchmod(file, 0o600),
        "times": lambda file: checked(LIBC.futimens(file, None)),
        "attribute": lambda file: checked(LIBC.fgetxattr(file, b"user.a", None, 0)),
        "attributes": lambda file: checked(LIBC.flistxattr(file, None, 0)),
        "new attribute": lambda file: checked(LIBC.fsetxattr(file, b"user.a", b"", 0, 0)),
        "no attribute": lambda file: checked(LIBC.fremovexattr(file, b"user.a")),
        "lock": lambda file: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB),
        "range lock": lambda file: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB),
        "control": lambda file: checked(LIBC.ioctl(file, termios.FIONREAD, ctypes.byref(number))),
        "sync": os.fdatasync,
        "sync all": lambda file: checked(LIBC.syncfs(file)),
        "entries": lambda file: checked(LIBC.getdents64(file, some, ctypes.c_size_t(4096))),
        "listing": os.listdir,
        "send": lambda file: os.sendfile(file, file, 0, 1),
        "space": lambda file: os.fstatvfs(file).f_namemax,
        "status": lambda file: stat.S_IFMT(os.fstat(file).st_mode),
        "copy": lambda file: os.close(os.dup(file)),
        "closed on exec": lambda file: fcntl.fcntl(file, fcntl.F_GETFD),
        "below": lambda file: os.stat("in", dir_fd=file).st_size,
        "into": os.chdir,
    }
    came = []
    for path, flags in (("f", 0), ("d", 0), ("l", os.O_NOFOLLOW), ("d", os.O_DIRECTORY | os.O_RDWR | os.O_TRUNC)):
        with opened(path, os.O_PATH | flags) as file:
            came += [[path, name, outcome(call, file)] for name, call in calls.items()]
        os.chdir(_)
    return came


@edge
def entries_of_a_folder_are_read_by_the_call_itself(_: Path) -> object:
    names = [f"{number:03}-{'x' * 40}" for number in range(300)]
    for name in names:
        Path(name).touch()
    room, found = ctypes.create_string_buffer(2048), []
    with opened(".", os.O_RDONLY | os.O_DIRECTORY) as folder, opened(names[0]) as file:
        for _round in range(2):
            while length := checked(LIBC.getdents64(folder, room, ctypes.c_size_t(2048))):
                at = 0
                while at < length:
                    size = int.from_bytes(room.raw[at + 16 : at + 18], "little")
                    found.append([room.raw[at + 19 : at + size].split(b"\0")[0].decode(), room.raw[at + 18]])
                    at += size
            os.lseek(folder, 0, os.SEEK_SET)
        short = outcome(lambda: checked(LIBC.getdents64(folder, room, ctypes.c_size_t(16))))
        bad = outcome(lambda: checked(LIBC.getdents64(folder, ctypes.c_void_p(1), ctypes.c_size_t(2048))))
        return [sorted(found), short, bad, outcome(lambda: checked(LIBC.getdents64(file, room, ctypes.c_size_t(2048))))]


@edge
def a_link_opened_by_path_without_following_is_the_link(_: Path) -> object:
    os.symlink("f", "l")
    with opened("l", os.O_PATH | os.O_NOFOLLOW) as link:
        return [stat.S_ISLNK(os.fstat(link).st_mode), os.readlink("", dir_fd=link), outcome(os.open, f"/proc/self/fd/{link}", os.O_RDONLY)]


@edge
def exclusive_create_meets_what_is_there(_: Path) -> object:
    Path("f").touch()
    os.mkdir("d")
    os.symlink("nope", "l")
    return [outcome(os.open, name, os.O_CREAT | os.O_EXCL | os.O_RDWR) for name in ("f", "d", "l")] + [os.path.lexists("nope")]


@edge
def create_follows_a_dangling_link(_: Path) -> object:
    os.symlink("made", "l")
    Path("l").write_bytes(b"through")
    return [look("made"), Path("made").read_bytes().decode()]


@edge
def truncate_at_open_needs_the_right_to_write(place: Path) -> object:
    place.chmod(0o777)
    Path("f").write_bytes(b"keep")
    return [in_child(lambda: os.open("f", os.O_RDONLY | os.O_TRUNC), NOBODY), os.path.getsize("f")]


@edge
def truncate_at_open_empties_what_others_hold_open(_: Path) -> object:
    Path("f").write_bytes(b"keep" * 5000)
    with opened("f", os.O_RDWR) as first:
        with opened("f", os.O_WRONLY | os.O_TRUNC):
            pass
        return [os.read(first, 10).hex(), os.fstat(first).st_size, os.pwrite(first, b"z", 9), Path("f").read_bytes().hex()]


@edge
def a_file_without_a_name(_: Path) -> object:
    with opened(".", os.O_TMPFILE | os.O_RDWR, 0o640) as file:
        os.write(file, b"nameless")
        before = [os.fstat(file).st_nlink, os.listdir(), os.pread(file, 9, 0).decode(), os.fstat(file).st_size]
        link_at(AT_FDCWD, f"/proc/self/fd/{file}".encode(), "named", AT_SYMLINK_FOLLOW)
        return [before, os.fstat(file).st_nlink, look("named"), Path("named").read_bytes().decode()]


@edge
def a_file_without_a_name_is_linked_by_its_descriptor(_: Path) -> object:
    with opened(".", os.O_TMPFILE | os.O_WRONLY) as file:
        os.write(file, b"x" * 10000)
        return [
            link_at(file, b"", "named", AT_EMPTY_PATH),
            outcome(link_at, file, b"", "named", AT_EMPTY_PATH),
            link_at(file, b"", "twice", AT_EMPTY_PATH),
            look("named"),
        ]


@edge
def a_file_without_a_name_made_exclusively_never_gets_one(_: Path) -> object:
    with opened(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL) as file:
        return [outcome(link_at, AT_FDCWD, f"/proc/self/fd/{file}".encode(), "named", AT_SYMLINK_FOLLOW), os.listdir()]


@edge
def a_file_without_a_name_goes_with_its_last_close(_: Path) -> object:
    before = os.statvfs(".").f_files - os.statvfs(".").f_ffree
    for _round in range(50):
        with opened(".", os.O_TMPFILE | os.O_RDWR) as file:
            os.write(file, b"y" * 100_000)
    return [os.listdir(), os.statvfs(".").f_files - os.statvfs(".").f_ffree - before]


@edge
def a_file_without_a_name_needs_a_folder_and_writing(_: Path) -> object:
    Path("f").touch()
    return [
        outcome(os.open, "f", os.O_TMPFILE | os.O_RDWR),
        outcome(os.open, ".", os.O_TMPFILE | os.O_RDONLY),
        outcome(os.open, "nope", os.O_TMPFILE | os.O_RDWR),
    ]


@edge
def an_unlinked_file_is_there_until_it_is_closed(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"before")
        os.unlink("f")
        seen = [os.fstat(file).st_nlink, os.listdir(), os.pread(file, 99, 0).decode(), os.pwrite(file, b"after", 5000), os.fstat(file).st_size]
        os.ftruncate(file, 3)
        os.fchmod(file, 0o600)
        os.fchown(file, 7, 8)
        os.utime(file, ns=(1, 2))
        status = os.fstat(file)
        return [
            seen,
            os.pread(file, 99, 0).decode(),
            stat.filemode(status.st_mode),
            status.st_uid,
            status.st_mtime_ns,
            outcome(os.open, f"/proc/self/fd/{file}", os.O_RDONLY) != "ENOENT",
        ]


@edge
def an_unlinked_file_is_not_linked_again(_: Path) -> object:
    with opened("f") as file:
        os.unlink("f")
        return [outcome(link_at, AT_FDCWD, f"/proc/self/fd/{file}".encode(), "again", AT_SYMLINK_FOLLOW), outcome(link_at, file, b"", "again", AT_EMPTY_PATH)]


@edge
def a_replaced_file_is_there_until_it_is_closed(_: Path) -> object:
    Path("f").write_bytes(b"old")
    Path("g").write_bytes(b"new")
    with opened("f", os.O_RDWR) as file:
        os.rename("g", "f")
        return [
            os.fstat(file).st_nlink,
            os.read(file, 9).decode(),
            Path("f").read_bytes().decode(),
            os.pwrite(file, b"more", 0),
            Path("f").read_bytes().decode(),
        ]


@edge
def a_removed_folder_takes_nothing(_: Path) -> object:
    os.mkdir("d")
    Path("g").touch()
    with opened("d", os.O_RDONLY | os.O_DIRECTORY) as folder:
        os.rmdir("d")
        tried = [
            outcome(os.open, "x", os.O_CREAT | os.O_RDWR, dir_fd=folder),
            outcome(os.mkdir, "x", dir_fd=folder),
            outcome(os.symlink, "y", "x", dir_fd=folder),
            outcome(os.rename, "g", "x", dst_dir_fd=folder),
            outcome(os.link, "g", "x", dst_dir_fd=folder),
            outcome(os.stat, "..", dir_fd=folder) in ("ENOENT", None) or "still has its parent",
        ]
        return [tried, os.fstat(folder).st_nlink, outcome(os.listdir, folder)]


@edge
def a_removed_current_folder(_: Path) -> object:
    os.mkdir("d")
    os.chdir("d")
    os.rmdir("../d")
    return [outcome(os.getcwd), outcome(os.listdir, "."), outcome(os.mkdir, "x"), outcome(os.stat, ".") != "ENOENT", outcome(os.chdir, "..")]


@edge
def appending_goes_to_the_end_wherever_one_seeks(_: Path) -> object:
    Path("f").write_bytes(b"12345")
    with opened("f", os.O_RDWR | os.O_APPEND) as file:
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, b"ab")
        at = os.lseek(file, 0, os.SEEK_CUR)
        os.pwrite(file, b"cd", 0)  # Linux appends here too
        fcntl.fcntl(file, fcntl.F_SETFL, 0)
        os.pwrite(file, b"X", 0)
        return [at, Path("f").read_bytes().decode()]


@edge
def append_is_set_on_an_open_file(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"12345")
        os.lseek(file, 0, os.SEEK_SET)
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
        os.write(file, b"67")
        return Path("f").read_bytes().decode()


@edge
def two_descriptors_append_in_turn(_: Path) -> object:
    with opened("f", os.O_CREAT | os.O_WRONLY | os.O_APPEND) as first, opened("f", os.O_WRONLY | os.O_APPEND) as second:
        for turn in range(200):
            os.write(first, b"a%03d" % turn)
            os.write(second, b"b%03d" % turn)
    return Path("f").read_bytes() == b"".join(b"a%03db%03d" % (turn, turn) for turn in range(200))


@edge
def direct_input_and_output(_: Path) -> object:
    Path("f").write_bytes(b"x" * 8192)
    with opened("f", os.O_RDWR | os.O_DIRECT) as file:
        return [len(os.read(file, 4096)), os.lseek(file, 0, os.SEEK_CUR), Path("f").read_bytes()[:2].decode()]


@edge
def synchronous_files(_: Path) -> object:
    seen = []
    for flags in (os.O_SYNC, os.O_DSYNC, os.O_RSYNC):
        with opened("f", os.O_CREAT | os.O_RDWR | flags) as file:
            seen += [os.write(file, b"x" * 10), outcome(os.fsync, file), outcome(os.fdatasync, file)]
    with opened(".", os.O_RDONLY) as folder:
        return [*seen, outcome(os.fsync, folder), outcome(os.sync)]


@edge
def noatime_is_for_the_owner(place: Path) -> object:
    place.chmod(0o777)
    Path("f").write_bytes(b"x")
    return [outcome(lambda: os.close(os.open("f", os.O_RDONLY | os.O_NOATIME))), in_child(lambda: os.open("f", os.O_RDONLY | os.O_NOATIME), NOBODY)]


@edge
def a_running_program_is_busy(_: Path) -> object:
    Path("run").write_bytes(Path("/bin/sleep").read_bytes())
    os.chmod("run", 0o755)
    child = os.posix_spawn("./run", ["run", "20"], {})
    said = [outcome(os.open, "run", os.O_WRONLY), outcome(os.truncate, "run", 0), outcome(os.unlink, "run")]
    os.kill(child, 9)
    os.waitpid(child, 0)
    return said


@edge
def a_program_that_is_open_for_writing_is_not_run(_: Path) -> object:
    Path("run").write_bytes(Path("/bin/true").read_bytes())
    os.chmod("run", 0o755)
    with opened("run", os.O_WRONLY):
        said = outcome(os.posix_spawn, "./run", ["run"], {})
    child = os.posix_spawn("./run", ["run"], {})
    return [said, os.waitpid(child, 0)[1]]


@edge
def a_script_without_the_right_to_run(_: Path) -> object:
    Path("s").write_text("#!/bin/sh\nexit 3\n")
    refused = outcome(os.posix_spawn, "./s", ["s"], {})
    os.chmod("s", 0o755)
    return [refused, os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn("./s", ["s"], {}), 0)[1])]


@edge
def many_files_are_open_at_once(_: Path) -> object:
    files = [os.open(f"f{number}", os.O_CREAT | os.O_RDWR) for number in range(400)]
    for number, file in enumerate(files):
        os.write(file, b"%d" % number)
    seen = [os.pread(file, 9, 0).decode() for file in files]
    for file in files:
        os.close(file)
    return seen == [str(number) for number in range(400)]


@edge
def one_file_is_open_many_times(_: Path) -> object:
    Path("f").write_bytes(b"")
    files = [os.open("f", os.O_RDWR) for _number in range(300)]
    for number, file in enumerate(files):
        os.pwrite(file, b"%03d" % number, 3 * number)
    for file in files[:-1]:
        os.close(file)
    whole = os.pread(files[-1], 1000, 0)
    os.close(files[-1])
    return [whole == b"".join(b"%03d" % number for number in range(300)), os.path.getsize("f")]


@edge
def reads_and_writes_mix_on_two_descriptors(_: Path) -> object:
    with opened("f", os.O_CREAT | os.O_WRONLY) as write, opened("f", os.O_RDONLY) as read:
        seen = []
        for turn in range(30):
            os.write(write, bytes([turn]) * 1000)
            seen.append([len(os.read(read, 600)), os.fstat(read).st_size, os.stat("f").st_size])
        return seen


@edge
def a_descriptor_survives_fork_with_its_offset(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"one ")
        in_child(lambda: os.write(file, b"two "))
        os.write(file, b"three")
        return Path("f").read_bytes().decode()


@edge
def fifos_and_sockets_work(_: Path) -> object:
    import socket

    os.mkfifo("p")
    with opened("p", os.O_RDWR) as pipe:
        os.write(pipe, b"through")
        got = os.read(pipe, 99).decode()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("s")
        server.listen()
        client.connect("s")
        client.sendall(b"hi")
        connection, _peer = server.accept()
        with connection:
            return [got, connection.recv(9).decode(), rights("s"), outcome(os.open, "s", os.O_RDONLY)]


@edge
def devices_keep_their_numbers(_: Path) -> object:
    os.mknod("null", 0o20666, os.makedev(1, 3))
    os.mknod("odd", 0o60600, os.makedev(4095, 1048575))
    return [os.lstat("null").st_rdev, os.lstat("odd").st_rdev, look("null"), outcome(lambda: os.mknod("bad", 0o170000))]


@edge
def statx_knows_the_time_of_birth(_: Path) -> object:
    Path("f").touch()
    first = statx("f")
    os.utime("f", (1, 1))
    Path("f").write_bytes(b"x" * 100)
    second = statx("f")
    return [bool(first["mask"] & 0x800), first["birth"] == second["birth"], abs(first["birth"] - os.stat("f").st_ctime_ns) < 60 * 10**9, second["size"]]


@edge
def what_open_does_not_know(_: Path) -> object:
    Path("f").touch()
    return [
        outcome(os.open, "f", os.O_RDONLY | os.O_DIRECTORY),
        outcome(os.open, "f", os.O_WRONLY | os.O_RDWR),
        outcome(os.open, "f" * 300, os.O_RDONLY),
        errno.errorcode[22],
    ]


@edge
def listing_while_entries_come_and_go(_: Path) -> object:
    for number in range(300):
        Path(f"f{number:03}").touch()
    with os.scandir(".") as entries:
        seen = []
        for entry in entries:
            seen.append(entry.name)
            os.unlink(entry.name)
    return [len(seen), len(set(seen)), os.listdir()]


@edge
def a_listing_tells_the_kind_and_the_number(_: Path) -> object:
    Path("f").touch()
    os.mkdir("d")
    os.symlink("x", "l")
    os.mkfifo("p")
    with os.scandir(".") as entries:
        return sorted(
            [
                entry.name,
                entry.is_file(follow_symlinks=False),
                entry.is_dir(follow_symlinks=False),
                entry.is_symlink(),
                entry.inode() == os.lstat(entry.name).st_ino,
            ]
            for entry in entries
        )


@edge
def a_link_is_not_run_where_it_is_not_followed(_: Path) -> object:
    os.symlink("/bin/true", "l")
    words = (ctypes.c_char_p * 2)(b"true", None)
    run = lambda flags: in_child(lambda: checked(LIBC.execveat(AT_FDCWD, b"l", words, words, flags)))
    with opened("l", os.O_PATH | os.O_NOFOLLOW) as link:
        itself = in_child(lambda: checked(LIBC.execveat(link, b"", words, words, AT_EMPTY_PATH)))
    return [run(AT_SYMLINK_NOFOLLOW), run(0x8000), itself]


def handle_of(path: str) -> ctypes.Array[ctypes.c_char]:
    """A file handle (name_to_handle_at(2))."""
    handle = ctypes.create_string_buffer((128).to_bytes(8, "little"), 136)
    checked(LIBC.name_to_handle_at(AT_FDCWD, os.fsencode(path), handle, ctypes.byref(ctypes.c_int()), 0))
    return handle


@edge
def a_handle_finds_its_file_when_the_kernel_has_forgotten_it(_: Path) -> object:
    os.makedirs("d/in")
    Path("d/in/f").write_text("text")
    handles = {path: handle_of(path) for path in ("d", "d/in", "d/in/f")}
    with opened(".", os.O_RDONLY) as mount:

        def again(path: str) -> object:
            # Without the permission to drop caches the kernel still knows the file, and the case
            # tests less.
            outcome(Path("/proc/sys/vm/drop_caches").write_text, "2")
            file = checked(LIBC.open_by_handle_at(mount, handles[path], os.O_RDONLY))
            try:
                return (
                    os.read(file, 99).decode() if path.endswith("f") else [os.listdir(file), os.stat("..", dir_fd=file).st_ino == os.stat(f"{path}/..").st_ino]
                )
            finally:
                os.close(file)

        seen = [outcome(again, path) for path in handles]
        os.rename("d/in/f", "moved")
        seen.append(outcome(again, "d/in/f"))
        os.unlink("moved")
        os.rmdir("d/in")
        return [*seen, outcome(again, "d/in/f"), outcome(again, "d/in")]


@edge
def flags_of_inodes(_: Path) -> object:
    Path("f").touch()
    os.mkdir("d")
    get, put = 0x80086601, 0x40086602
    immutable, append_only, no_dump, no_times, compressed = 0x10, 0x20, 0x40, 0x80, 0x4
    control = lambda file, request, place: outcome(lambda: checked(LIBC.ioctl(file, request, place)))
    seen = []
    for path in ("f", "d"):
        with opened(path, os.O_RDONLY) as file:
            said = ctypes.c_int(0)
            seen.append([control(file, get, ctypes.byref(said)), said.value])
            for flags in (no_dump, no_times, compressed, immutable, append_only, 0):
                seen.append([path, flags, control(file, put, ctypes.byref(ctypes.c_int(flags))), outcome(os.utime, path)])
            with opened("new" + path) as other:
                seen.append(control(other, 0x801C581F, ctypes.create_string_buffer(28)))
    return seen


@edge
def a_folder_is_not_read_as_a_file(_: Path) -> object:
    os.mkdir("d")
    with opened("d", os.O_RDONLY) as folder:
        return [outcome(os.read, folder, 1), outcome(os.write, folder, b"x"), outcome(os.ftruncate, folder, 0), outcome(os.lseek, folder, 0, os.SEEK_SET)]
