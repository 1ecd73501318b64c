"""Runs docs/PYTHON.md as a doctest."""

from __future__ import annotations

import doctest
from typing import TYPE_CHECKING

import pytest
from example_runs import ROOT

if TYPE_CHECKING:
    from python.conftest import Nodes


def test_the_tour_shows_what_it_says(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_POOL", str(nodes.file))
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.REPORT_NDIFF
    failed, tried = doctest.testfile(str(ROOT / "docs/PYTHON.md"), module_relative=False, optionflags=flags, encoding="utf-8")
    assert tried >= 40
    assert not failed
