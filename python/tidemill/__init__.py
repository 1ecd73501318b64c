"""Objects and files in the memory of a pool, from Python.

::

    import numpy as np
    import tidemill

    pool = tidemill.start("1GiB")          # in this process; for a pool that `tidemill pool start`
                                           # started: tidemill.connect()
    pool.put("weights", np.arange(8.0))
    pool.get("weights").numpy("f8")        # the pool's memory itself, not a copy

An *object* is bytes under a *key*. It is also the file at that path: every mount of the pool
shows it. docs/PYTHON.md is a tour of ten minutes.
"""

import functools as _functools
import os as _os

from tidemill import _native, errors
from tidemill._async_files import AsyncPoolFile
from tidemill._files import PoolFile
from tidemill._native import View
from tidemill._pool import Pool, connect, start
from tidemill._values import Entry, Location, Node, Stat
from tidemill.errors import (
    Denied,
    Exists,
    Invalid,
    IsAFolder,
    NoSpace,
    NotAFolder,
    NotFound,
    PoolClosed,
    TidemillError,
    Unavailable,
    VersionDiffers,
)

# Calls of other threads that are in progress finish before the process forks. The child makes its
# own connections.
_os.register_at_fork(
    before=_native.before_fork,
    after_in_parent=_functools.partial(_native.after_fork, is_child=False),
    after_in_child=_functools.partial(_native.after_fork, is_child=True),
)

__all__ = [
    "AsyncPoolFile",
    "Denied",
    "Entry",
    "Exists",
    "Invalid",
    "IsAFolder",
    "Location",
    "NoSpace",
    "Node",
    "NotAFolder",
    "NotFound",
    "Pool",
    "PoolClosed",
    "PoolFile",
    "Stat",
    "TidemillError",
    "Unavailable",
    "VersionDiffers",
    "View",
    "connect",
    "errors",
    "start",
]


def __dir__() -> list[str]:
    """The public names only."""
    return sorted(__all__)
