#!/usr/bin/env python3
"""Runs edge cases, each in its own empty directory, and prints their outcomes as JSON.

Usage: run.py TOPIC DIR [USER]; with USER the cases run as that user. An outcome that begins with
"broken" is a fault of the case itself.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

from calls import EDGES, outcome

SECONDS_MAX = 20


def run(name: str, place: Path) -> object:
    """The outcome of one case, with a time limit."""
    place.mkdir()
    os.chdir(place)
    os.umask(0o022)
    signal.alarm(SECONDS_MAX)
    try:
        return outcome(EDGES[name], place)
    except Exception:  # noqa: BLE001 - the case is broken; the others can still run
        return "broken: " + traceback.format_exc()
    finally:
        signal.alarm(0)
        os.chdir(place.parent)
        shutil.rmtree(place, ignore_errors=True)


def slow(_number: int, _frame: object) -> None:
    """Ends a case that hangs, with the stack of the call that it waits in."""
    raise TimeoutError(f"waited for {SECONDS_MAX} s")


def main() -> None:
    """Runs the cases of a topic."""
    topic, folder = sys.argv[1], Path(sys.argv[2])
    importlib.import_module(topic)
    if len(sys.argv) > 3:
        os.setgroups([])
        os.setgid(int(sys.argv[3]))
        os.setuid(int(sys.argv[3]))
    signal.signal(signal.SIGALRM, slow)
    # A call beyond a size limit should return an error number instead of raising a signal.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    print(json.dumps({name: run(name, folder / f"case{number}") for number, name in enumerate(EDGES)}))


if __name__ == "__main__":
    main()
