#!/usr/bin/env python3
"""Reads a file in pieces of many sizes, until standard input ends.

Others change the file at the same time. So the only checks are that nothing fails, and that no
piece is longer than requested. Usage: reader.py FILE
"""

from __future__ import annotations

import os
import random
import select
import sys

SIZE_MAX = 1 << 20


def read_once(path: str, numbers: random.Random) -> None:
    """Opens the file, reads pieces at random offsets, and checks its attributes."""
    file = os.open(path, os.O_RDONLY)
    try:
        for _ in range(20):
            length = numbers.choice((1, 4096, 65536, 131072))
            piece = os.pread(file, length, numbers.randrange(SIZE_MAX))
            if len(piece) > length:
                sys.exit(f"{len(piece)} bytes for {length}")
        os.fstat(file)
    finally:
        os.close(file)


def main() -> None:
    """Reads the file until standard input ends."""
    numbers = random.Random(1)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        read_once(sys.argv[1], numbers)


if __name__ == "__main__":
    main()
