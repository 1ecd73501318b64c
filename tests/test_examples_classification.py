"""The classification workflow: check.py recomputes everything, and finds planted errors."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from example_runs import EXAMPLES, Run, Tidemill, check, python, real_data

HERE = EXAMPLES / "classification"
TEMPORARIES = [word for name in ("TrainPart", "Model", "BestModel") for word in ("--export", name)]


def run(tidemill: Tidemill, data: Path, n: int, m: int) -> Run:
    """Runs the workflow and exports the temporaries that check.py reads."""
    sizes = ("--set", f"n={n}", "--set", f"m={m}")
    return tidemill.run(HERE / "workflow.js", data, *sizes, *TEMPORARIES)


def tasks(n: int, m: int) -> dict[str, int]:
    """The number of calls of each tool: 3 + 3n + 2m tasks."""
    once = dict.fromkeys(("Shuffler", "Partitioner", "ModelSelector"), 1)
    return once | dict.fromkeys(("C45", "SVM", "NaiveBayes"), n) | dict.fromkeys(("Filter", "Predictor"), m)


@pytest.fixture(scope="module")
def sizes(storage: str) -> tuple[int, int]:
    """The sizes n and m: those of the listing (223 tasks) for the mount, smaller ones otherwise.

    Most of the time goes into the start of the Python interpreters.
    """
    return (20, 80) if storage == "mount" else (3, 8)


@pytest.fixture(scope="module")
def digits(sizes: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The input of the demo, with one unlabelled part for each prediction."""
    folder = tmp_path_factory.mktemp("digits")
    python(HERE / "prepare.py", folder, "--parts-unlabelled", sizes[1])
    return folder


@pytest.fixture(scope="module")
def digits_run(binary: Path, storage: str, sizes: tuple[int, int], digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the listing on the digits, once for each storage."""
    return run(Tidemill(binary, tmp_path_factory.mktemp("run"), storage), digits, *sizes)


def test_the_listing_selects_the_best_of_all_models_and_makes_only_right_predictions(sizes: tuple[int, int], digits: Path, digits_run: Run) -> None:
    assert digits_run.tools() == tasks(*sizes)
    assert f"{3 * sizes[0]} models" in check(HERE, digits, digits_run.out)


def test_the_check_notices_another_model_in_the_best_ones_place(digits: Path, digits_run: Run, tmp_path: Path) -> None:
    out = shutil.copytree(digits_run.out, tmp_path / "out")
    best = next(out.rglob("BestModel.*"))
    other = next(path for path in out.rglob("Model_*") if path.read_bytes() != best.read_bytes())
    shutil.copyfile(other, best)
    assert "BestModel is not Model" in check(HERE, digits, out, exit_code=1)


def test_the_check_notices_one_wrong_prediction(digits: Path, digits_run: Run, tmp_path: Path) -> None:
    out = shutil.copytree(digits_run.out, tmp_path / "out")
    path = sorted(out.rglob("ClassDataset_*.*"))[4]
    *lines, last = path.read_text().splitlines(keepends=True)
    name, _, label = last.strip().partition(",")
    path.write_text("".join(lines) + f"{name},{(int(label) + 1) % 10}\n")
    assert "1 predictions differ" in check(HERE, digits, out, exit_code=1)


def test_the_check_notices_a_missing_prediction(digits: Path, digits_run: Run, tmp_path: Path) -> None:
    out = shutil.copytree(digits_run.out, tmp_path / "out")
    path = sorted(out.rglob("ClassDataset_*.*"))[7]
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert "valid rows" in check(HERE, digits, out, exit_code=1)


@pytest.mark.parametrize("storage", ["mount"])
def test_a_sample_of_kdd_cup_99_is_classified_rightly(tidemill: Tidemill, tmp_path: Path) -> None:
    data = tmp_path / "data"
    python(HERE / "prepare.py", data, "--kdd", real_data("kddcup99"), "--rows", 20_000, "--parts-unlabelled", 8)
    done = run(tidemill, data, n=5, m=8)
    assert done.tools() == tasks(n=5, m=8)
    assert "15 models" in check(HERE, data, done.out)


@pytest.mark.full
def test_all_of_kdd_cup_99_is_classified_rightly(tidemill: Tidemill, tmp_path: Path) -> None:
    data = tmp_path / "data"
    python(HERE / "prepare.py", data, "--kdd", real_data("kddcup99"))
    done = run(tidemill, data, n=20, m=80)
    assert done.tools() == tasks(n=20, m=80)
    assert "60 models" in check(HERE, data, done.out)


def test_preparing_twice_gives_the_same_files_and_leaves_no_old_parts(sizes: tuple[int, int], digits: Path, tmp_path: Path) -> None:
    python(HERE / "prepare.py", tmp_path, "--parts-unlabelled", 100)
    python(HERE / "prepare.py", tmp_path, "--parts-unlabelled", sizes[1])
    files = {path.relative_to(digits): path.read_bytes() for path in digits.rglob("*.csv")}
    assert {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.csv")} == files


def test_every_class_is_in_every_part_or_the_partitioner_refuses(tmp_path: Path) -> None:
    train = tmp_path / "train.csv"
    train.write_text("id,x,label\n" + "".join(f"r{i},{i},{'rare' if i < 3 else 'common'}\n" for i in range(20)))
    parts = [tmp_path / f"part{i}.csv" for i in range(4)]
    done = python(HERE / "partition.py", train, *parts, exit_code=1)
    assert "class 'rare' has 3 rows, too few for 4 parts" in done.stderr
    python(HERE / "partition.py", train, *parts[:3])
    for part in parts[:3]:
        labels = [record["label"] for record in csv.DictReader(part.open())]
        assert labels.count("rare") == 1
        assert 6 <= len(labels) <= 7


def test_repeated_rows_are_classified_once_and_every_id_is_answered(digits_run: Run, digits: Path, tmp_path: Path) -> None:
    head, first, second, *_ = min((digits / "Unlab").iterdir()).read_text().splitlines()
    again = "again," + first.partition(",")[2]
    broken = "broken," + second.partition(",")[2].replace(second.split(",")[1], "nan", 1)
    rows, filtered, answers = (tmp_path / name for name in ("rows.csv", "filtered.csv", "answers.csv"))
    rows.write_text(f"{head}\n{first}\n{second}\n{again}\n{broken}\nshort,1\n")
    said = python(HERE / "clean.py", rows, filtered).stdout
    assert said == "5 rows, 2 invalid, 2 different\n"
    assert len(filtered.read_text().splitlines()) == 3
    python(HERE / "predict.py", filtered, next(digits_run.out.rglob("BestModel.*")), answers)
    labels = {record["id"]: record["label"] for record in csv.DictReader(answers.open())}
    assert set(labels) == {first.partition(",")[0], second.partition(",")[0], "again"}
    assert labels["again"] == labels[first.partition(",")[0]]
