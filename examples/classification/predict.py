"""Predictor: predicts the class of every row of a filtered file; writes `id,label` for each id."""

import argparse

import model
import rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("model")
    parser.add_argument("predictions")
    args = parser.parse_args()
    header, lines = rows.read(args.dataset)
    labels = model.predict(model.load(args.model), rows.Format(header).matrix(lines)) if lines else []
    answers = [f"{name},{label}\n" for line, label in zip(lines, labels, strict=True) for name in line.partition(",")[0].split()]
    rows.write(args.predictions, "id,label\n", answers)


if __name__ == "__main__":
    main()
