#!/usr/bin/env python3
"""Fills a pool to more than half and empties it again, until standard input ends.

Files are opened without passthrough when the pool is more than half full, and with passthrough
otherwise. So a process that runs at the same time gets both, and the switch between them. Usage:
crowder.py FILE
"""

from __future__ import annotations

import select
import sys
from contextlib import suppress
from pathlib import Path

MIB = 1 << 20
SIZE = 40 * MIB


def main() -> None:
    """Fills and empties the pool until standard input ends."""
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        # A write by passthrough may fail before the pool is full, if others need the space that was
        # reserved for it.
        with suppress(OSError), open(sys.argv[1], "wb", buffering=0) as file:
            file.writelines([bytes(MIB)] * (SIZE // MIB))
        Path(sys.argv[1]).unlink()


if __name__ == "__main__":
    main()
