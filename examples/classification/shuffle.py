"""Shuffler: puts the rows of a labelled file in random order, the same for the same seed."""

import argparse
import random

import rows


def shuffled(lines, seed):
    """A shuffled copy."""
    lines = list(lines)
    random.Random(seed).shuffle(lines)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("shuffled")
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    header, lines = rows.read(args.dataset)
    rows.write(args.shuffled, header, shuffled(lines, args.seed))


if __name__ == "__main__":
    main()
