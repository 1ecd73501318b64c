"""Objects and files in the memory of a pool, from Python.

::

    import numpy as np
    import tidemill

    pool = tidemill.start("1GiB")          # in this process; tidemill.connect() goes to one of `tidemill pool start`
    pool.put("weights", np.arange(8.0))
    pool.get("weights").numpy("f8")        # the pool's memory itself, not a copy

An *object* is bytes under a *key*, and the file at that path: whatever mounts the pool sees it too. docs/PYTHON.md is a tour of ten minutes.
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

# What other threads are in the middle of is done before the process forks; the child makes connections of its own.
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
    """The public names alone."""
    return sorted(__all__)
