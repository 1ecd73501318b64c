"""Counts the labels of all pairs.

merge.py COUNTS LABEL...
"""

import collections
import pathlib
import sys


def merge(label_texts):
    """The lines of the counts, in the order of the alphabet."""
    counts = collections.Counter(text.split()[0] for text in label_texts)
    return "".join(f"{label} {count}\n" for label, count in sorted(counts.items()))


def main():
    counts, *labels = map(pathlib.Path, sys.argv[1:])
    counts.write_text(merge(label.read_text() for label in labels))


if __name__ == "__main__":
    main()
