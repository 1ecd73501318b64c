"""C45, SVM and NaiveBayes: train a classifier on a labelled file by scikit-learn and write it as a model file.

C4.5 is stood for by scikit-learn's decision tree with C4.5's measure, the gain of information.
"""

import argparse

import model
import rows


def tree(features, labels, seed):
    """A decision tree by information gain."""
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(criterion="entropy", random_state=seed).fit(features, labels)


def svm(features, labels, seed):
    """A linear support vector machine, a class against the rest."""
    from sklearn.svm import LinearSVC

    # dual=False: the solver that draws no random numbers, so `seed` is not needed.
    return LinearSVC(dual=False, tol=1e-3, max_iter=500).fit(features, labels)


def bayes(features, labels, seed):
    """Gaussian naive Bayes."""
    from sklearn.naive_bayes import GaussianNB

    # Many features are constant within a class; without this floor under the variance one odd value decides everything.
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
