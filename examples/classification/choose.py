"""ModelSelector: copies the model that classifies most rows of a labelled file correctly.

Of equally good models it takes the first.
"""

import argparse
import shutil

import model
import rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("dataset")
    parser.add_argument("best")
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    header, lines = rows.read(args.dataset)
    features = rows.Format(header).matrix(lines)
    labels = [rows.label_of(line) for line in lines]
    right = [int((model.predict(model.load(path), features) == labels).sum()) for path in args.models]
    best = right.index(max(right))
    for path, count in zip(args.models, right, strict=True):
        print(f"{path}: {count} of {len(labels)}")
    print(f"best: {args.models[best]}, accuracy {right[best] / len(labels):.4f}")
    shutil.copyfile(args.models[best], args.best)


if __name__ == "__main__":
    main()
