"""Docks all pairs of molecules one after the other, without Tidemill, and prints the counts.

serial.py DIR
"""

import pathlib
import sys

from dock import dock
from match import match
from merge import merge


def main():
    molecules = [path.read_text() for path in sorted(pathlib.Path(sys.argv[1]).glob("*.mol"))]
    print(merge(match(dock(one, other)) for one in molecules for other in molecules), end="")


if __name__ == "__main__":
    main()
