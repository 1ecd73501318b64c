"""The seven patterns, each compared with its expected result."""

from __future__ import annotations

import pytest
from example_runs import EXAMPLES, Run, Tidemill, tree

PATTERNS = EXAMPLES / "patterns"
TASKS = {
    "single-task": {"Sort": 1},
    "pipeline": {"Words": 1, "Sort": 1, "Count": 1},
    "partitioning": {"Split": 1, "Sort": 3},
    "aggregation": {"Sort": 3, "Merge": 1},
    "parameter-sweep": {"Wrap": 3},
    "input-sweep": {"CountWords": 3},
    "tool-sweep": {"CountLines": 1, "CountWords": 1, "CountBytes": 1},
}


def run(tidemill: Tidemill, name: str, *arguments: str) -> Run:
    """Runs a pattern."""
    return tidemill.run(PATTERNS / f"{name}.js", PATTERNS / "data", *arguments)


@pytest.mark.parametrize("name", TASKS)
def test_a_pattern_gives_its_expected_files_and_no_others(tidemill: Tidemill, name: str) -> None:
    expected = tree(PATTERNS / "expected" / name)
    assert expected, "an empty expectation would prove nothing"
    done = run(tidemill, name)
    assert done.files() == expected
    assert done.tools() == TASKS[name]


def test_no_pattern_goes_without_a_test() -> None:
    assert {path.stem for path in PATTERNS.glob("*.js")} == set(TASKS)


def test_set_changes_the_number_of_sweeps(tidemill: Tidemill) -> None:
    files = run(tidemill, "parameter-sweep", "--set", "n=5").files()
    three = tree(PATTERNS / "expected/parameter-sweep")
    assert len(files) == 5
    assert three.items() <= files.items()
    assert files["Wrapped/Wrapped_4.txt"] == (PATTERNS / "data/Poem.txt").read_bytes(), "no line is wider than 55"


def test_keep_brings_the_temporaries_too(tidemill: Tidemill) -> None:
    files = run(tidemill, "pipeline", "--keep").files()
    assert set(files) == {"Words.txt", "InOrder.txt", "WordCounts.txt"}
    assert files["InOrder.txt"].splitlines() == sorted(files["Words.txt"].splitlines())
