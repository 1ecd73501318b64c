#!/usr/bin/env python3
"""Fills a pool to more than its half and empties it again, over and over, until standard input ends.

Above the half files are opened in the ordinary way, below it they are passed through: so who works beside it meets both, and
the change between them. Usage: crowder.py FILE
"""

from __future__ import annotations

import select
import sys
from contextlib import suppress
from pathlib import Path

MIB = 1 << 20
SIZE = 40 * MIB


def main() -> None:
    """Fills and empties until told to end."""
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        # Who is passed through may be refused before the pool is full, when others need the room that was kept for it.
        with suppress(OSError), open(sys.argv[1], "wb", buffering=0) as file:
            file.writelines([bytes(MIB)] * (SIZE // MIB))
        Path(sys.argv[1]).unlink()


if __name__ == "__main__":
    main()
