"""Makes the input of the classification workflow: Train.csv, Test.csv and Unlab/Unlab_00.csv ...

    prepare.py DIR             handwritten digits, which scikit-learn contains: 1,797 images of
                               8 x 8 pixels, 10 classes
    prepare.py DIR --kdd KDD   KDD Cup 1999: network connections, normal or one of four kinds of
                               attack

KDD is a directory with `kddcup.data_10_percent.gz` (494,021 labelled connections; some become Test)
and `corrected.gz` (311,029 others, which become the unlabelled parts). The script also makes
Truth.csv with the labels that Unlab lacks; the workflow does not read it. The same options always
make the same files.
"""

import argparse
import collections
import gzip
import pathlib
import random
import typing

KDD_TRAIN = "kddcup.data_10_percent.gz"
KDD_UNLABELLED = "corrected.gz"
# The number of rows of a rare class that a sample (--rows) keeps: enough for one in each of 20
# parts and some for the test.
RARE_ROWS_MIN = 40

# The kinds of attack of the task's description, and the names in each kind (the last ones occur
# only in corrected.gz).
KINDS = {
    "normal": "normal",
    "dos": "back land neptune pod smurf teardrop apache2 mailbomb processtable udpstorm",
    "probe": "ipsweep nmap portsweep satan mscan saint",
    "r2l": "ftp_write guess_passwd imap multihop phf spy warezclient warezmaster named sendmail snmpgetattack snmpguess worm xlock xsnoop",
    "u2r": "buffer_overflow loadmodule perl rootkit httptunnel ps sqlattack xterm",
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}
# The columns of the KDD files without the label; three of them hold words.
KDD_COLUMNS = (
    "duration protocol service flag src_bytes dst_bytes land wrong_fragment urgent hot num_failed_logins logged_in"
    " num_compromised root_shell su_attempted num_root num_file_creations num_shells num_access_files num_outbound_cmds"
    " is_host_login is_guest_login count srv_count serror_rate srv_serror_rate rerror_rate srv_rerror_rate same_srv_rate"
    " diff_srv_rate srv_diff_host_rate dst_host_count dst_host_srv_count dst_host_same_srv_rate dst_host_diff_srv_rate"
    " dst_host_same_src_port_rate dst_host_srv_diff_host_rate dst_host_serror_rate dst_host_srv_serror_rate"
    " dst_host_rerror_rate dst_host_srv_rerror_rate"
).split()
KDD_WORDS = (1, 2, 3)


class Row(typing.NamedTuple):
    """A labelled row: `features` is the middle of its line, without id and label."""

    name: str
    features: str
    label: str

    def labelled(self):
        return f"{self.name},{self.features},{self.label}\n"

    def unlabelled(self):
        return f"{self.name},{self.features}\n"


def digits(seed, test_share=0.2, unlabelled_share=0.2):
    """The columns, and the rows of the digits for Train, Test and Unlab.

    Each has its share of every class.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    rows = [
        Row(f"d{index}", ",".join(f"{pixel:g}" for pixel in pixels), str(label))
        for index, (pixels, label) in enumerate(zip(data.data, data.target, strict=True))
    ]
    test, rest = take(rows, round(len(rows) * test_share), seed)
    unlabelled, train = take(rest, round(len(rows) * unlabelled_share), seed + 1)
    return [f"pixel{index}" for index in range(64)], train, test, unlabelled


def kdd(folder, seed, rows_max, test_rows):
    """The same for KDD Cup 99; `rows_max` samples both of its files in proportion."""
    labelled, unlabelled = read_kdd(folder / KDD_TRAIN, "t"), read_kdd(folder / KDD_UNLABELLED, "u")
    columns = list(KDD_COLUMNS)
    for place in KDD_WORDS:
        words = {row.features.split(",")[place] for rows in (labelled, unlabelled) for row in rows}
        columns[place] += ":" + "|".join(sorted(words))
    if rows_max and rows_max < len(labelled):
        unlabelled_max = rows_max * len(unlabelled) // len(labelled)
        labelled, _ = take(labelled, rows_max, seed, at_least=RARE_ROWS_MIN)
        unlabelled, _ = take(unlabelled, unlabelled_max, seed)
    test, train = take(labelled, test_rows or min(10_000, len(labelled) // 5), seed)
    return columns, train, test, unlabelled


def read_kdd(path, prefix):
    """The rows of a KDD file, which has no header.

    An id is the prefix and the line number from 0.
    """
    if not path.is_file():
        raise SystemExit(f"{path} is not there: --kdd wants the folder with {KDD_TRAIN} and {KDD_UNLABELLED}")
    with gzip.open(path, "rt", encoding="ascii") as file:
        return [kdd_row(path, f"{prefix}{number}", line) for number, line in enumerate(file)]


def kdd_row(path, name, line):
    features, _, label = line.strip().rpartition(",")
    kind = KIND_OF.get(label.rstrip("."))
    if kind is None or features.count(",") != len(KDD_COLUMNS) - 1:
        raise SystemExit(f"{path}, row {name}: not a KDD Cup 99 connection: {line.strip()[:80]!r}")
    return Row(name, features, kind)


def take(rows, count, seed, at_least=1):
    """Chooses about `count` rows; returns them and the rows that are left, both in order.

    Each class has its share, but at least `at_least` rows (or all of its rows).
    """
    classes = collections.defaultdict(list)
    for index, row in enumerate(rows):
        classes[row.label].append(index)
    chosen = set()
    for label in sorted(classes):
        members = classes[label]
        share = max(round(len(members) * count / len(rows)), at_least)
        chosen.update(random.Random(f"{seed} {label}").sample(members, min(share, len(members))))
    return [row for i, row in enumerate(rows) if i in chosen], [row for i, row in enumerate(rows) if i not in chosen]


def write_all(folder, data, parts):
    """Writes all files, and removes parts of an earlier run.

    The workflow needs exactly `parts` unlabelled files.
    """
    columns, train, test, unlabelled = data
    if len(unlabelled) < parts:
        raise SystemExit(f"{len(unlabelled)} unlabelled rows are too few for {parts} parts")
    slices = folder / "Unlab"
    slices.mkdir(parents=True, exist_ok=True)
    for old in slices.glob("Unlab_*.csv"):
        old.unlink()
    header = ",".join(["id", *columns])
    for name, rows in ("Train", train), ("Test", test):
        write(folder / f"{name}.csv", f"{header},label\n", (row.labelled() for row in rows))
    width = len(str(parts - 1))
    for part in range(parts):
        rows = unlabelled[part * len(unlabelled) // parts : (part + 1) * len(unlabelled) // parts]
        write(slices / f"Unlab_{part:0{width}}.csv", f"{header}\n", (row.unlabelled() for row in rows))
    write(folder / "Truth.csv", "id,label\n", (f"{row.name},{row.label}\n" for row in unlabelled))


def write(path, header, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.write(header)
        file.writelines(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR", help="where the files go; made if it is not there")
    parser.add_argument("--kdd", type=pathlib.Path, metavar="KDD", help="use KDD Cup 99, from this folder")
    parser.add_argument("--rows", type=int, metavar="N", help="with --kdd: a sample of N labelled rows, the unlabelled in proportion")
    parser.add_argument("--test-rows", type=int, metavar="N", help="with --kdd: hold out N rows as Test (default: a fifth, at most 10,000)")
    parser.add_argument("--parts-unlabelled", type=int, default=80, metavar="M", help="how many files in Unlab/ (default: 80)")
    parser.add_argument("--seed", type=int, default=1, help="of every random choice (default: 1)")
    args = parser.parse_args()
    if args.kdd:
        data = kdd(args.kdd, args.seed, args.rows, args.test_rows)
    elif args.rows or args.test_rows:
        parser.error("--rows and --test-rows belong to --kdd")
    else:
        data = digits(args.seed)
    write_all(args.folder, data, args.parts_unlabelled)
    _, train, test, unlabelled = data
    print(f"{args.folder}: Train {len(train)} rows, Test {len(test)}, Unlab {len(unlabelled)} in {args.parts_unlabelled} files")


if __name__ == "__main__":
    main()
