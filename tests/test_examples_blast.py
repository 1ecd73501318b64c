"""The BLAST workflow: the hits of the parts are those of one search."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from example_runs import EXAMPLES, Run, Tidemill, check, need_program, python, real_data

HERE = EXAMPLES / "blast"


@pytest.fixture(scope="module")
def reads() -> Path:
    """The sequences; skips the tests if they or BLAST are missing."""
    need_program("blastn", "ncbi-blast+")
    return real_data("blast")


@pytest.fixture(scope="module")
def done(binary: Path, storage: str, reads: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the workflow, once for each storage."""
    return Tidemill(binary, tmp_path_factory.mktemp("blast"), storage).run(HERE / "workflow.js", reads)


def test_searching_in_parts_gives_the_hits_of_one_search(done: Run, reads: Path) -> None:
    assert done.tools() == {"makeblastdb": 1, "SplitQueries": 1, "blastn": 8, "MergeHits": 1}
    assert "the same as in one piece" in check(HERE, reads, done.out)


def test_only_the_merged_hits_are_exported(done: Run) -> None:
    assert set(done.files()) == {"Hits.tsv"}


@pytest.mark.parametrize("storage", ["mount"], scope="module")
def test_the_check_notices_a_missing_hit(done: Run, reads: Path, tmp_path: Path) -> None:
    out = shutil.copytree(done.out, tmp_path / "out")
    hits = next(out.rglob("Hits.tsv"))
    hits.write_text("".join(hits.read_text().splitlines(keepends=True)[1:]))
    assert "1 unlike those of one search" in check(HERE, reads, out, exit_code=1)


def test_splitting_loses_and_reorders_no_sequence(reads: Path, tmp_path: Path) -> None:
    parts = [tmp_path / f"part{i}.fa" for i in range(7)]
    python(HERE / "split.py", reads / "corn.fa", *parts)
    together = "".join(part.read_text() for part in parts)
    assert together.split() == (reads / "corn.fa").read_text().split()
    counts = [part.read_text().count(">") for part in parts]
    assert max(counts) - min(counts) <= 1
