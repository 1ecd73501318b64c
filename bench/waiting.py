"""Waiting for things, not for time."""

from __future__ import annotations

import time
from collections.abc import Callable

# Far beyond what anything here takes: reached only where it never comes.
WAIT_SECONDS_MAX = 60


def wait_for(what: Callable[[], bool], said: str) -> None:
    """Waits until it is so; what is said is the error if it does not come to that."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not what():
        if time.monotonic() > end:
            raise RuntimeError(said)
        time.sleep(0.01)
