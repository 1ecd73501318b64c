"""Waiting for conditions instead of for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

# Far longer than any condition here takes: reached only if it never becomes true.
WAIT_SECONDS_MAX = 60


def wait_for(what: Callable[[], bool], said: str) -> None:
    """Waits until `what` is true; otherwise raises an error with the message `said`."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not what():
        if time.monotonic() > end:
            raise RuntimeError(said)
        time.sleep(0.01)
