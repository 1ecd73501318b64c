"""SplitQueries: cuts a FASTA file into parts with equally many sequences each; a part after the other, in order.

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
    """`count` slices, as equal as they can be."""
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
