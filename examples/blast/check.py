"""Checks that the hits are the same lines in the same order as one search of all queries on a disk.

    check.py --data DIR --out OUT [--queries corn]

The E-value of a hit depends on the query itself and on the database, not on the other queries, so
splitting the queries changes nothing. Exits with 0 if all checks pass; otherwise with 1 and a
message.
"""

import argparse
import pathlib
import shutil
import subprocess
import tempfile


def expect(condition, message):
    """The only assertion: exits with a message."""
    if not condition:
        raise SystemExit(f"check.py: {message}")


def in_one_piece(data, queries, folder):
    """The output lines of one search with all queries."""
    run = lambda *command: subprocess.run(command, check=True, capture_output=True)  # noqa: E731
    database, hits = f"{folder}/nifh-db", folder / "hits.tsv"
    run("makeblastdb", "-in", str(data / "nifh-db.fa"), "-dbtype", "nucl", "-blastdb_version", "4", "-out", database)
    run("blastn", "-db", database, "-query", str(data / f"{queries}.fa"), "-evalue", "1e-10", "-outfmt", "6", "-out", str(hits))
    return hits.read_text().splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--queries", default="corn", help="the stem of the query file (default: corn)")
    args = parser.parse_args()
    found = list(args.out.rglob("Hits.tsv"))
    expect(len(found) == 1, f"{len(found)} files Hits.tsv under {args.out}")
    ours = found[0].read_text().splitlines()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="blast-check-"))
    try:
        theirs = in_one_piece(args.data, args.queries, folder)
    finally:
        shutil.rmtree(folder)
    expect(theirs, "a search in one piece finds nothing: the data is not that of this example")
    unlike = len(set(ours) ^ set(theirs))
    expect(sorted(ours) == sorted(theirs), f"{len(ours)} hits, {unlike} unlike those of one search, which has {len(theirs)}")
    expect(ours == theirs, "the hits are those of one search, but in another order")
    print(f"{len(ours)} hits of {len({line.split()[0] for line in ours})} queries, the same as in one piece")


if __name__ == "__main__":
    main()
