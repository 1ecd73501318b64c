"""Random file calls: `random_calls.py DIR SEED STEPS` prints the outcome of each, one step a line.

On a file system that conforms to POSIX and Linux the output depends on the seed only. So two file
systems are compared by their outputs.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import stat
import sys
from collections.abc import Callable
from pathlib import Path

# Few names, so that steps affect each other. Some lead through directories and symbolic links, some
# do not exist.
NAMES = ["a", "b", "c", "d", "e", "d/a", "d/b", "e/a", "d/e", "d/e/a", "l", "l/a", "d/l", "a/", "d/", "../" + "x", "./a", "d/../b", "none/a", "d/./a", ""]
SLOTS = 6
ACCESS = [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]
FLAGS = [os.O_CREAT, os.O_CREAT, os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND, os.O_DIRECTORY, os.O_NOFOLLOW]
# Sizes around the limits where the layout of a file changes.
SIZES = [0, 1, 10, 500, 4095, 4096, 4097, 9000, 65_536, 70_000, 200_000, 1_100_000]
ATTRIBUTES = ["user.a", "user.b", "user.longer"]


class Steps:
    """The open descriptors, and the random numbers."""

    def __init__(self, folder: str, seed: int) -> None:
        self.top, self.dice = folder, random.Random(seed)
        self.slots: list[int | None] = [None] * SLOTS

    def name(self) -> str:
        return self.dice.choice(NAMES)

    def slot(self) -> int:
        """An open descriptor if there is one; otherwise, and rarely, an invalid one."""
        filled = [slot for slot in self.slots if slot is not None]
        return self.dice.choice(filled) if filled and self.dice.random() < 0.98 else 987

    def size(self) -> int:
        return max(0, self.dice.choice(SIZES) + self.dice.choice([0, 0, 0, -1, 1, 7]))

    def bytes(self) -> bytes:
        return self.dice.randbytes(1 + self.dice.randrange(7)) * (self.size() // 5)

    def keep(self, descriptor: int) -> str:
        """Puts a new descriptor into a slot and closes the one that was there."""
        at = self.dice.randrange(SLOTS)
        if self.slots[at] is not None:
            os.close(self.slots[at])
        self.slots[at] = descriptor
        return "opened"

    # Each of the following methods is a step; its result is printed.

    def open(self) -> object:
        flags = self.dice.choice(ACCESS)
        for _ in range(self.dice.randrange(3)):
            flags |= self.dice.choice(FLAGS)
        return self.keep(os.open(self.name(), flags | os.O_CLOEXEC, self.dice.choice([0o644, 0o600, 0o777])))

    def open_below(self) -> object:
        return self.keep(os.open(self.name(), self.dice.choice(ACCESS) | self.dice.choice(FLAGS), 0o644, dir_fd=self.slot()))

    def unnamed(self) -> object:
        folder, flags = self.dice.choice([".", "d", "a"]), os.O_TMPFILE | self.dice.choice(ACCESS)
        # A tmpfs makes such files also in deleted directories.
        return os.stat(folder).st_nlink > 0 and self.keep(os.open(folder, flags, 0o640))

    def close(self) -> object:
        at = self.dice.randrange(SLOTS)
        descriptor, self.slots[at] = self.slots[at], None
        return descriptor is not None and os.close(descriptor)

    def write(self) -> object:
        return os.write(self.slot(), self.bytes())

    def read(self) -> object:
        return summary(os.read(self.slot(), self.size()))

    def pwrite(self) -> object:
        return os.pwrite(self.slot(), self.bytes(), self.size())

    def pread(self) -> object:
        return summary(os.pread(self.slot(), self.size(), self.size()))

    def vectors(self) -> object:
        room = [bytearray(self.size()) for _ in range(3)]
        return os.readv(self.slot(), room), os.writev(self.slot(), [b"one", b"", b"three"])

    def seek(self) -> object:
        whence = self.dice.choice([os.SEEK_SET, os.SEEK_CUR, os.SEEK_END])
        descriptor = self.slot()
        # Offsets in a directory have no defined meaning, so they are not compared.
        return not stat.S_ISDIR(os.fstat(descriptor).st_mode) and os.lseek(descriptor, self.dice.choice([-1, 1]) * self.size(), whence)

    def cut(self) -> object:
        return os.ftruncate(self.slot(), self.size())

    def cut_name(self) -> object:
        return os.truncate(self.name(), self.size())

    def reserve(self) -> object:
        return os.posix_fallocate(self.slot(), self.size(), 1 + self.size())

    def fstat(self) -> object:
        return comparable_stat(os.fstat(self.slot()))

    def stat(self) -> object:
        return comparable_stat(os.stat(self.name(), follow_symlinks=self.dice.random() < 0.5))

    def stat_below(self) -> object:
        return comparable_stat(os.stat(self.name(), dir_fd=self.slot()))

    def may(self) -> object:
        return os.access(self.name(), self.dice.choice([os.F_OK, os.R_OK, os.W_OK, os.X_OK]))

    def dup(self) -> object:
        return self.keep(os.dup(self.slot()))

    def dup_onto(self) -> object:
        at = self.dice.randrange(SLOTS)
        onto = self.slots[at]
        return onto is not None and os.dup2(self.slot(), onto, inheritable=False) == onto

    def status_flags(self) -> object:
        descriptor = self.slot()
        fcntl.fcntl(descriptor, fcntl.F_SETFL, self.dice.choice([0, os.O_APPEND, os.O_NONBLOCK]))
        return fcntl.fcntl(descriptor, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK)

    def mkdir(self) -> object:
        return os.mkdir(self.name(), self.dice.choice([0o755, 0o700, 0o777]))

    def rmdir(self) -> object:
        return os.rmdir(self.name())

    def unlink(self) -> object:
        return os.unlink(self.name())

    def rename(self) -> object:
        return os.rename(self.name(), self.name())

    def link(self) -> object:
        return os.link(self.name(), self.name(), follow_symlinks=self.dice.random() < 0.5)

    def symlink(self) -> object:
        return os.symlink(self.dice.choice(["a", "d", "../a", "d/a", "l", "none", "."]), self.name())

    def readlink(self) -> object:
        return os.readlink(self.name())

    def chmod(self) -> object:
        return os.chmod(self.name(), self.dice.choice([0o644, 0o755, 0o1777, 0o600, 0o500, 0o300]))

    def fchmod(self) -> object:
        return os.fchmod(self.slot(), self.dice.choice([0o644, 0o755, 0o600]))

    def chown(self) -> object:
        return os.chown(self.name(), self.dice.choice([-1, 0, 7]), self.dice.choice([-1, 0, 9]), follow_symlinks=self.dice.random() < 0.5)

    def times(self) -> object:
        name, at = self.name(), self.dice.randrange(1, 1 << 60)
        os.utime(name, ns=(at, at + 1), follow_symlinks=self.dice.random() < 0.5)
        return os.stat(name).st_mtime_ns % (1 << 30) if not stat.S_ISLNK(os.lstat(name).st_mode) else "link"

    def names(self) -> object:
        return sorted(os.listdir(self.name() or "."))

    def names_below(self) -> object:
        return sorted(os.listdir(self.slot()))

    def scan(self) -> object:
        with os.scandir(self.name() or ".") as entries:
            return sorted((entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries)

    def enter(self) -> object:
        os.chdir(self.dice.choice(["d", "e", "..", "l", ".", "a"]))
        if not os.getcwd().startswith(self.top):
            os.chdir(self.top)
        return os.getcwd().removeprefix(self.top)

    def enter_open(self) -> object:
        os.fchdir(self.slot())
        return "there"

    def home(self) -> object:
        return os.chdir(self.top)

    def set_attribute(self) -> object:
        flags = self.dice.choice([0, 0, os.XATTR_CREATE, os.XATTR_REPLACE])
        return os.setxattr(self.name(), self.dice.choice(ATTRIBUTES), self.dice.randbytes(self.dice.randrange(40)), flags)

    def attribute(self) -> object:
        return os.getxattr(self.name(), self.dice.choice(ATTRIBUTES))

    def attributes(self) -> object:
        return sorted(name for name in os.listxattr(self.slot()) if name.startswith("user."))

    def remove_attribute(self) -> object:
        return os.removexattr(self.name(), self.dice.choice(ATTRIBUTES))

    def copy_range(self) -> object:
        return os.copy_file_range(self.slot(), self.slot(), self.size(), *self.dice.choice([(), (self.size(),), (self.size(), self.size())]))

    def send(self) -> object:
        to, source = self.slot(), self.slot()
        # A copy from a file to itself is not specified.
        return os.fstat(to).st_ino != os.fstat(source).st_ino and os.sendfile(to, source, self.dice.choice([None, self.size()]), self.size())

    def look_by_map(self) -> object:
        descriptor = self.slot()
        length = os.fstat(descriptor).st_size
        if length == 0 or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "nothing to map"
        with mmap.mmap(descriptor, length, prot=mmap.PROT_READ) as mapped:
            return summary(mapped[:])

    def write_by_map(self) -> object:
        descriptor = self.slot()
        length = os.fstat(descriptor).st_size
        if length == 0 or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "nothing to map"
        if os.fstat(descriptor).st_nlink == 0:
            return "by the preload library a file that never had a name is not local"
        with mmap.mmap(descriptor, length) as mapped:
            mapped[length // 2] = 77
        return "written"

    def in_child(self) -> object:
        """A child moves an offset that it shares with the parent."""
        descriptor = self.slot()
        step = self.dice.choice([lambda: os.read(descriptor, 5), lambda: os.write(descriptor, b"child"), lambda: os.mkdir("child")])
        child = os.fork()
        if child == 0:
            try:
                step()
                os._exit(0)
            except OSError as error:
                os._exit(error.errno or 255)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def by_stream(self) -> object:
        with open(self.name(), self.dice.choice(["r", "r+", "a+", "w", "x"]), encoding="latin-1") as file:
            file.seek(self.dice.choice([0, 3]))
            return summary(file.read(self.size()).encode("latin-1")) if file.readable() else file.write("stream\n" * 700)

    def lock(self) -> object:
        return fcntl.lockf(self.slot(), self.dice.choice([fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_UN]) | fcntl.LOCK_NB, 1 + self.size())


def summary(content: bytes) -> str:
    """A short content as it is; of a long one the length and a hash."""
    return repr(content) if len(content) <= 16 else f"{len(content)} bytes, {hash_of(content):x}"


def hash_of(content: bytes) -> int:
    """A hash that is the same in every process."""
    return int.from_bytes(content, "little") % ((1 << 61) - 1)


def comparable_stat(found: os.stat_result) -> object:
    """The attributes that must be equal on two file systems."""
    size = None if stat.S_ISDIR(found.st_mode) else found.st_size
    return stat.filemode(found.st_mode), found.st_nlink, found.st_uid, found.st_gid, size


def main(folder: str, seed: int, count: int) -> None:
    """Runs the steps."""
    os.umask(0o022)
    # Two directories deep, so that a step to `..`, and a link there that leads further up, stay
    # below the given directory.
    os.makedirs(top := f"{folder}/in/top")
    os.chdir(top)
    steps = Steps(top, seed)
    dice = random.Random(seed + 1)
    all_steps: list[Callable[[], object]] = [getattr(steps, name) for name, what in vars(Steps).items() if callable(what) and name not in HELPERS]
    for number in range(count):
        step = dice.choice(all_steps)
        try:
            came = step()
        except OSError as error:
            came = errno.errorcode[error.errno or 0]
        except ValueError as error:
            came = f"refused by Python: {error}"
        print(number, step.__name__, came, flush=True)
    print(sorted(tree(Path(folder))))


HELPERS = {"__init__", "name", "slot", "size", "bytes", "keep"}


def tree(top: Path) -> list[tuple[str, str, str]]:
    """Everything that is left, with modes.

    Files and directories that cannot be read get permissions first.
    """
    found = []
    for path in sorted(top.iterdir()):
        mode, text = path.lstat().st_mode, ""
        if stat.S_ISDIR(mode):
            path.chmod(0o700)
            found += [(f"{path.name}/{below}", *more) for below, *more in tree(path)]
        elif stat.S_ISREG(mode):
            path.chmod(0o600)
            text = summary(path.read_bytes())
        found.append((path.name, stat.filemode(mode), text))
    return found


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
