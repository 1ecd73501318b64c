"""A pool: objects by key, files by path, and where they are."""

from __future__ import annotations

import builtins
import functools
import itertools
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, overload

from tidemill import _arrays, _bridge, _files, _native
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
    """A NumPy array, to type checkers for interpreters before 3.12: these do not know that it has a buffer."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


T = TypeVar("T")
# Bytes of any object with the buffer protocol.
Data: TypeAlias = "Buffer | HasArrayInterface"

# Tells pools of one process apart, for who knows them by what they are shown as.
_NUMBERS = itertools.count(1)
# How long who puts into a full pool waits for space, seconds: as `tidemill run` does.
SPACE_WAIT = 10.0


def connect(pool: str | os.PathLike[str] | None = None) -> Pool:
    """Connects to a pool that `tidemill pool start` started.

    `pool` is its pool file; without one that of ``TIDEMILL_POOL``, or else the user's usual one. Raises `NotFound` where there is no such file,
    `Denied` where it may not be read, `Unavailable` where no node of the pool answers or lets us in.
    """
    return Pool(_native.connect(os.fspath(pool or os.environ.get("TIDEMILL_POOL") or _native.usual_pool())))


def start(memory: str | int = "1GiB", *, space_wait: float | None = None) -> Pool:
    """Starts a pool in this process; it ends with `Pool.close`, or with the process.

    `memory` is what it may hold at most, bytes, or text as ``"512MiB"``; it is taken as it is needed. `space_wait` is how long a put into the full
    pool waits until something is deleted, seconds; without it ``TIDEMILL_SPACE_WAIT``, or else 10. Raises `Invalid` where there is not so much.
    """
    if space_wait is None:
        text = os.environ.get("TIDEMILL_SPACE_WAIT")
        try:
            space_wait = SPACE_WAIT if text is None else float(text)
        except ValueError:
            raise Invalid(22, f"TIDEMILL_SPACE_WAIT={text}: not a number of seconds") from None
    return Pool(_native.start(f"{memory}B" if isinstance(memory, int) else memory, space_wait))


def _put_many_of(items: Mapping[str, Data] | Mapping[bytes, Data] | Iterable[tuple[Path, Data]]) -> list[tuple[Path, Data, _arrays.Attributes]]:
    return [(key, *_arrays.described(data)) for key, data in (items.items() if isinstance(items, Mapping) else items)]


def _raised(outcomes: list[T | TidemillError]) -> list[T]:
    """What was brought; the first that failed is raised."""
    brought: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, TidemillError):
            raise outcome
        brought.append(outcome)
    return brought


def _deleted(outcomes: list[TidemillError | None], missing_ok: bool) -> None:
    """Raises the first exception that counts."""
    for outcome in outcomes:
        if outcome is not None and not (missing_ok and isinstance(outcome, FileNotFoundError)):
            raise outcome


class Pool:
    """A pool. `connect` and `start` give one; it is closed at the end of a ``with`` block, or by `close`.

    Keys and paths are text with ``/`` between names, from the pool's root; slashes at their ends mean nothing. Names that are no UTF-8 are bytes,
    or text with surrogates as of ``os.fsdecode``. Whatever takes bytes takes any object with the buffer protocol (bytes, bytearray, memoryview, NumPy
    arrays, Arrow buffers) whose memory is in one piece; a NumPy array may lie as it likes, and is put with its dtype and shape.

    Several threads may use one pool. The methods that begin with ``a`` are the same for ``asyncio``: they leave the loop free, and one that is
    cancelled is done or not. A process that is forked from this one goes on with a connection of its own, but for a pool of this process.

    After `close` all raise `PoolClosed`; what views and arrays show stays.
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
        """Puts an object in place of what has the key; its version. Nobody sees a part of it; missing folders are made.

        `data` is copied once, into the pool; it may be changed when this returns. An array or scalar of NumPy is put in C order with its dtype and
        shape, for `get_array`; one with Python objects (also in fields) or a mask raises `TypeError`. `if_absent`: only where nothing has the key,
        else `Exists`. `if_version`: only in place of this version, else `VersionDiffers`.
        `placement` (``striped``, ``whole``, ``here``, ``at(3)``, ``balanced``) and
        `stripe_size` (as ``"4MiB"``) say where the bytes shall lie; else its folder does. Raises `NoSpace` in a full pool.
        """
        data, attributes = _arrays.described(data)
        return self._native.put(key, data, if_absent, if_version, placement, stripe_size, attributes)

    def get(self, key: Path, start: int = 0, stop: int | None = None) -> View:
        """The bytes of an object as a view, all or from byte `start` up to `stop`; fewer at its end, none behind it.

        The view is the pool's memory itself where the bytes are on this host: of a long object all its pieces (of 1 MiB, unless it was put otherwise)
        are mapped side by side. Of less than 2 MiB they are copied into one where there are several, and so is what comes from another host:
        `View.copied` tells. Raises `NotFound`, `IsAFolder` where the key is a folder, and `Invalid` where `start` or `stop` is negative: the end
        of an object is a slice of its view.
        """
        return self._native.get(key, start, stop)

    def get_array(self, key: Path) -> NDArray[Any]:
        """An object that was put as a NumPy array: dtype, shape and bytes are those of one put. It cannot be written to.

        The array shows the pool's memory itself, as `get` does. Raises `NotFound`, `IsAFolder`, and `Invalid` where it was put as plain bytes, or
        changed through a file since so that it has another length.
        """
        return _arrays.array_of(key, *self._native.get_described(key))

    def delete(self, key: Path, *, if_version: str | None = None, missing_ok: bool = False) -> None:
        """Deletes an object; its folder stays. `if_version`: only this version, else `VersionDiffers`.

        Raises `NotFound` where there is none, unless `missing_ok`; `IsAFolder` where the key is a folder.
        """
        try:
            self._native.delete(key, if_version)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def list(self, prefix: Path = "", *, after: Path = "", limit: int | None = None) -> builtins.list[str]:
        """Keys of objects that begin with `prefix`, in the order of their bytes: all behind the key `after`, at most `limit`."""
        return self._native.list(prefix, after, False, limit)[0]

    def folder(self, path: Path = "") -> builtins.list[Entry]:
        """What is in a folder, by names. Raises `NotFound`, and `NotAFolder` where it is a file."""
        return [Entry(name, Stat._of(raw)) for name, raw in self._native.entries(path)]

    def stat(self, path: Path) -> Stat:
        """What is known of an object, file or folder; links are followed. Raises `NotFound`."""
        return Stat._of(self._native.stat(path))

    def exists(self, path: Path) -> bool:
        """Whether there is an object, file or folder."""
        try:
            self._native.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def locate(self, path: Path) -> Location:
        """At which nodes the bytes of a file are; of one that is not there, at which they would be if it were put now."""
        return Location._of(self._native.locate(path))

    # Many at once.

    @overload
    def get_many(self, keys: Iterable[Path], *, errors: Literal["raise"] = "raise") -> builtins.list[View]: ...
    @overload
    def get_many(self, keys: Iterable[Path], *, errors: Literal["return"]) -> builtins.list[View | TidemillError]: ...
    def get_many(self, keys: Iterable[Path], *, errors: str = "raise") -> builtins.list[View] | builtins.list[View | TidemillError]:
        """The bytes of many objects, as `get`, in the order of the keys; all are on their way at once.

        The first that cannot be had is raised; with ``errors="return"`` its exception is in its place.
        """
        got = self._native.get_many([(key, 0, None) for key in keys])
        return got if errors == "return" else _raised(got)

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
        """Puts many objects, as `put`; their versions in the same order. Each is put or not for itself.

        The first that was not put is raised, after all were tried; with ``errors="return"`` its exception is in its place.
        """
        put = self._native.put_many(_put_many_of(items), placement, stripe_size)
        return put if errors == "return" else _raised(put)

    def delete_many(self, keys: Iterable[Path], *, missing_ok: bool = False) -> None:
        """Deletes many objects, as `delete`. The first that was not deleted is raised, after all were tried."""
        _deleted(self._native.delete_many(list(keys)), missing_ok)

    # Files and folders.

    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.IOBase:
        """Opens a file of the pool as ``open`` does one of the host: the same modes, buffers and text. Missing folders of a new file are made.

        Text is UTF-8 unless said otherwise; the buffer has 1 MiB. With ``buffering=0`` it is a `PoolFile`, which can give views. What is written is seen
        by others as it is flushed; to replace an object as a whole, `put` it. Raises `NotFound`, `Exists` (mode x), `IsAFolder`.
        """
        flags, is_text = _files.flags_of(mode)
        name = path if isinstance(path, str) else os.fsdecode(path)
        if not is_text and (encoding or errors or newline):
            raise ValueError("a file of bytes has no encoding, errors or newline")
        raw = _files.PoolFile(self._native.open(path, flags), name, mode)
        return _files.wrapped(raw, buffering, (encoding, errors, newline) if is_text else None)

    def make_folder(self, path: Path, *, exist_ok: bool = True) -> None:
        """Makes a folder, and those above it that are missing. Raises `Exists` where it is there and should not be, `NotAFolder` below a file."""
        self._native.make_folder(path, not exist_ok)

    def remove_folder(self, path: Path) -> None:
        """Removes an empty folder. Raises `NotFound`, `NotAFolder`, and a `TidemillError` (ENOTEMPTY) where something is in it."""
        self._native.remove_folder(path)

    def delete_tree(self, path: Path) -> None:
        """Removes a file, or a folder with all that is in it. Raises `NotFound`."""
        self._native.delete_tree(path)

    def rename(self, path: Path, to: Path) -> None:
        """Gives a file or folder another name, in place of a file that has it; at no moment there is neither. Missing folders are made."""
        self._native.rename(path, to)

    def copy(self, path: Path, to: Path) -> str:
        """Puts a copy of a file under another key, of an array with dtype and shape; its version. Nobody sees a part of it.

        Raises `NotFound`, `IsAFolder`, `NoSpace`.
        """
        return self._native.copy(path, to)

    # The pool itself.

    @property
    def file(self) -> str | None:
        """The pool file; None for a pool in this process."""
        path = self._native.file
        return None if path is None else os.fspath(path)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or was started inside the process that this one was forked from."""
        return self._native.closed

    @property
    def fs(self) -> TidemillFileSystem:
        """The pool as a file system of fsspec, which must be installed."""
        from tidemill.fsspec import TidemillFileSystem  # noqa: PLC0415 - fsspec is not needed for anything else

        return TidemillFileSystem(self, skip_instance_cache=True)

    def nodes(self) -> builtins.list[Node]:
        """The nodes of the pool, and how full they are now. One that does not answer within some seconds says why (`Node.silent`)."""
        known = {node: (host, slots) for node, host, _, slots in self._native.nodes()}
        return [Node._of(raw, *known.get(raw[0], ("this process", 0))) for raw in self._native.usage()]

    def close(self) -> None:
        """Ends the session; a pool of this process ends with it. A second time does nothing. Views and arrays over them stay."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __contains__(self, path: Path) -> bool:
        return self.exists(path)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Elsewhere it is connected anew."""
        if self.file is None:
            raise TypeError("a pool of this process cannot go to another; start one with `tidemill pool start` and connect to it")
        return connect, (self.file,)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """What dask knows it by."""
        return ("tidemill.Pool", self.file or (os.getpid(), self._number))

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<tidemill.Pool {self.file or f'in this process, the {self._number}.'}, {state}>"

    def _repr_html_(self) -> str:
        from tidemill import _html  # noqa: PLC0415 - only notebooks need it

        return _html.of_pool(self)

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
        """As `put`. `data` must stay as it is until this is done."""
        data, attributes = _arrays.described(data)
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
        return [Entry(name, Stat._of(raw)) for name, raw in await _call(self._native.entries, path)]

    async def astat(self, path: Path) -> Stat:
        """As `stat`."""
        return Stat._of(await _call(self._native.stat, path))

    async def alocate(self, path: Path) -> Location:
        """As `locate`."""
        return Location._of(await _call(self._native.locate, path))

    @overload
    async def aget_many(self, keys: Iterable[Path], *, errors: Literal["raise"] = "raise") -> builtins.list[View]: ...
    @overload
    async def aget_many(self, keys: Iterable[Path], *, errors: Literal["return"]) -> builtins.list[View | TidemillError]: ...
    async def aget_many(self, keys: Iterable[Path], *, errors: str = "raise") -> builtins.list[View] | builtins.list[View | TidemillError]:
        """As `get_many`."""
        got = await _call(self._native.get_many, [(key, 0, None) for key in keys])
        return got if errors == "return" else _raised(got)

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
        """As `put_many`. All that is given must stay as it is until this is done."""
        put = await _call(self._native.put_many, _put_many_of(items), placement, stripe_size)
        return put if errors == "return" else _raised(put)

    async def adelete_many(self, keys: Iterable[Path], *, missing_ok: bool = False) -> None:
        """As `delete_many`."""
        _deleted(await _call(self._native.delete_many, list(keys)), missing_ok)

    async def aopen(self, path: Path, mode: str = "rb") -> AsyncPoolFile:
        """Opens a file of bytes, as `open` without a buffer: modes of bytes only. Its reads give views; ``async with`` closes it."""
        flags, is_text = _files.flags_of(mode)
        if is_text:
            raise ValueError("a file for asyncio is of bytes: add b to its mode")
        name = path if isinstance(path, str) else os.fsdecode(path)
        return await AsyncPoolFile.opened(await _call(self._native.open, path, flags), name, mode)


def _call(verb: Callable[..., T], *arguments: object) -> Awaitable[T]:
    """Begins a verb of the native part on the running loop."""
    return _bridge.run(functools.partial(verb, *arguments))
