#!/usr/bin/env python3
"""Frees what hangs in a FUSE mount: aborts every connection that is mounted below a folder.

A program that waits for an answer of a FUSE server cannot be killed, and neither can a test that waits for the program.
When the connection is aborted, every call in it fails at once, so that the test fails, and the run ends.
Other people's mounts are not touched: the folder is one that the caller made. Usage: hang.py DIR
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

CONNECTIONS = Path("/sys/fs/fuse/connections")
MNT_FORCE, MNT_DETACH = 1, 2


def mounted_below(folder: Path) -> list[tuple[str, int]]:
    """(mount point, minor number of its device) of every FUSE mount below a folder, the last mounted first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ", 1)
        _, _, device, _, point = before.split()[:5]
        # mountinfo writes blanks and backslashes as octal numbers.
        point = point.encode().decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
        if after.startswith("fuse") and Path(point).is_relative_to(folder):
            found.append((point, int(device.split(":")[1])))
    return found[::-1]


def free(folder: Path) -> list[str]:
    """Aborts and unmounts all of them; what it freed."""
    # The last component of the folder may be a link, but nothing below it may be looked at: that is what hangs.
    freed = mounted_below(Path(os.path.realpath(folder)))
    libc = ctypes.CDLL(None, use_errno=True)
    for point, minor in freed:
        with suppress(OSError):  # without fusectl the forced unmount aborts as well
            (CONNECTIONS / str(minor) / "abort").write_text("1")
        libc.umount2(os.fsencode(point), MNT_FORCE | MNT_DETACH)
    return [point for point, _ in freed]


if __name__ == "__main__":
    for name in free(Path(sys.argv[1])):
        print(f"hang.py: aborted the FUSE mount at {name}", file=sys.stderr)
