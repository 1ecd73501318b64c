"""C45, SVM and NaiveBayes: train a classifier on a labelled file and write it as a model file.

scikit-learn's decision tree with the information gain, which is C4.5's criterion, stands in for
C4.5.
"""

import argparse

import model
import rows


def tree(features, labels, seed):
    """Trains a decision tree by information gain."""
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(criterion="entropy", random_state=seed).fit(features, labels)


def svm(features, labels, seed):
    """Trains a linear support vector machine, one class against the rest."""
    from sklearn.svm import LinearSVC

    # dual=False: this solver draws no random numbers, so `seed` is not needed.
    return LinearSVC(dual=False, tol=1e-3, max_iter=500).fit(features, labels)


def bayes(features, labels, seed):
    """Trains a Gaussian naive Bayes classifier."""
    from sklearn.naive_bayes import GaussianNB

    # Many features are constant within a class. Without this minimum of the variance a single
    # unusual value would decide the class.
    return GaussianNB(var_smoothing=1e-3).fit(features, labels)


ALGORITHMS = {"tree": tree, "svm": svm, "bayes": bayes}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithm", choices=ALGORITHMS)
    parser.add_argument("dataset")
    parser.add_argument("model")
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    header, lines = rows.read(args.dataset)
    features = rows.Format(header).matrix(lines)
    estimator = ALGORITHMS[args.algorithm](features, [rows.label_of(line) for line in lines], args.seed)
    model.save(args.model, args.algorithm, estimator)


if __name__ == "__main__":
    main()
