"""Model files: the numbers of a trained classifier, and the prediction from them with numpy only.

Importing scikit-learn takes 0.7 s and a prediction a few milliseconds, so 80 predictors that
unpickle its objects would spend a minute on imports. These files hold plain arrays: they need only
numpy (0.06 s to import), and loading one runs no code.
"""

import numpy as np


def save(path, algorithm, estimator):
    """Writes a trained scikit-learn estimator."""
    with open(path, "wb") as file:
        np.savez(file, algorithm=algorithm, classes=estimator.classes_, **NUMBERS[algorithm](estimator))


def load(path):
    """Loads the model of a file, for `predict`."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def predict(model, features):
    """Predicts the label of each row."""
    return model["classes"][PLACES[str(model["algorithm"])](model, features)]


def tree_numbers(estimator):
    tree = estimator.tree_
    return {
        "left": tree.children_left,
        "right": tree.children_right,
        "feature": tree.feature,
        "threshold": tree.threshold,
        "answer": tree.value[:, 0, :].argmax(axis=1),
    }


def tree_places(model, features):
    """Moves all rows down the tree together; a leaf is a node without a left child (-1)."""
    node = np.zeros(len(features), dtype=np.intp)
    walking = np.flatnonzero(model["left"][node] >= 0)
    while walking.size:
        at = node[walking]
        goes_left = features[walking, model["feature"][at]] <= model["threshold"][at]
        node[walking] = np.where(goes_left, model["left"][at], model["right"][at])
        walking = walking[model["left"][node[walking]] >= 0]
    return model["answer"][node]


def svm_numbers(estimator):
    return {"weights": estimator.coef_, "offset": estimator.intercept_}


def svm_places(model, features):
    distances = features @ model["weights"].T + model["offset"]
    # Two classes have one plane between them; more classes have one plane each.
    return (distances[:, 0] > 0).astype(int) if distances.shape[1] == 1 else distances.argmax(axis=1)


def bayes_numbers(estimator):
    return {"mean": estimator.theta_, "variance": estimator.var_, "prior": estimator.class_prior_}


def bayes_places(model, features):
    scores = [
        np.log(prior) - 0.5 * (np.log(2 * np.pi * variance).sum() + ((features - mean) ** 2 / variance).sum(axis=1))
        for mean, variance, prior in zip(model["mean"], model["variance"], model["prior"], strict=True)
    ]
    return np.array(scores).argmax(axis=0)


NUMBERS = {"tree": tree_numbers, "svm": svm_numbers, "bayes": bayes_numbers}
PLACES = {"tree": tree_places, "svm": svm_places, "bayes": bayes_places}
