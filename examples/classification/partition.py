"""Partitioner: deals the rows of a labelled file to parts in turn, one class after the other.

The parts have the same size, give or take a row. A class with at least as many rows as there are
parts is in every part. A class with fewer rows is an error, because the models of parts without it
could never predict it.
"""

import argparse
import collections

import rows


def deal(lines, count):
    """Deals the lines into `count` lists; each keeps their order."""
    by_class = sorted(range(len(lines)), key=lambda index: rows.label_of(lines[index]))  # sorted() is stable
    part_of = [0] * len(lines)
    for turn, index in enumerate(by_class):
        part_of[index] = turn % count
    parts = [[] for _ in range(count)]
    for line, part in zip(lines, part_of, strict=True):
        parts[part].append(line)
    return parts


def refuse_rare_classes(lines, count):
    """Exits if a class has too few rows to be in every part."""
    for label, size in sorted(collections.Counter(map(rows.label_of, lines)).items()):
        if size < count:
            raise SystemExit(f"class {label!r} has {size} rows, too few for {count} parts: make fewer parts or give more rows")


def main():
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("dataset")
    parser.add_argument("parts", nargs="+")
    args = parser.parse_args()
    header, lines = rows.read(args.dataset)
    refuse_rare_classes(lines, len(args.parts))
    for path, part in zip(args.parts, deal(lines, len(args.parts)), strict=True):
        rows.write(path, header, part)


if __name__ == "__main__":
    main()
