"""Placement in a pool of four nodes: by attributes of directories, and as `locate` reports."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import mount_unsupported_reason
from test_pool import Home, home, mounted  # noqa: F401 - fixtures are found by their names
from waiting import wait_for

PLACEMENT = "user.tidemill.placement"
STRIPE_SIZE = "user.tidemill.stripe_size"
LOCATE = "user.tidemill.locate"
USAGE = "user.tidemill.usage"
MIB = 1 << 20


@pytest.fixture
def pool(home: Home) -> Iterator[Home]:  # noqa: F811 - the fixture
    """A user's environment with a pool of four nodes."""
    home.ok("pool", "start", "--nodes", "4", "--memory", "64MiB")
    yield home
    home.ok("pool", "stop")


@pytest.fixture
def mount(pool: Home) -> Iterator[Path]:
    """A mount of that pool."""
    if reason := mount_unsupported_reason():
        pytest.skip(reason)
    with mounted(pool, "--pool", pool.runtime / "tidemill/pool") as folder:
        yield folder


def directory(mount: Path, name: str, placement: str) -> Path:
    """Makes a directory with this placement."""
    made = mount / name
    made.mkdir()
    os.setxattr(made, PLACEMENT, placement.encode())
    return made


def located(home: Home, key: str) -> dict[str, object]:  # noqa: F811 - a parameter with the fixture's name
    """The output of `locate --json` for a key."""
    return json.loads(home.ok("locate", "--json", key))


def nodes(told: dict[str, object]) -> list[int]:
    """The nodes in the output of `locate`."""
    shares = told["nodes"]
    assert isinstance(shares, list)
    return sorted(share["node"] for share in shares)


def used(home: Home) -> list[int]:  # noqa: F811 - a parameter with the fixture's name
    """Bytes in use on each node."""
    return [int(str(node["used"])) for node in home.status()]


def test_the_sum_of_a_directory_is_what_du_finds_through_mount_and_preload(pool: Home, mount: Path) -> None:
    top = mount / "a"
    for number in range(60):
        folder = top / f"d{number % 9}" / "inner"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_bytes(bytes(number * 1000))
    os.link(top / "d1/inner/f1", top / "d2/again")
    (top / "link").symlink_to("elsewhere")
    files = {found.st_ino: found for path in top.rglob("*") if not path.is_dir() for found in [path.lstat()]}
    sums = {
        "files": len(files),
        "directories": sum(path.is_dir() for path in top.rglob("*")),
        "bytes": sum(found.st_size for found in files.values()),
        "allocated": sum(found.st_blocks * 512 for found in files.values()),
    }
    assert json.loads(os.getxattr(top, USAGE)) == sums
    shown = pool.ok("exec", "--", "python3", "-c", f"import os; print(os.getxattr('/tidemill/a', '{USAGE}').decode())")
    assert json.loads(shown) == sums
    with pytest.raises(OSError, match="Not a directory"):
        os.getxattr(top / "d1/inner/f1", USAGE)


def test_what_is_put_at_a_node_fills_that_node(pool: Home, mount: Path) -> None:
    directory(mount, "d", "at(2)")
    before = used(pool)
    data = os.urandom(20 * MIB)
    (mount / "d/in/it").mkdir(parents=True)
    (mount / "d/in/it/f").write_bytes(data)
    assert (mount / "d/in/it/f").read_bytes() == data
    grown = [after - first for after, first in zip(used(pool), before, strict=True)]
    assert grown[1] >= len(data), grown
    assert all(other < MIB for other in grown[:1] + grown[2:]), grown
    told = located(pool, "d/in/it/f")
    assert told["nodes"] == [{"node": 2, "bytes": len(data)}]
    assert told["exists"] is True
    assert json.loads(os.getxattr(mount / "d/in/it/f", LOCATE))["nodes"] == told["nodes"]
    shutil.rmtree(mount / "d")
    wait_for(lambda: max(after - first for after, first in zip(used(pool), before, strict=True)) < MIB, "all of it comes back")


def test_what_is_put_lies_as_its_folder_or_the_command_says(pool: Home, mount: Path) -> None:
    directory(mount, "d", "at(2)")
    for length in (MIB, 3 * MIB, 9 * MIB):
        data = os.urandom(length)
        for key, flags, node in [("d/f", [], 2), ("d/f", ["--placement", "at(3)"], 3), ("e/f", ["--placement", "at(4)", "--stripe-size", "64KiB"], 4)]:
            pool.ok("put", key, "-", *flags, stdin=data)
            assert located(pool, key)["nodes"] == [{"node": node, "bytes": length}], (length, key)
            assert (mount / key).read_bytes() == data
            # Beside the file are only a few other blocks: at most a quarter more.
            wait_for(lambda size=length, at=node: used(pool)[at - 1] < size * 5 / 4 + MIB, "no room is kept that nobody wants")
    # The pool rejects the first, a node that does not exist; the command line rejects the others.
    assert "no node 9" in pool.fails("put", "g", "-", "--placement", "at(9)", code=1)
    for flags, said in [(["--placement", "near"], "choose striped"), (["--stripe-size", "3"], "power of two")]:
        assert said in pool.fails("put", "g", "-", *flags)
    assert not (mount / "g").exists()


@pytest.mark.parametrize("placement", ["striped", "single", "here", "at(3)", "balanced"])
def test_locate_tells_where_a_file_will_be_and_where_it_is(pool: Home, mount: Path, placement: str) -> None:
    directory(mount, "d", placement)
    expected = {key: located(pool, key) for key in [f"d/f{number}" for number in range(6)]}
    for key, told in expected.items():
        assert (told["exists"], told["placement"]) == (False, placement)
        assert "would be" in pool.ok("locate", key)
        (mount / key).write_bytes(os.urandom(6 * MIB))
        found = located(pool, key)
        assert found["exists"] is True
        assert (found["inode"], sum(share["bytes"] for share in found["nodes"])) == (told["inode"], 6 * MIB)
        if placement == "striped":
            assert nodes(told) == [1, 2, 3, 4]
            assert len(nodes(found)) > 1
        elif placement == "balanced":
            assert len(nodes(found)) == 1
        else:
            assert nodes(found) == nodes(told)
            assert len(nodes(found)) == 1
    if placement == "single":
        assert len({nodes(told)[0] for told in expected.values()}) > 1, "not all at one node"
    if placement == "balanced":
        homes = [nodes(located(pool, key))[0] for key in expected]
        assert len(set(homes)) == 4, homes


def test_locate_says_what_is_known_of_what_is_missing_deeper(pool: Home, mount: Path) -> None:
    directory(mount, "d", "single")
    assert "does not exist" in pool.ok("locate", "x")
    assert located(pool, "d/missing/deep/x")["inode"] is None
    assert nodes(located(pool, "d/missing/deep/x")) == [1, 2, 3, 4]


def test_placements_are_set_read_and_refused_as_attributes(pool: Home, mount: Path) -> None:
    folder = directory(mount, "d", "at(3)")
    os.setxattr(folder, STRIPE_SIZE, b"4MiB")
    (folder / "in").mkdir()
    assert os.getxattr(folder / "in", PLACEMENT) == b"at(3)"
    assert os.getxattr(folder / "in", STRIPE_SIZE) == b"4194304"
    assert (sorted(os.listxattr(folder)), os.listxattr(folder / "in")) == ([PLACEMENT, STRIPE_SIZE], [])
    (folder / "f").write_bytes(os.urandom(2 * MIB))
    refused = [
        (folder, PLACEMENT, b"nowhere", errno.EINVAL),
        (folder, PLACEMENT, b"at(9)", errno.EINVAL),
        (folder, STRIPE_SIZE, b"3", errno.EINVAL),
        (folder, LOCATE, b"x", errno.EPERM),
        (folder / "f", PLACEMENT, b"at(1)", errno.EBUSY),
    ]
    for path, name, value, expected in refused:
        with pytest.raises(OSError) as raised:  # noqa: PT011 - its errno is checked
            os.setxattr(path, name, value)
        assert raised.value.errno == expected, (name, value)
    assert json.loads(os.getxattr(folder, LOCATE))["nodes"] == [{"node": 3, "share": 1.0}]
    os.setxattr(folder / "f", PLACEMENT, b"at(3)")
    # `cp -a` copies bytes and attributes, and the copied directory has the same placement.
    subprocess.run(["cp", "-a", folder, mount / "copy"], check=True)
    assert (mount / "copy/f").read_bytes() == (folder / "f").read_bytes()
    assert os.getxattr(mount / "copy", PLACEMENT) == b"at(3)"
    os.removexattr(folder, PLACEMENT)
    os.removexattr(folder, STRIPE_SIZE)
    assert os.listxattr(folder) == []
    (folder / "g").write_bytes(bytes(8192))
    with pytest.raises(OSError, match="No data available"):
        os.getxattr(folder / "g", PLACEMENT)
    pool.ok("put", "other", "-", stdin=b"small")
    os.setxattr(mount / "other", PLACEMENT, b"at(4)")
    (mount / "other").write_bytes(os.urandom(MIB))
    assert nodes(located(pool, "other")) == [4]


def test_the_old_word_of_single_is_read(pool: Home, mount: Path) -> None:
    folder = directory(mount, "d", "whole")
    assert os.getxattr(folder, PLACEMENT) == b"single"
    assert located(pool, "d/f")["placement"] == "single"
    pool.ok("put", "f", "-", "--placement", "whole", stdin=os.urandom(6 * MIB))
    assert len(nodes(located(pool, "f"))) == 1


def test_a_node_that_is_full_is_full_for_what_lies_there_only(pool: Home, mount: Path) -> None:
    directory(mount, "d", "at(2)")
    directory(mount, "b", "balanced")
    environment = pool.environment
    done = subprocess.run(["dd", "if=/dev/zero", f"of={mount}/d/f", "bs=1M", "count=80"], env=environment, capture_output=True, check=False)
    assert b"No space left" in done.stderr
    (mount / "b/f").write_bytes(os.urandom(8 * MIB))
    assert nodes(located(pool, "b/f")) != [2]
