"""Judges the poses of two molecules: writes a label and the lowest energy of all poses.

match.py POSES LABEL

The label is `match` (a good fit), `weak` or `none`.
"""

import pathlib
import sys

MATCH_MAX = -1.0
WEAK_MAX = -0.5


def match(poses_text):
    """The line of a pair: its label and its lowest energy."""
    lowest = min(float(line.split()[3]) for line in poses_text.splitlines())
    label = "match" if lowest <= MATCH_MAX else "weak" if lowest <= WEAK_MAX else "none"
    return f"{label} {lowest:.3f}\n"


def main():
    poses, label = map(pathlib.Path, sys.argv[1:])
    label.write_text(match(poses.read_text()))


if __name__ == "__main__":
    main()
