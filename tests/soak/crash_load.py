#!/usr/bin/env python3
"""A process that runs a mixed load in a directory until it is killed or its file system is gone.

Errors of the pool (full, not found, busy) are part of the load. When the server has died every call
fails, and the process ends. Usage: crash_load.py DIR SEED
"""

import contextlib
import errno
import mmap
import os
import random
import sys

GONE = {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENODEV, errno.ESTALE}
NAMES = 12


def write(path: str, rng: random.Random) -> None:
    """Creates or replaces a file, small or large."""
    with open(path, "wb") as file:
        file.writelines(rng.randbytes(rng.choice([1, 4000, 5000, 1 << 20])) for _ in range(rng.choice([0, 1, 1, 3])))
        if rng.random() < 0.2:
            os.fsync(file.fileno())


def change(path: str, rng: random.Random) -> None:
    """Modifies a part of a file in place: by a write, a truncation, or a mapping."""
    with open(path, "r+b") as file:
        how, size = rng.randrange(3), os.fstat(file.fileno()).st_size
        if how == 0:
            file.seek(rng.randrange(size + 5000))
            file.write(b"changed")
        elif how == 1:
            file.truncate(rng.randrange(size + 5000))
        elif size:
            with mmap.mmap(file.fileno(), size) as view:
                view[rng.randrange(size)] = 7


def step(folder: str, rng: random.Random) -> None:
    """Runs one operation."""
    path, other = (os.path.join(folder, f"f{rng.randrange(NAMES)}") for _ in range(2))
    what = rng.randrange(8)
    if what <= 1:
        write(path, rng)
    elif what == 2:
        change(path, rng)
    elif what == 3:
        os.rename(path, other)
    elif what == 4:
        os.unlink(path)
    elif what == 5:
        inner = os.path.join(folder, f"d{rng.randrange(3)}")
        if rng.random() < 0.5:
            os.mkdir(inner)
        else:
            os.rmdir(inner)
    elif what == 6:
        for entry in os.scandir(folder):
            entry.stat()
    else:
        with open(path, "rb") as file:
            file.read()


def main() -> int:
    """Runs operations until the file system is gone."""
    folder, rng = sys.argv[1], random.Random(int(sys.argv[2]))
    mount = os.path.dirname(folder)
    if not os.path.ismount(mount):
        return 0
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    while True:
        try:
            step(folder, rng)
        except OSError as error:
            # After the dead mount was removed, the directory below it answers.
            if error.errno in GONE or not os.path.ismount(mount):
                return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError:
        sys.exit(0)
