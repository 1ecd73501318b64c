"""Operations in directories that all processes change: races that each keep an invariant."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE = 1, 2
TOKENS, BOXES = 12, 3
RECORD = 64
# Errors of a process that loses a race; any other is a fault.
EXPECTED = {errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP}


def prepare(folder: Path) -> None:
    """Creates the files of the races."""
    for box in range(BOXES):
        (folder / f"box{box}").mkdir()
    for token in range(TOKENS):
        (folder / f"box{token % BOXES}/token{token}").write_text(str(token))
    for name in ("log", "exclusive", "flock", "fcntl"):
        (folder / name).write_text("" if name == "log" else "0")
    (folder / "whole").write_bytes(whole_content(0))
    for name in ("left", "right"):
        (folder / name).write_text(name)
    (folder / "mess").mkdir()
    (folder / "many").mkdir()
    (folder / "linked").touch()
    (folder / "links").mkdir()


def whole_content(seed: int) -> bytes:
    """Bytes with their own checksum."""
    data = random.Random(seed).randbytes(100 + seed * 7919 % 20_000)
    return hashlib.sha256(data).digest() + data


class Racer:
    """One process of the race."""

    def __init__(self, mounts: list[Path], number: int, numbers: random.Random) -> None:
        self.mounts, self.number, self.numbers = mounts, number, numbers
        self.counted: Counter[str] = Counter()

    @property
    def folder(self) -> Path:
        """The shared directory, through one of the mounts."""
        return self.numbers.choice(self.mounts) / "shared"

    def append(self) -> None:
        """The log contains the records of all processes once, those of each in order."""
        record = f"{self.number} {self.counted['append']}".ljust(RECORD - 1, ".") + "\n"
        file = os.open(self.folder / "log", os.O_WRONLY | os.O_APPEND)
        assert os.write(file, record.encode()) == RECORD
        os.close(file)
        self.counted["append"] += 1

    def move_token(self) -> None:
        """Moves a token from box to box; none may be lost or duplicated."""
        token, start, end = self.numbers.randrange(TOKENS), self.numbers.randrange(BOXES), self.numbers.randrange(BOXES)
        folder = self.folder
        old, new = folder / f"box{start}/token{token}", folder / f"box{end}/token{token}"
        moved = LIBC.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), NOREPLACE) == 0
        assert moved or ctypes.get_errno() in (errno.ENOENT, errno.EEXIST), os.strerror(ctypes.get_errno())
        self.counted["token moved"] += moved

    def count_exclusively(self) -> None:
        """Increments a counter that is protected by the exclusive creation of a lock file."""
        lock = self.folder / "exclusive.lock"
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
        self.count("exclusive")
        os.unlink(self.folder / lock.name)

    def count(self, name: str) -> None:
        """Increments a counter; the caller holds its lock."""
        path = self.folder / name
        path.write_text(str(int(path.read_text()) + 1))
        self.counted[name] += 1

    def count_locked(self) -> None:
        """Increments counters that are protected by a lock of a whole file and of a range."""
        for name, lock in (("flock", fcntl.flock), ("fcntl", fcntl.lockf)):
            # Locks of two mounts conflict, because they are in the pool.
            with open(self.folder / f"{name}.lock", "a+") as file:
                lock(file, fcntl.LOCK_EX)
                self.count(name)

    def replace_whole(self) -> None:
        """Replaces a file by rename; it must always exist and be complete."""
        mine = f"whole.{self.number}"
        (self.folder / mine).write_bytes(whole_content(self.numbers.randrange(1000)))
        folder = self.folder
        os.rename(folder / mine, folder / "whole")

    def read_whole(self) -> None:
        """Checks that the file that others replace is complete."""
        data = (self.folder / "whole").read_bytes()
        assert hashlib.sha256(data[32:]).digest() == data[:32], f"{len(data)} bytes that do not belong together"

    def exchange(self) -> None:
        """Exchanges two names; both must exist at every moment."""
        folder = self.folder
        done = LIBC.renameat2(-100, os.fsencode(folder / "left"), -100, os.fsencode(folder / "right"), EXCHANGE)
        assert done == 0, os.strerror(ctypes.get_errno())
        for name in ("left", "right"):
            assert (self.folder / name).read_text() in ("left", "right")

    def link(self) -> None:
        """Makes and removes names of one file."""
        name = f"{self.number}-{self.numbers.randrange(4)}"
        folder = self.folder
        # A kernel checks the number of links by its own count, which is stale while another mount
        # removes some.
        missing = (FileNotFoundError,) if len(self.mounts) > 1 else ()
        with suppress(FileExistsError, *missing):
            os.link(folder / "linked", folder / "links" / name)
        if self.numbers.random() < 0.6:
            with suppress(FileNotFoundError):
                os.unlink(self.folder / "links" / name)

    def crowd(self) -> None:
        """Makes and removes names in a directory that grows large.

        A name that this process made must exist, and one that it removed must not.
        """
        folder = self.folder / "many"
        name = f"{self.number}-{self.counted['many']}"
        (folder / name).touch(exist_ok=False)
        self.counted["many"] += 1
        if self.numbers.random() < 0.02:
            mine = {entry for entry in os.listdir(self.folder / "many") if entry.startswith(f"{self.number}-")}
            assert mine == {f"{self.number}-{number}" for number in range(self.counted["many"])}, "names of mine are missing"

    def mess(self) -> None:
        """Random operations on a few names that all processes use.

        Only errors of a lost race are allowed.
        """
        folder = self.folder / "mess"
        pick = lambda: folder / "/".join(self.numbers.choices("abc", k=self.numbers.randint(1, 3)))  # noqa: E731 - two paths of one kind
        one, other = pick(), pick()
        verbs = {
            "create": lambda: one.write_bytes(self.numbers.randbytes(self.numbers.choice((0, 100, 9000)))),
            "read": one.read_bytes,
            "mkdir": one.mkdir,
            "unlink": one.unlink,
            "rmdir": one.rmdir,
            "rename": lambda: os.rename(one, other),
            "link": lambda: os.link(one, other),
            "symlink": lambda: os.symlink("a", one),
            "list": lambda: os.listdir(one),
            "stat": lambda: os.stat(one),
            "truncate": lambda: os.truncate(one, self.numbers.randrange(20_000)),
            "chmod": lambda: os.chmod(one, 0o755),
            "exchange": lambda: LIBC.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), EXCHANGE),
        }
        verb = self.numbers.choice(list(verbs))
        try:
            verbs[verb]()
        except OSError as error:
            # A directory that was just moved through another mount is stale for a kernel during a
            # rename of its own.
            expected = EXPECTED | ({errno.ESTALE} if len(self.mounts) > 1 else set())
            # The kernel rejects a hard link to a directory.
            if error.errno not in expected and (verb, error.errno) != ("link", errno.EPERM):
                raise AssertionError(f"{verb} {one} {other}: {error}") from error

    def step(self) -> str:
        """Runs a random race."""
        races = (
            *(self.mess,) * 6,
            *(self.move_token, self.append, self.read_whole, self.link, self.crowd) * 2,
            self.count_exclusively,
            self.count_locked,
            self.replace_whole,
            self.exchange,
        )
        race = self.numbers.choice(races)
        race()
        return race.__name__


def check(mounts: list[Path], counted: Counter[str]) -> None:
    """Checks the invariants, given the total number of each operation."""
    folder = mounts[0] / "shared"
    for name in ("exclusive", "flock", "fcntl"):
        assert int((folder / name).read_text()) == counted[name], f"{name}: {(folder / name).read_text()} of {counted[name]}"
    records = [line.rstrip(".").split() for line in (folder / "log").read_text().splitlines()]
    assert len(records) == counted["append"]
    for number in {record[0] for record in records}:
        mine = [int(record[1]) for record in records if record[0] == number]
        assert mine == list(range(len(mine))), f"the records of {number} are not in order"
    tokens = Counter(entry for box in range(BOXES) for entry in os.listdir(folder / f"box{box}"))
    assert tokens == Counter(f"token{token}" for token in range(TOKENS)), tokens
    assert sorted((folder / name).read_text() for name in ("left", "right")) == ["left", "right"]
    assert (folder / "linked").stat().st_nlink == 1 + len(os.listdir(folder / "links"))
    assert len(os.listdir(folder / "many")) == counted["many"]
    trees = [whole_tree(mount) for mount in mounts]
    assert all(tree == trees[0] for tree in trees), "the mounts show different trees"


def whole_tree(mount: Path) -> dict[str, tuple[int, ...]]:
    """Every path with inode number, type, links and size; checks the link counts."""
    tree, names, folders = {}, Counter(), {}
    for parent, inside, files in os.walk(mount):
        folders[parent] = len([name for name in inside if not os.path.islink(os.path.join(parent, name))])
        for name in inside + files:
            path = os.path.join(parent, name)
            status = os.lstat(path)
            tree[os.path.relpath(path, mount)] = (status.st_ino, status.st_mode, status.st_nlink, status.st_size)
            names[status.st_ino] += 1
            if os.path.isfile(path) and not os.path.islink(path):
                assert len(Path(path).read_bytes()) == status.st_size, path
    for path, (number, _, links, _) in tree.items():
        inside = folders.get(os.path.join(mount, path))
        wanted = names[number] if inside is None else 2 + inside
        assert links == wanted, f"{path} has {links} links, not {wanted}"
    return tree
