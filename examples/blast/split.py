"""SplitQueries: cuts a FASTA file into consecutive parts with equal numbers of sequences.

split.py IN.fa PART.fa ...
"""

import argparse
import pathlib


def records(text):
    """The sequences of a FASTA text, each with its `>` line."""
    head, *rest = text.split("\n>")
    if not head.startswith(">"):
        raise SystemExit("not a FASTA file: it does not begin with '>'")
    return [part.rstrip("\n") + "\n" for part in [head, *(">" + part for part in rest)]]


def cut(items, count):
    """Cuts a list into `count` slices of nearly equal length."""
    return [items[part * len(items) // count : (part + 1) * len(items) // count] for part in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("queries", type=pathlib.Path)
    parser.add_argument("parts", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    for path, part in zip(args.parts, cut(records(args.queries.read_text()), len(args.parts)), strict=True):
        path.write_text("".join(part))


if __name__ == "__main__":
    main()
