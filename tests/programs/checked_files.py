"""Changes files in a directory at random, and checks that all it has done is there.

`checked_files.py DIRECTORY SEED STOP`: works until the file STOP exists, then checks all files once
more. Prints the number of operations and the longest one in milliseconds.
"""

from __future__ import annotations

import mmap
import random
import sys
import time
from pathlib import Path

FILES = 40
LENGTHS = [10, 3000, 5000, 70_000, 1_500_000, 3_000_000]
# Files that are mapped at a time.
MAPS = 3


class CheckedFiles:
    """A directory of files, and what they must contain."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.known: dict[str, bytes] = {}
        self.maps: dict[str, mmap.mmap] = {}

    def any(self) -> str:
        """The name of some file."""
        return self.random.choice(sorted(self.known))

    def step(self) -> None:
        """Does one operation."""
        if not self.known:
            self.replace()
            return
        kinds = [self.replace, self.check, self.map, self.check_map, self.patch, self.append, self.rename, self.remove, self.names]
        self.random.choice(kinds)()

    def replace(self) -> None:
        """Makes a file, or replaces its bytes."""
        name = f"f{self.random.randrange(FILES)}"
        data = self.random.randbytes(self.random.choice(LENGTHS))
        self.unmap(name)
        (self.folder / name).write_bytes(data)
        self.known[name] = data

    def check(self) -> None:
        """Reads a file."""
        name = self.any()
        assert (self.folder / name).read_bytes() == self.known[name], name

    def map(self) -> None:
        """Maps a file, and reads it there."""
        name = self.any()
        if name not in self.maps and len(self.maps) == MAPS:
            self.unmap(self.random.choice(sorted(self.maps)))
        self.unmap(name)
        with (self.folder / name).open("rb") as file:
            self.maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert self.maps[name][:] == self.known[name], name

    def check_map(self) -> None:
        """Reads a file where it has been mapped, maybe before it was changed."""
        if not self.maps:
            return
        name = self.random.choice(sorted(self.maps))
        mapped = self.maps[name]
        assert mapped[:] == self.known[name][: len(mapped)], name

    def unmap(self, name: str) -> None:
        """Ends the map of a file, if there is one."""
        if mapped := self.maps.pop(name, None):
            mapped.close()

    def patch(self) -> None:
        """Overwrites some bytes."""
        name, data = self.any(), self.random.randbytes(100)
        before = self.known[name]
        at = self.random.randrange(len(before) + 1)
        # By the preload library, a map may show a file as it was.
        self.unmap(name)
        with (self.folder / name).open("r+b") as file:
            file.seek(at)
            file.write(data)
        self.known[name] = before[:at] + data + before[at + len(data) :]

    def append(self) -> None:
        """Adds bytes to the end."""
        name, data = self.any(), self.random.randbytes(1000)
        with (self.folder / name).open("ab") as file:
            file.write(data)
        self.known[name] += data

    def rename(self) -> None:
        """Gives a file another name, maybe one that is taken."""
        old, new = self.any(), f"f{self.random.randrange(FILES)}"
        if old != new:
            (self.folder / old).rename(self.folder / new)
            self.known[new] = self.known.pop(old)
            self.unmap(new)
            if mapped := self.maps.pop(old, None):
                self.maps[new] = mapped

    def remove(self) -> None:
        """Removes a file."""
        name = self.any()
        (self.folder / name).unlink()
        data = self.known.pop(name)
        if mapped := self.maps.get(name):
            assert mapped[:] == data[: len(mapped)], f"{name} is mapped and has no name"
            self.unmap(name)

    def names(self) -> None:
        """Lists the directory."""
        assert sorted(path.name for path in self.folder.iterdir()) == sorted(self.known)


def main() -> None:
    """Works until it is told to stop."""
    folder, seed, stop = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(parents=True)
    files = CheckedFiles(folder, seed)
    operations, longest = 0, 0.0
    while not stop.exists():
        begun = time.monotonic()
        files.step()
        longest = max(longest, time.monotonic() - begun)
        operations += 1
    for name, data in files.known.items():
        assert (folder / name).read_bytes() == data, name
    files.names()
    print(operations, round(longest * 1000))


main()
