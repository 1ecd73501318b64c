"""A pool: objects by key, files by path, and where their bytes are."""

from __future__ import annotations

import builtins
import functools
import itertools
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, overload

from tidemill import _arrays, _asyncio_loop, _files, _native
from tidemill._async_files import AsyncPoolFile
from tidemill._values import Entry, Location, Node, Stat
from tidemill.errors import Invalid, TidemillError

if TYPE_CHECKING:
    import io
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from tidemill._native import View
    from tidemill.fsspec import TidemillFileSystem

Path: TypeAlias = str | bytes


class HasArrayInterface(Protocol):
    """A NumPy array, for type checking before Python 3.12, where an array is no `Buffer`."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


T = TypeVar("T")
# Data: any object with the buffer protocol.
Data: TypeAlias = "Buffer | HasArrayInterface"

# Numbers of the pools of this process. They tell pools apart in `repr` and in dask's tokens.
_NUMBERS = itertools.count(1)
# Time in seconds that a put into a full pool waits for space: the same as in `tidemill run`.
SPACE_WAIT = 10.0


def connect(pool: str | os.PathLike[str] | None = None) -> Pool:
    """Connects to a pool that `tidemill pool start` started.

    `pool` is the path of its pool file. The default is ``TIDEMILL_POOL``, otherwise the user's
    default pool file. Raises `NotFound` if the file does not exist, `Denied` if it cannot be read,
    and `Unavailable` if no node of the pool answers or accepts the connection.
    """
    return Pool(_native.connect(os.fspath(pool or os.environ.get("TIDEMILL_POOL") or _native.usual_pool())))


def start(memory: str | int = "1GiB", *, space_wait: float | None = None) -> Pool:
    """Starts a pool in this process; it ends with `Pool.close`, or with the process.

    `memory` is the capacity in bytes, or text such as ``"512MiB"``. The memory is allocated as it
    is needed. `space_wait` is the time in seconds that a put into the full pool waits until
    something is deleted. The default is ``TIDEMILL_SPACE_WAIT``, otherwise 10. Raises `Invalid` if
    the host does not have that much memory.
    """
    if space_wait is None:
        text = os.environ.get("TIDEMILL_SPACE_WAIT")
        try:
            space_wait = SPACE_WAIT if text is None else float(text)
        except ValueError:
            raise Invalid(22, f"TIDEMILL_SPACE_WAIT={text}: not a number of seconds") from None
    return Pool(_native.start(f"{memory}B" if isinstance(memory, int) else memory, space_wait))


def _put_items(items: Mapping[str, Data] | Mapping[bytes, Data] | Iterable[tuple[Path, Data]]) -> list[tuple[Path, Data, _arrays.Attributes]]:
    return [(key, *_arrays.describe(data)) for key, data in (items.items() if isinstance(items, Mapping) else items)]


def _results_or_raise(outcomes: list[T | TidemillError]) -> list[T]:
    """Returns the results, or raises the first exception among them."""
    results: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, TidemillError):
            raise outcome
        results.append(outcome)
    return results


def _check_deleted(outcomes: list[TidemillError | None], missing_ok: bool) -> None:
    """Raises the first exception, except for missing objects if `missing_ok`."""
    for outcome in outcomes:
        if outcome is not None and not (missing_ok and isinstance(outcome, FileNotFoundError)):
            raise outcome


class Pool:
    """A pool, returned by `connect` and `start`. A ``with`` block or `close` closes it.

    Keys and paths are text with ``/`` between names, relative to the pool's root. Slashes at their
    ends are ignored. Names that are not UTF-8 are bytes, or text with surrogates as from
    ``os.fsdecode``. Data is any object with the buffer protocol (bytes, bytearray, memoryview,
    NumPy arrays, Arrow buffers) whose memory is contiguous. A NumPy array may have any memory
    layout; it is put with its dtype and shape.

    Several threads may use one pool. The methods whose names begin with ``a`` are the same for
    ``asyncio``: they do not block the loop. A cancelled call may or may not have taken effect. A
    forked child process continues with its own connection, but not for a pool that was started in
    this process.

    After `close` all methods raise `PoolClosed`; views and arrays stay valid.
    """

    def __init__(self, native: _native.Pool) -> None:
        self._native = native
        self._number = next(_NUMBERS)

    # Objects.

    def put(
        self,
        key: Path,
        data: Data,
        *,
        if_absent: bool = False,
        if_version: str | None = None,
        placement: str | None = None,
        stripe_size: str | None = None,
    ) -> str:
        """Puts an object atomically, replacing what has the key, and returns its version.

        Missing directories are created. `data` is copied once, into the pool; it may be changed
        after the call. A NumPy array or scalar is put in C order with its dtype and shape, for
        `get_array`. An array with Python objects (also in fields) or a mask raises `TypeError`.

        With `if_absent` the put succeeds only if nothing has the key; otherwise it raises `Exists`.
        With `if_version` it succeeds only if the object is in this version; otherwise it raises
        `VersionDiffers`. `placement` (``striped``, ``single``, ``here``, ``at(3)``, ``balanced``)
        and `stripe_size` (for example ``"4MiB"``) say where the bytes are placed. The default is
        that of the directory. Raises `NoSpace` if the pool is full.
        """
        data, attributes = _arrays.describe(data)
        return self._native.put(key, data, if_absent, if_version, placement, stripe_size, attributes)

    def get(self, key: Path, start: int = 0, stop: int | None = None) -> View:
        """Returns the bytes of an object as a view: all, or from byte `start` up to `stop`.

        There are fewer bytes if `stop` is past the end of the object, and none if `start` is. If
        the bytes are on this host, the view is the pool's memory itself: the pieces of a long
        object (1 MiB each, unless it was put with another stripe size) are mapped side by side.
        Bytes in several pieces are copied into one if they are less than 2 MiB or come from another
        host; `View.copied` says so. For the end of an object, slice its view. Raises `NotFound`,
        `IsAFolder` if the key is a directory, and `Invalid` if `start` or `stop` is negative.
        """
        return self._native.get(key, start, stop)

    def get_array(self, key: Path) -> NDArray[Any]:
        """Returns an object that was put as a NumPy array. The array is read-only.

        Its dtype, shape and bytes come from the same put. The array shows the pool's memory itself,
        as the view of `get` does. Raises `NotFound`, `IsAFolder`, and `Invalid` if the object was
        put as plain bytes, or if its length was changed through a file since.
        """
        return _arrays.array_of(key, *self._native.get_described(key))

    def delete(self, key: Path, *, if_version: str | None = None, missing_ok: bool = False) -> None:
        """Deletes an object; its directory stays.

        With `if_version` only this version is deleted; otherwise `VersionDiffers` is raised. Raises
        `NotFound` if the object does not exist, unless `missing_ok`, and `IsAFolder` if the key is
        a directory.
        """
        try:
            self._native.delete(key, if_version)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def list(self, prefix: Path = "", *, after: Path = "", limit: int | None = None) -> builtins.list[str]:
        """Returns the keys of objects that begin with `prefix`, in byte order.

        With `after` only the keys after that one; with `limit` at most that many.
        """
        return self._native.list(prefix, after, False, limit)[0]

    def folder(self, path: Path = "") -> builtins.list[Entry]:
        """Lists a directory by name. Raises `NotFound`, and `NotAFolder` if it is a file."""
        return [Entry(name, Stat._from_raw(raw)) for name, raw in self._native.entries(path)]

    def stat(self, path: Path) -> Stat:
        """Returns the attributes of an object, file or directory, following symbolic links.

        Raises `NotFound`.
        """
        return Stat._from_raw(self._native.stat(path))

    def exists(self, path: Path) -> bool:
        """True if an object, file or directory has this path."""
        try:
            self._native.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def locate(self, path: Path) -> Location:
        """Returns which nodes have the bytes of a file.

        For a path that does not exist, the nodes that would have the bytes if it were put now.
        """
        return Location._from_raw(self._native.locate(path))

    # Batches.

    @overload
    def get_many(self, keys: Iterable[Path], *, errors: Literal["raise"] = "raise") -> builtins.list[View]: ...
    @overload
    def get_many(self, keys: Iterable[Path], *, errors: Literal["return"]) -> builtins.list[View | TidemillError]: ...
    def get_many(self, keys: Iterable[Path], *, errors: str = "raise") -> builtins.list[View] | builtins.list[View | TidemillError]:
        """Returns the bytes of many objects, in the order of the keys, as `get` does.

        All requests run concurrently. The first exception is raised; with ``errors="return"`` each
        exception is in the list instead, in the place of its result.
        """
        got = self._native.get_many([(key, 0, None) for key in keys])
        return got if errors == "return" else _results_or_raise(got)

    @overload
    def put_many(
        self,
        items: Mapping[str, Data] | Mapping[bytes, Data] | Iterable[tuple[Path, Data]],
        *,
        errors: Literal["raise"] = "raise",
        placement: str | None = None,
        stripe_size: str | None = None,
    ) -> builtins.list[str]: ...
    @overload
    def put_many(
        self,
        items: Mapping[str, Data] | Mapping[bytes, Data] | Iterable[tuple[Path, Data]],
        *,
        errors: Literal["return"],
        placement: str | None = None,
        stripe_size: str | None = None,
    ) -> builtins.list[str | TidemillError]: ...
    def put_many(
        self,
        items: Mapping[str, Data] | Mapping[bytes, Data] | Iterable[tuple[Path, Data]],
        *,
        errors: str = "raise",
        placement: str | None = None,
        stripe_size: str | None = None,
    ) -> builtins.list[str] | builtins.list[str | TidemillError]:
        """Puts many objects, as `put` does, and returns their versions in the same order.

        Each put succeeds or fails by itself. After all are done, the first exception is raised;
        with ``errors="return"`` each exception is in the list instead, in the place of its result.
        """
        put = self._native.put_many(_put_items(items), placement, stripe_size)
        return put if errors == "return" else _results_or_raise(put)

    def delete_many(self, keys: Iterable[Path], *, missing_ok: bool = False) -> None:
        """Deletes many objects, as `delete` does. Raises the first exception after all are done."""
        _check_deleted(self._native.delete_many(list(keys)), missing_ok)

    # Files and directories.

    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.IOBase:
        """Opens a file of the pool as the built-in ``open`` opens one of the host.

        Modes, buffering and text are the same. Missing directories of a new file are created. Text
        is UTF-8 by default; the buffer has 1 MiB. With ``buffering=0`` the result is a `PoolFile`,
        which can return views. Written bytes are visible to others once they are flushed; to
        replace an object atomically, `put` it. Raises `NotFound`, `Exists` (mode x), `IsAFolder`.
        """
        flags, is_text = _files.flags_of(mode)
        name = path if isinstance(path, str) else os.fsdecode(path)
        if not is_text and (encoding or errors or newline):
            raise ValueError("a file of bytes has no encoding, errors or newline")
        raw = _files.PoolFile(self._native.open(path, flags), name, mode)
        return _files.wrap(raw, buffering, (encoding, errors, newline) if is_text else None)

    def make_folder(self, path: Path, *, exist_ok: bool = True) -> None:
        """Creates a directory, and the missing directories above it.

        Raises `Exists` if it exists and `exist_ok` is false, and `NotAFolder` below a file.
        """
        self._native.make_folder(path, not exist_ok)

    def remove_folder(self, path: Path) -> None:
        """Removes an empty directory.

        Raises `NotFound`, `NotAFolder`, and a `TidemillError` (ENOTEMPTY) if it is not empty.
        """
        self._native.remove_folder(path)

    def delete_tree(self, path: Path) -> None:
        """Removes a file, or a directory with everything in it. Raises `NotFound`."""
        self._native.delete_tree(path)

    def rename(self, path: Path, to: Path) -> None:
        """Renames a file or directory atomically; an existing file at `to` is replaced.

        Missing directories are created.
        """
        self._native.rename(path, to)

    def copy(self, path: Path, to: Path) -> str:
        """Copies a file to another key atomically, and returns the version of the copy.

        The copy of an array has its dtype and shape. Raises `NotFound`, `IsAFolder`, `NoSpace`.
        """
        return self._native.copy(path, to)

    # The pool itself.

    @property
    def file(self) -> str | None:
        """The path of the pool file; None for a pool in this process."""
        path = self._native.file
        return None if path is None else os.fspath(path)

    @property
    def closed(self) -> bool:
        """True if the pool was closed, or started in the process that this one was forked from."""
        return self._native.closed

    @property
    def fs(self) -> TidemillFileSystem:
        """The pool as a file system of fsspec, which must be installed."""
        from tidemill.fsspec import TidemillFileSystem  # noqa: PLC0415 - fsspec is not needed for anything else

        return TidemillFileSystem(self, skip_instance_cache=True)

    def nodes(self) -> builtins.list[Node]:
        """Returns the nodes of the pool, and how full they are now.

        A node that does not answer within some seconds has the reason in `Node.silent`.
        """
        known = {node: (host, slots) for node, host, _, slots in self._native.nodes()}
        return [Node._from_raw(raw, *known.get(raw[0], ("this process", 0))) for raw in self._native.usage()]

    def close(self) -> None:
        """Ends the session, and with it a pool that was started in this process.

        A second call does nothing. Views and arrays over them stay valid.
        """
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __contains__(self, path: Path) -> bool:
        return self.exists(path)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Pickles the path of the pool file: unpickling connects to the pool."""
        if self.file is None:
            raise TypeError("a pool of this process cannot go to another; start one with `tidemill pool start` and connect to it")
        return connect, (self.file,)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """A token that identifies the pool for dask."""
        return ("tidemill.Pool", self.file or (os.getpid(), self._number))

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<tidemill.Pool {self.file or f'in this process, the {self._number}.'}, {state}>"

    def _repr_html_(self) -> str:
        from tidemill import _html  # noqa: PLC0415 - only notebooks need it

        return _html.pool_html(self)

    # The same for asyncio.

    async def aput(
        self,
        key: Path,
        data: Data,
        *,
        if_absent: bool = False,
        if_version: str | None = None,
        placement: str | None = None,
        stripe_size: str | None = None,
    ) -> str:
        """As `put`. `data` must not change until the call is done."""
        data, attributes = _arrays.describe(data)
        return await _call(self._native.put, key, data, if_absent, if_version, placement, stripe_size, attributes)

    async def aget(self, key: Path, start: int = 0, stop: int | None = None) -> View:
        """As `get`."""
        return await _call(self._native.get, key, start, stop)

    async def aget_array(self, key: Path) -> NDArray[Any]:
        """As `get_array`."""
        return _arrays.array_of(key, *await _call(self._native.get_described, key))

    async def adelete(self, key: Path, *, if_version: str | None = None, missing_ok: bool = False) -> None:
        """As `delete`."""
        try:
            await _call(self._native.delete, key, if_version)
        except FileNotFoundError:
            if not missing_ok:
                raise

    async def alist(self, prefix: Path = "", *, after: Path = "", limit: int | None = None) -> builtins.list[str]:
        """As `list`."""
        return (await _call(self._native.list, prefix, after, False, limit))[0]

    async def afolder(self, path: Path = "") -> builtins.list[Entry]:
        """As `folder`."""
        return [Entry(name, Stat._from_raw(raw)) for name, raw in await _call(self._native.entries, path)]

    async def astat(self, path: Path) -> Stat:
        """As `stat`."""
        return Stat._from_raw(await _call(self._native.stat, path))

    async def alocate(self, path: Path) -> Location:
        """As `locate`."""
        return Location._from_raw(await _call(self._native.locate, path))

    @overload
    async def aget_many(self, keys: Iterable[Path], *, errors: Literal["raise"] = "raise") -> builtins.list[View]: ...
    @overload
    async def aget_many(self, keys: Iterable[Path], *, errors: Literal["return"]) -> builtins.list[View | TidemillError]: ...
    async def aget_many(self, keys: Iterable[Path], *, errors: str = "raise") -> builtins.list[View] | builtins.list[View | TidemillError]:
        """As `get_many`."""
        got = await _call(self._native.get_many, [(key, 0, None) for key in keys])
        return got if errors == "return" else _results_or_raise(got)

    @overload
    async def aput_many(
        self,
        items: Mapping[str, Data] | Mapping[bytes, Data] | Iterable[tuple[Path, Data]],
        *,
        errors: Literal["raise"] = "raise",
        placement: str | None = None,
        stripe_size: str | None = None,
    ) -> builtins.list[str]: ...
    @overload
    async def aput_many(
        self,
        items: Mapping[str, Data] | Mapping[bytes, Data] | Iterable[tuple[Path, Data]],
        *,
        errors: Literal["return"],
        placement: str | None = None,
        stripe_size: str | None = None,
    ) -> builtins.list[str | TidemillError]: ...
    async def aput_many(
        self,
        items: Mapping[str, Data] | Mapping[bytes, Data] | Iterable[tuple[Path, Data]],
        *,
        errors: str = "raise",
        placement: str | None = None,
        stripe_size: str | None = None,
    ) -> builtins.list[str] | builtins.list[str | TidemillError]:
        """As `put_many`. The data must not change until the call is done."""
        put = await _call(self._native.put_many, _put_items(items), placement, stripe_size)
        return put if errors == "return" else _results_or_raise(put)

    async def adelete_many(self, keys: Iterable[Path], *, missing_ok: bool = False) -> None:
        """As `delete_many`."""
        _check_deleted(await _call(self._native.delete_many, list(keys)), missing_ok)

    async def aopen(self, path: Path, mode: str = "rb") -> AsyncPoolFile:
        """Opens a binary file without a buffer, as `open` with ``buffering=0`` does.

        Only binary modes are valid. Its reads return views; ``async with`` closes it.
        """
        flags, is_text = _files.flags_of(mode)
        if is_text:
            raise ValueError("a file for asyncio is of bytes: add b to its mode")
        name = path if isinstance(path, str) else os.fsdecode(path)
        return await AsyncPoolFile.opened(await _call(self._native.open, path, flags), name, mode)


def _call(method: Callable[..., T], *arguments: object) -> Awaitable[T]:
    """Starts a method of the native module on the running loop."""
    return _asyncio_loop.run(functools.partial(method, *arguments))
