"""Checks the results of the classification workflow with a separate computation without Tidemill.

    check.py --data DIR --out OUT

DIR is the input that prepare.py made. OUT has the exports of the run, which needs the flags
`--export TrainPart --export Model --export BestModel`.

The script trains the models again and predicts with scikit-learn itself (the tools predict by
model.py). Then it asserts:
1. The parts contain every row of Train once, differ by one row at most in size, and each has rows
   of every class.
2. Each exported model classifies as many rows of Test correctly as the one trained here.
3. BestModel is the first of those with the highest number.
4. Every prediction equals the one made here, and every valid row of Unlab has exactly one.
Exits with 0 if all hold; otherwise with 1 and a message.
"""

import argparse
import collections
import csv
import pathlib
import re

import model
import numpy as np
import partition
import rows
import shuffle
import train

ALGORITHMS = ("tree", "svm", "bayes")  # the rows of `Model` in the workflow


def expect(condition, message):
    """The only assertion: exits with a message."""
    if not condition:
        raise SystemExit(f"check.py: {message}")


def exported(out, element):
    """The files of an array below OUT by their index: {(0, 3): path}."""
    names = re.compile(rf"{element}((?:_\d+)*)\.\w+")
    found = {}
    for path in out.rglob(f"{element}*"):
        if match := names.fullmatch(path.name):
            found[tuple(int(index) for index in match[1].split("_")[1:])] = path
    expect(found, f"no {element} in {out}: was the run given --export {element}?")
    return found


def table(path):
    """The rows of a CSV file as dictionaries."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def numbers(records):
    """The features of records, by separate code; rows.py documents the columns."""
    result = []
    for record in records:
        row = []
        for name, field in record.items():
            if name in ("id", "label"):
                continue
            if ":" in name:
                row += [float(word == field) for word in name.partition(":")[2].split("|")]
            else:
                row.append(np.sign(np.float32(field)) * np.log1p(np.abs(np.float32(field))))
        result.append(row)
    return np.array(result, dtype=np.float32)


def is_valid(record):
    """True for a row of Unlab that Filter keeps."""
    for name, field in record.items():
        if name is None or field is None:
            return False
        if name == "id":
            continue
        if ":" in name:
            if field not in name.partition(":")[2].split("|"):
                return False
        elif not rows.is_finite(field):
            return False
    return True


def check_parts(data, out, seed):
    """Checks point 1. Returns the parts as lists of lines."""
    header, lines = rows.read(data / "Train.csv")
    files = exported(out, "TrainPart")
    parts = [rows.read(files[index])[1] for index in sorted(files)]
    expect(
        collections.Counter(line for part in parts for line in part) == collections.Counter(lines),
        "the parts together are not the rows of Train",
    )
    sizes = {len(part) for part in parts}
    expect(max(sizes) - min(sizes) <= 1, f"the parts differ in size: {sorted(sizes)}")
    classes = set(map(rows.label_of, lines))
    for index, part in enumerate(parts):
        expect(set(map(rows.label_of, part)) == classes, f"TrainPart[{index}] lacks a class")
    expect(parts == partition.deal(shuffle.shuffled(lines, seed), len(parts)), "the parts are not those of this seed")
    return header, parts


def train_again(header, parts, seed):
    """Trains the models; returns the estimators in the order of the array Model."""
    fieldnames = header.rstrip("\n").split(",")
    tables = [list(csv.DictReader(part, fieldnames=fieldnames)) for part in parts]
    data = [(numbers(records), [record["label"] for record in records]) for records in tables]
    return {(row, column): train.ALGORITHMS[algorithm](*data[column], seed) for row, algorithm in enumerate(ALGORITHMS) for column in range(len(parts))}


def check_models(data, out, estimators):
    """Checks points 2 and 3. Returns the index of the best model and its accuracy."""
    records = table(data / "Test.csv")
    features, labels = numbers(records), np.array([record["label"] for record in records])
    files = exported(out, "Model")
    expect(sorted(files) == sorted(estimators), f"Model has {len(files)} members in {out}, not {len(estimators)}")
    right = {}
    for index in sorted(estimators):
        here = int((estimators[index].predict(features) == labels).sum())
        there = int((model.predict(model.load(files[index]), features) == labels).sum())
        expect(here == there, f"Model{list(index)} names {there} rows of Test rightly, the one trained here {here}")
        right[index] = here
    best = max(sorted(right), key=right.get)  # the first of equal ones
    chosen = exported(out, "BestModel")[()].read_bytes()
    expect(chosen == files[best].read_bytes(), f"BestModel is not Model{list(best)}, which has the best accuracy")
    return best, right[best] / len(labels)


def check_predictions(data, out, estimator):
    """Checks point 4. Returns the predictions by id."""
    inputs = sorted((data / "Unlab").iterdir())
    files = exported(out, "ClassDataset")
    expect(len(files) == len(inputs), f"{len(files)} ClassDataset files in {out}, {len(inputs)} files in Unlab")
    answers = {}
    for index, path in enumerate(inputs):
        valid = [record for record in table(path) if is_valid(record)]
        wanted = dict(zip([record["id"] for record in valid], estimator.predict(numbers(valid)) if valid else [], strict=True))
        lines = table(files[(index,)])
        got = {line["id"]: line["label"] for line in lines}
        expect(len(got) == len(lines), f"{files[(index,)]} answers an id twice")
        expect(got.keys() == wanted.keys(), f"{files[(index,)]} has {len(got)} ids; {path.name} has {len(wanted)} valid rows")
        wrong = [name for name in wanted if got[name] != wanted[name]]
        expect(not wrong, f"{files[(index,)]}: {len(wrong)} predictions differ, the first is that of {wrong[:1]}")
        answers |= got
    return answers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1, help="the tools' seed (default: 1)")
    args = parser.parse_args()
    estimators = train_again(*check_parts(args.data, args.out, args.seed), args.seed)
    best, accuracy = check_models(args.data, args.out, estimators)
    answers = check_predictions(args.data, args.out, estimators[best])
    print(f"{len(estimators)} models; the best is Model{list(best)} ({ALGORITHMS[best[0]]}), accuracy {accuracy:.4f} on Test")
    truth = {record["id"]: record["label"] for record in table(args.data / "Truth.csv")}
    right = sum(truth[name] == label for name, label in answers.items())
    print(f"{len(answers)} rows of Unlab classified, {right} of them rightly ({right / len(answers):.4f})")


if __name__ == "__main__":
    main()
