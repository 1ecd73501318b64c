"""Filter: drops invalid rows, and merges rows with equal features into one row with all their ids.

The first column of a merged row is `17 93 240`: the classifier processes the row once, and every id
gets its answer. (In the files made from KDD Cup 99, two of three rows are duplicates.)
"""

import argparse
import sys

import rows


def folded(header, lines):
    """The rows to keep, and (id, reason) of each dropped row."""
    form = rows.Format(header)
    ids, dropped = {}, []
    for line in lines:
        name, _, rest = line.partition(",")
        if rest not in ids and (reason := form.problem(line)):
            dropped.append((name, reason))
        else:
            ids.setdefault(rest, []).append(name)
    return [f"{' '.join(names)},{rest}" for rest, names in ids.items()], dropped


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("filtered")
    args = parser.parse_args()
    header, lines = rows.read(args.dataset)
    kept, dropped = folded(header, lines)
    for name, reason in dropped:
        print(f"row {name} dropped: {reason}", file=sys.stderr)
    print(f"{len(lines)} rows, {len(dropped)} invalid, {len(kept)} different")
    rows.write(args.filtered, header, kept)


if __name__ == "__main__":
    main()
