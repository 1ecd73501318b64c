"""Operations of a process in its own directory, whose exact contents it knows at every moment.

Each call goes through a randomly chosen mount. With two mounts of one pool, a change made through
one must be visible through the other immediately and exactly.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH_HOLE = 1, 2
EXCHANGE = 2
SIZE_MAX = 300_000
FILES_MAX, OPEN_MAX = 40, 6


@dataclass
class File:
    """The expected state of a file."""

    data: bytearray = field(default_factory=bytearray)
    names: int = 1
    mode: int = 0o644
    notes: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Own:
    """The expected tree.

    It maps a path to a File, to the target of a link, or to None for a directory.
    """

    mounts: list[Path]
    name: str
    numbers: random.Random
    tree: dict[str, File | str | None] = field(default_factory=dict)
    opened: list[tuple[int, File]] = field(default_factory=list)
    fresh: int = 0

    def __post_init__(self) -> None:
        os.mkdir(self.at(""))
        self.tree["."] = None

    def at(self, path: str) -> str:
        """A path through one of the mounts."""
        return os.path.normpath(self.numbers.choice(self.mounts) / self.name / path)

    def both(self, one: str, other: str) -> tuple[bytes, bytes]:
        """Two paths through the same mount, because link and rename do not work between mounts."""
        mount = self.numbers.choice(self.mounts) / self.name
        return os.fsencode(os.path.normpath(mount / one)), os.fsencode(os.path.normpath(mount / other))

    def of_kind(self, kind: type) -> list[str]:
        """Paths of files, links or (NoneType) directories."""
        return [path for path, node in self.tree.items() if isinstance(node, kind)]

    def file(self) -> tuple[str, File] | None:
        """A random file."""
        files = self.of_kind(File)
        path = self.numbers.choice(files) if files else None
        return (path, self.tree[path]) if path else None

    def new_path(self) -> str:
        """A new name in a random directory."""
        self.fresh += 1
        folder = self.numbers.choice(self.of_kind(type(None)))
        long = "n" * 200 if self.numbers.random() < 0.05 else ""
        return os.path.normpath(f"{folder}/{self.fresh}{long}")

    def span(self, length: int) -> tuple[int, int]:
        """A range within a length, or slightly beyond it."""
        start = self.numbers.randrange(length + 5000)
        return start, self.numbers.choice((1, 100, 4096, 5000, 70_000))

    def bytes(self, length: int) -> bytes:
        """Random bytes in a repeating pattern, so that misplaced ones are noticed."""
        return self.numbers.randbytes(min(length, 64)) * (length // 64 + 1)

    # The operations. Each makes one change to the file system and the same change to the expected
    # tree.

    def create(self) -> None:
        """Creates a file and writes it."""
        if len(self.of_kind(File)) >= FILES_MAX:
            return self.remove()
        path, file = self.new_path(), File()
        fd = os.open(self.at(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        self.tree[path] = file
        self.put(fd, file, 0, self.bytes(self.numbers.choice((0, 10, 3000, 5000, 100_000))))
        return self.keep_or_close(fd, file)

    def keep_or_close(self, fd: int, file: File) -> None:
        """Closes the descriptor, or keeps it open for later."""
        if len(self.opened) < OPEN_MAX and self.numbers.random() < 0.4:
            self.opened.append((fd, file))
        else:
            os.close(fd)

    def put(self, fd: int, file: File, start: int, data: bytes) -> None:
        """Writes all of the data."""
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], start + done)
        if data:
            file.data.extend(bytes(max(0, start - len(file.data))))
            file.data[start : start + len(data)] = data

    def write(self) -> None:
        """Writes to a random file through a new descriptor."""
        if found := self.file():
            path, file = found
            start, length = self.span(len(file.data))
            length = max(0, min(length, SIZE_MAX - start))
            fd = os.open(self.at(path), os.O_RDWR)
            self.put(fd, file, start, self.bytes(length)[:length])
            self.keep_or_close(fd, file)

    def write_kept(self) -> None:
        """Writes through a descriptor that was kept open.

        Its file may be removed or renamed by now.
        """
        if self.opened:
            fd, file = self.numbers.choice(self.opened)
            start, length = self.span(len(file.data))
            length = max(0, min(length, SIZE_MAX - start))
            self.put(fd, file, start, self.bytes(length)[:length])

    def read_kept(self) -> None:
        """Reads through a descriptor that was kept open, and sometimes closes it."""
        if self.opened:
            number = self.numbers.randrange(len(self.opened))
            fd, file = self.opened[number]
            start, length = self.span(len(file.data))
            assert os.pread(fd, length, start) == file.data[start : start + length], f"kept descriptor, {length} at {start}"
            assert os.fstat(fd).st_size == len(file.data)
            assert os.fstat(fd).st_nlink == file.names, f"{os.fstat(fd).st_nlink} links, not {file.names}"
            if self.numbers.random() < 0.3:
                os.close(fd)
                del self.opened[number]

    def append(self) -> None:
        """Appends to a file."""
        if (found := self.file()) and len(found[1].data) < SIZE_MAX:
            data = self.bytes(self.numbers.choice((5, 3000, 20_000)))
            with open(self.at(found[0]), "ab", buffering=0) as stream:
                assert stream.write(data) == len(data)
            found[1].data.extend(data)

    def read(self) -> None:
        """Reads a whole file and its attributes, and checks them."""
        if found := self.file():
            path, file = found
            assert Path(self.at(path)).read_bytes() == file.data, path
            status = os.stat(self.at(path))
            seen = (status.st_size, status.st_nlink, status.st_mode & 0o7777)
            assert seen == (len(file.data), file.names, file.mode), f"{path}: {seen}, not {(len(file.data), file.names, oct(file.mode))}"

    def truncate(self) -> None:
        """Truncates or extends a file."""
        if found := self.file():
            path, file = found
            length = self.numbers.randrange(min(SIZE_MAX, 2 * len(file.data) + 5000))
            os.truncate(self.at(path), length)
            file.data[length:] = b""
            file.data.extend(bytes(length - len(file.data)))

    def empty(self) -> None:
        """Opens a file with O_TRUNC and writes it again."""
        if found := self.file():
            path, file = found
            fd = os.open(self.at(path), os.O_WRONLY | os.O_TRUNC)
            file.data.clear()
            self.put(fd, file, 0, self.bytes(self.numbers.choice((0, 100, 6000))))
            os.close(fd)

    def punch(self) -> None:
        """Punches a hole."""
        if found := self.file():
            path, file = found
            start, length = self.span(len(file.data))
            fd = os.open(self.at(path), os.O_RDWR)
            done = LIBC.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(length))
            os.close(fd)
            assert done == 0, os.strerror(ctypes.get_errno())
            end = min(start + length, len(file.data))
            file.data[start:end] = bytes(max(0, end - start))

    def store(self) -> None:
        """Stores through a shared mapping."""
        found = self.file()
        # Through another mount a store is visible only after msync or munmap.
        if found and len(self.mounts) == 1 and found[1].data:
            path, file = found
            fd = os.open(self.at(path), os.O_RDWR)
            with mmap.mmap(fd, len(file.data)) as view:
                os.close(fd)
                start = self.numbers.randrange(len(file.data))
                data = self.bytes(3000)[: len(file.data) - start]
                view[start : start + len(data)] = data
                file.data[start : start + len(data)] = data
                view.flush()

    def copy(self) -> None:
        """Copies a range within the file system."""
        one, other = self.file(), self.file()
        if one and other and one[1] is not other[1]:
            start, length = self.span(len(one[1].data))
            source, target = os.open(self.at(one[0]), os.O_RDONLY), os.open(self.at(other[0]), os.O_RDWR)
            to = self.numbers.randrange(len(other[1].data) + 1)
            data = bytes(one[1].data[start : start + length])
            done = 0
            while done < len(data):
                done += os.copy_file_range(source, target, len(data) - done, start + done, to + done)
            os.close(source)
            os.close(target)
            if data:
                other[1].data[to : to + len(data)] = data

    def chmod(self) -> None:
        """Changes permissions."""
        if found := self.file():
            found[1].mode = self.numbers.choice((0o600, 0o644, 0o755))
            os.chmod(self.at(found[0]), found[1].mode)

    def note(self) -> None:
        """Sets, reads and removes extended attributes."""
        if found := self.file():
            path, file = found
            key = f"user.{self.numbers.randrange(3)}"
            if self.numbers.random() < 0.3 and key in file.notes:
                os.removexattr(self.at(path), key)
                del file.notes[key]
            else:
                file.notes[key] = self.bytes(200)[: self.numbers.randrange(200)]
                os.setxattr(self.at(path), key, file.notes[key])
            assert set(os.listxattr(self.at(path))) == set(file.notes), path
            for name, value in file.notes.items():
                assert os.getxattr(self.at(path), name) == value, (path, name)

    def link(self) -> None:
        """Makes another name of a file."""
        if (found := self.file()) and len(self.of_kind(File)) < FILES_MAX:
            path = self.new_path()
            os.link(*self.both(found[0], path))
            found[1].names += 1
            self.tree[path] = found[1]

    def symlink(self) -> None:
        """Makes a symbolic link whose target may not exist."""
        if len(self.of_kind(str)) < 10:
            path = self.new_path()
            self.tree[path] = f"target{self.fresh}"
            os.symlink(f"target{self.fresh}", self.at(path))
            assert os.readlink(self.at(path)) == f"target{self.fresh}"

    def mkdir(self) -> None:
        """Makes a directory."""
        if len(self.of_kind(type(None))) < 12:
            path = self.new_path()
            os.mkdir(self.at(path))
            self.tree[path] = None

    def below(self, path: str) -> list[str]:
        """Everything below a directory."""
        return [other for other in self.tree if other.startswith(path + "/")]

    def remove(self) -> None:
        """Removes a path; a directory only if it is empty."""
        path = self.numbers.choice(list(self.tree))
        if path == ".":
            return
        node = self.tree[path]
        if node is None:
            try:
                os.rmdir(self.at(path))
                assert not self.below(path), f"{path} was removed with what is in it"
            except OSError as error:
                assert error.errno == errno.ENOTEMPTY, error
                assert self.below(path), f"{path} is empty, and yet not removed"
                return
        else:
            os.unlink(self.at(path))
            if isinstance(node, File):
                node.names -= 1
        del self.tree[path]
        assert not os.path.lexists(self.at(path)), path

    def movable(self, path: str) -> bool:
        """True unless it is a directory and there are several mounts.

        A kernel returns ESTALE if it finds such a directory moved during a rename of its own.
        """
        return len(self.mounts) == 1 or self.tree[path] is not None

    def move(self) -> None:
        """Renames a path, sometimes over another of the same kind."""
        old, new = self.numbers.choice(list(self.tree)), self.new_path()
        kept = [path for path in self.tree if path != "." and not (path + "/").startswith(old + "/")]
        if old == "." or (new + "/").startswith(old + "/") or not self.movable(old):
            return
        if kept and self.numbers.random() < 0.4:
            new = self.numbers.choice(kept)
        if (new + "/").startswith(old + "/") or (old + "/").startswith(new + "/"):
            return
        node, target = self.tree[old], self.tree.get(new)
        if new in self.tree and ((node is None) != (target is None) or self.below(new)):
            return
        os.rename(*self.both(old, new))
        # A rename between two names of one file does nothing.
        if node is target and isinstance(node, File):
            return
        if isinstance(target, File):
            target.names -= 1
        for path in [old, *self.below(old)]:
            self.tree[new + path[len(old) :]] = self.tree.pop(path)

    def exchange(self) -> None:
        """Exchanges two paths that do not contain each other."""
        one, other = self.numbers.choice(list(self.tree)), self.numbers.choice(list(self.tree))
        if (
            "." in (one, other)
            or not self.movable(one)
            or not self.movable(other)
            or (one + "/").startswith(other + "/")
            or (other + "/").startswith(one + "/")
        ):
            return
        first_path, second_path = self.both(one, other)
        done = LIBC.renameat2(-100, first_path, -100, second_path, EXCHANGE)
        assert done == 0, f"{one}, {other}: {os.strerror(ctypes.get_errno())}"
        first = {path[len(one) :]: self.tree.pop(path) for path in [one, *self.below(one)]}
        second = {path[len(other) :]: self.tree.pop(path) for path in [other, *self.below(other)]}
        self.tree |= {other + rest: node for rest, node in first.items()} | {one + rest: node for rest, node in second.items()}

    def list(self) -> None:
        """Lists a directory and checks names, types and links."""
        path = self.numbers.choice(self.of_kind(type(None)))
        wanted = sorted(os.path.basename(other) for other in self.tree if other != "." and os.path.dirname(other) == ("" if path == "." else path))
        assert sorted(os.listdir(self.at(path))) == wanted, path
        folders = sum(1 for name in wanted if self.tree[os.path.normpath(f"{path}/{name}")] is None)
        assert os.stat(self.at(path)).st_nlink == 2 + folders, path

    def step(self) -> str:
        """Runs a random operation."""
        verbs = (
            *(self.create, self.write, self.read) * 3,
            *(self.write_kept, self.read_kept, self.append, self.truncate, self.remove, self.move, self.list) * 2,
            *(self.empty, self.punch, self.store, self.copy, self.chmod, self.note, self.link, self.symlink, self.mkdir, self.exchange),
        )
        verb = self.numbers.choice(verbs)
        verb()
        return verb.__name__

    def check(self) -> None:
        """Checks everything through every mount."""
        for mount in self.mounts:
            seen = {
                os.path.relpath(os.path.join(parent, name), mount / self.name)
                for parent, folders, files in os.walk(mount / self.name)
                for name in folders + files
            }
            assert seen == set(self.tree) - {"."}, seen ^ (set(self.tree) - {"."})
            for path, node in self.tree.items():
                if isinstance(node, File):
                    assert (mount / self.name / path).read_bytes() == node.data, path
        for fd, _ in self.opened:
            os.close(fd)
