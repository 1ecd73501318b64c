#!/usr/bin/env python3
"""Frees hanging FUSE mounts: aborts every FUSE connection mounted below a directory.

A program that waits for a reply of a FUSE server cannot be killed, and neither can a test that
waits for the program. Aborting the connection makes every call in it fail immediately, so that the
test fails and the test run ends. Other users' mounts are not touched: the caller gives a directory
that it made. Usage: hang.py DIR
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
    """Every FUSE mount below a directory, last mounted first.

    Returns (mount point, minor device number) of each.
    """
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ", 1)
        _, _, device, _, point = before.split()[:5]
        # mountinfo writes blanks and backslashes as octal numbers.
        point = point.encode().decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
        if after.startswith("fuse") and Path(point).is_relative_to(folder):
            found.append((point, int(device.split(":")[1])))
    return found[::-1]


def abort_mounts(folder: Path) -> list[str]:
    """Aborts and unmounts every FUSE mount below a directory; returns the mount points."""
    # The last component of the path may be a symbolic link, but nothing below it may be accessed:
    # that would hang.
    freed = mounted_below(Path(os.path.realpath(folder)))
    libc = ctypes.CDLL(None, use_errno=True)
    for point, minor in freed:
        # Without fusectl the forced unmount aborts the connection as well.
        with suppress(OSError):
            (CONNECTIONS / str(minor) / "abort").write_text("1")
        libc.umount2(os.fsencode(point), MNT_FORCE | MNT_DETACH)
    return [point for point, _ in freed]


if __name__ == "__main__":
    for name in abort_mounts(Path(sys.argv[1])):
        print(f"hang.py: aborted the FUSE mount at {name}", file=sys.stderr)
