"""Streams by the preload library: they end as in a folder of this host."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import preloaded
import pytest
from preloaded import PREFIX, Pool

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def pool(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of one node."""
    with preloaded.pool(binary, tmp_path_factory.mktemp("streams")) as pool:
        yield pool


def compiled(name: str, folder: Path) -> Path:
    """A program of ours in C."""
    program = folder / name
    subprocess.run(["cc", "-Wall", "-Werror", "-o", str(program), str(HERE / f"preload/{name}.c")], check=True)
    return program


def folders(pool: Pool, tmp_path: Path) -> tuple[Path, Path]:
    """An empty folder of this host, and one of the pool."""
    here = tmp_path / "here"
    here.mkdir()
    there = Path(PREFIX, tmp_path.name)
    pool.ok("mkdir", there)
    return here, there


@pytest.mark.parametrize("what", ["reopened", "standard", "opened", "kept"])
def test_streams_of_files_that_are_not_local_do_as_on_this_host(pool: Pool, tmp_path: Path, what: str) -> None:
    program, other = compiled("streams", tmp_path), tmp_path / "other"
    other.write_text("of this host\n")
    here, there = folders(pool, tmp_path)
    wanted = subprocess.run([str(program), what, str(here), str(other)], capture_output=True, text=True, check=True)
    found = pool.run(program, what, there, other)
    assert found.returncode == 0, found.stderr
    assert found.stderr.splitlines() == wanted.stderr.splitlines()


def test_tools_that_reopen_their_standard_streams_read_and_write_files_that_are_not_local(pool: Pool, tmp_path: Path) -> None:
    _, there = folders(pool, tmp_path)
    said = pool.ok(
        "bash",
        "-euc",
        f"cd {there}; printf 'a\\na\\nb\\n' > s; chmod u+s s; install -m 4755 /dev/null out; uniq s out; cat out; shuf s | sort; uniq < s > out; cat out",
    )
    assert said.split() == ["a", "b", "a", "a", "b", "a", "b"]
