"""Pools as a file system of fsspec: ``tidemill://path``.

It serves pandas, pyarrow, zarr, dask, xarray and other users of fsspec.
``storage_options={"pool": ...}`` selects the pool, as a pool file or a `Pool`. The default is
``TIDEMILL_POOL``, otherwise the user's default pool file.

fsspec's own thread is not used: synchronous calls wait in the thread that makes them, and
asynchronous calls start on the loop that awaits them.
"""

from __future__ import annotations

import asyncio
import io
import mmap
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspec.asyn import AsyncFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike

from tidemill import _files, _pool
from tidemill.errors import Exists, TidemillError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tidemill._native import Upload, View
    from tidemill._values import Stat

Info = dict[str, Any]

# Bytes that are copied to the host at a time.
COPY_BYTES = 8 << 20
# Seconds in a nanosecond.
NS = 1e-9

# Pools that this module connected to, by process and pool file. All file systems of one pool share
# one connection.
_CONNECTED: dict[tuple[int, str | None], _pool.Pool] = {}
_CONNECTING = threading.Lock()


def _connect(file: str | None) -> _pool.Pool:
    """Returns the pool of a pool file: one per process until it is closed."""
    key = (os.getpid(), file or os.environ.get("TIDEMILL_POOL"))
    with _CONNECTING:
        known = _CONNECTED.get(key)
        if known is None or known.closed:
            known = _CONNECTED[key] = _pool.connect(file)
        return known


class Reader(io.BufferedReader):
    """A file open for reading with a buffer; `read_buffer` returns views of the pool's memory."""

    raw: _files.PoolFile

    def __init__(self, raw: _files.PoolFile, buffer: int) -> None:
        super().__init__(raw, buffer)
        self.size = raw.size()

    def read_buffer(self, length: int = -1) -> View:
        """Reads the next bytes as a view; without `length` up to the end.

        pyarrow calls this method by name.
        """
        at = self.tell()
        view = self.raw.pread(max(0, self.size - at) if length < 0 else length, at)
        self.seek(at + len(view))
        return view


class _UploadFile(_files.RawFile):
    """Writes go to an object that is not visible yet; after a discard they are dropped."""

    def __init__(self, upload: Upload, path: str) -> None:
        self.upload = upload
        self.name = path
        self.discarded = False
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Buffer, /) -> int:
        count = memoryview(data).nbytes if self.discarded else self._write_once(lambda: self.upload.write(data), data)
        self._written += count
        return count


class Pending(_files.Writer):
    """A file written in a transaction. The transaction's end makes it visible."""

    raw: _UploadFile

    def __init__(self, upload: Upload, path: str, buffer: int) -> None:
        super().__init__(_UploadFile(upload, path), buffer)
        # `close` drops the buffer's file, but the object must still be finished.
        self._upload = upload
        # The exception of a failed `close`: not all bytes were written.
        self._failed: BaseException | None = None

    def close(self) -> None:
        """Writes the buffered bytes. A file whose write fails never becomes visible."""
        try:
            super().close()
        except BaseException as failed:
            self._failed = failed
            raise

    def commit(self) -> None:
        """Makes the file visible under its name. fsspec calls this."""
        self.close()
        if self._failed is not None:
            raise self._failed
        self._upload.finish()

    def discard(self) -> None:
        """Drops the file without writing the buffered bytes. fsspec calls this."""
        try:
            if not self.closed:
                self.raw.discarded = True
            self.close()
        finally:
            self._upload.abandon()


class TidemillFileSystem(AsyncFileSystem):
    """A pool as a file system. Missing directories are created as needed.

    Paths are those of the pool, with or without ``tidemill://``. `pool` is a `Pool`, or the path of
    a pool file. The default is ``TIDEMILL_POOL``, otherwise the user's default pool file. The first
    use makes the connection.
    """

    protocol = "tidemill"
    root_marker = ""
    # Synchronous methods are implemented here instead of mirroring the asynchronous ones on
    # fsspec's thread.
    mirror_sync_methods = False

    def __init__(
        self,
        pool: _pool.Pool | str | os.PathLike[str] | None = None,
        *,
        asynchronous: bool = False,
        loop: object = None,  # noqa: ARG002 - fsspec passes it
        batch_size: int | None = None,
        **options: object,
    ) -> None:
        # Not `AsyncFileSystem.__init__`, which starts a thread.
        AbstractFileSystem.__init__(self, **options)
        self.asynchronous = asynchronous
        self.batch_size = batch_size
        self._loop = None
        self._pid = os.getpid()
        self._given = pool

    @property
    def pool(self) -> _pool.Pool:
        """The pool of this file system."""
        if isinstance(self._given, _pool.Pool):
            return self._given
        return _connect(None if self._given is None else os.fspath(self._given))

    @classmethod
    def _strip_protocol(cls, path: str | os.PathLike[str] | list[str]) -> Any:  # noqa: ANN401 - as in fsspec
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return str(super()._strip_protocol(path)).strip("/")

    def unstrip_protocol(self, name: str) -> str:
        """The path with ``tidemill://``."""
        return f"tidemill://{self._strip_protocol(name)}"

    # Attributes of paths.

    @staticmethod
    def _stat_info(name: str, stat: Stat) -> Info:
        kind = {"folder": "directory"}.get(stat.kind, stat.kind)
        size = 0 if stat.is_folder else stat.size
        times = {"created": stat.created_ns * NS, "mtime": stat.modified_ns * NS}
        return {"name": name, "size": size, "type": kind, "mode": stat.mode, "version": stat.version, "uid": stat.uid, "gid": stat.gid} | times

    def info(self, path: str, **_: object) -> Info:
        """The attributes of a path.

        They are name, size (bytes), type, mode, version, uid and gid, with mtime and created in
        seconds since 1970.
        """
        path = self._strip_protocol(path)
        return self._stat_info(path, self.pool.stat(path))

    async def _info(self, path: str, **_: object) -> Info:
        path = self._strip_protocol(path)
        return self._stat_info(path, await self.pool.astat(path))

    def exists(self, path: str, **_: object) -> bool:
        """True if the path exists."""
        return self.pool.exists(self._strip_protocol(path))

    async def _exists(self, path: str, **_: object) -> bool:
        try:
            await self.pool.astat(self._strip_protocol(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Info] | list[str]:
        """Lists a directory by name; for a file, the file itself."""
        path = self._strip_protocol(path)
        above = f"{path}/" if path else ""
        try:
            infos = [self._stat_info(above + entry.name, entry.stat) for entry in self.pool.folder(path)]
        except NotADirectoryError:
            infos = [self.info(path)]
        return infos if detail else [info["name"] for info in infos]

    async def _ls(self, path: str, detail: bool = True, **_: object) -> list[Info] | list[str]:
        path = self._strip_protocol(path)
        above = f"{path}/" if path else ""
        try:
            infos = [self._stat_info(above + entry.name, entry.stat) for entry in await self.pool.afolder(path)]
        except NotADirectoryError:
            infos = [await self._info(path)]
        return infos if detail else [info["name"] for info in infos]

    async def _find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, **options: Any) -> Any:  # noqa: ANN401
        path = self._strip_protocol(path)
        if maxdepth is not None or withdirs or options.get("detail"):
            return await super()._find(path, maxdepth=maxdepth, withdirs=withdirs, **options)
        if path and not await self._isdir(path):
            return [path] if await self._exists(path) else []
        return await self.pool.alist(f"{path}/" if path else "")

    def created(self, path: str) -> datetime:
        """Creation time, in UTC."""
        return datetime.fromtimestamp(self.info(path)["created"], UTC)

    def modified(self, path: str) -> datetime:
        """Last change of the bytes, in UTC."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    # Bytes.

    def _range(self, path: str, start: int | None, end: int | None) -> tuple[int, int | None]:
        """Returns the start and end of a range; negative ones count from the end of the file."""
        if (start or 0) < 0 or (end or 0) < 0:
            return _absolute_range(start, end, self.pool.stat(path).size)
        return start or 0, end

    async def _arange(self, path: str, start: int | None, end: int | None) -> tuple[int, int | None]:
        if (start or 0) < 0 or (end or 0) < 0:
            return _absolute_range(start, end, (await self.pool.astat(path)).size)
        return start or 0, end

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        """The bytes of a file, or a range of them."""
        path = self._strip_protocol(path)
        return bytes(self.pool.get(path, *self._range(path, start, end)))

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        path = self._strip_protocol(path)
        return bytes(await self.pool.aget(path, *await self._arange(path, start, end)))

    @staticmethod
    def _ranges(paths: list[str], starts: Any, ends: Any) -> list[tuple[str, int | None, int | None]]:  # noqa: ANN401 - one value or a list
        if not isinstance(paths, list):
            raise TypeError("paths are a list")
        starts, ends = (each if isinstance(each, list) else [each] * len(paths) for each in (starts, ends))
        return list(zip(paths, starts, ends, strict=True))

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: None = None, on_error: str = "return", **_: object) -> list[Any]:  # noqa: ANN401
        """Reads ranges of many files concurrently."""
        if max_gap is not None:
            raise NotImplementedError("max_gap")
        asked = [(path, *self._range(path, start, end)) for path, start, end in self._ranges(self._strip_protocol(paths), starts, ends)]
        return _results(self.pool._native.get_many(asked), on_error)

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,  # noqa: ANN401
        ends: Any,  # noqa: ANN401
        max_gap: None = None,
        batch_size: int | None = None,  # noqa: ARG002 - the pool has its own limits
        on_error: str = "return",
        **_: object,
    ) -> list[Any]:
        if max_gap is not None:
            raise NotImplementedError("max_gap")
        asked = [(path, *await self._arange(path, start, end)) for path, start, end in self._ranges(self._strip_protocol(paths), starts, ends)]
        return _results(await _pool._call(self.pool._native.get_many, asked), on_error)

    def pipe_file(self, path: str, value: Buffer, mode: str = "overwrite", **_: object) -> None:
        """Puts the bytes of a file atomically.

        With the mode ``create`` it fails if the file exists. In a transaction the file becomes
        visible at its end.
        """
        if self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb") as file:
                file.write(value)
            return
        self.pool.put(self._strip_protocol(path), value, if_absent=mode == "create")

    async def _pipe_file(self, path: str, value: Buffer, mode: str = "overwrite", **_: object) -> None:
        await self.pool.aput(self._strip_protocol(path), value, if_absent=mode == "create")

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **words: Any,  # noqa: ANN401 - passed by fsspec
    ) -> Any:  # noqa: ANN401 - a binary or text file, as in fsspec
        """Opens a file, as ``open`` does.

        In a transaction a written file becomes visible at its end.
        """
        text = {word: words.pop(word) for word in ("encoding", "errors", "newline") if "b" not in mode and word in words}
        as_bytes = mode if "b" in mode else mode.replace("t", "") + "b"
        file = super().open(path, as_bytes, block_size, cache_options, compression, **words)
        return file if "b" in mode else _files.TextFile(file, **text)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True, **_: object) -> io.IOBase:
        flags, _text = _files.flags_of(mode)
        if not autocommit and "r" not in mode:
            if mode not in {"wb", "xb"}:
                raise ValueError(f"in a transaction files are written as a whole: mode wb or xb, not {mode}")
            return Pending(self.pool._native.upload(self._strip_protocol(path), mode == "xb"), path, block_size or _files.BUFFER_BYTES)
        raw = _files.PoolFile(self.pool._native.open(path, flags), path, mode)
        buffer = block_size or _files.BUFFER_BYTES
        return Reader(raw, buffer) if mode == "rb" else _files.wrap(raw, buffer, None)

    def touch(self, path: str, truncate: bool = True, **_: object) -> None:
        """Creates an empty file, or truncates an existing one.

        Without `truncate` an existing file keeps its bytes, and its modification time becomes now.
        """
        if truncate:
            self.pipe_file(path, b"")
        else:
            self.pool._native.touch(self._strip_protocol(path))

    # Names.

    def mkdir(self, path: str, create_parents: bool = True, **_: object) -> None:
        """Creates a directory, and those above it unless `create_parents` is false."""
        path = self._strip_protocol(path)
        if not create_parents and not self.isdir(self._parent(path)):
            raise FileNotFoundError(self._parent(path))
        self.pool.make_folder(path, exist_ok=False)

    async def _mkdir(self, path: str, create_parents: bool = True, **_: object) -> None:
        path = self._strip_protocol(path)
        if not create_parents and not await self._isdir(self._parent(path)):
            raise FileNotFoundError(self._parent(path))
        await _pool._call(self.pool._native.make_folder, path, True)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Creates a directory, and those above it."""
        path = self._strip_protocol(path)
        if path:
            self.pool.make_folder(path, exist_ok=exist_ok)
        elif not exist_ok:
            raise Exists(17, "the root directory exists already", "/")

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if path:
            await _pool._call(self.pool._native.make_folder, path, not exist_ok)
        elif not exist_ok:
            raise Exists(17, "the root directory exists already", "/")

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        self.pool.remove_folder(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self.pool.delete(self._strip_protocol(path))

    async def _rm_file(self, path: str, **_: object) -> None:
        await self.pool.adelete(self._strip_protocol(path))

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, and with `recursive` directories with everything in them."""
        for one in reversed(self.expand_path(path, maxdepth=maxdepth)):
            if recursive and maxdepth is None:
                for tree in [one] if one else [entry.name for entry in self.pool.folder()]:
                    self.pool.delete_tree(tree)
            else:
                self.rm_file(one)

    async def _rm(
        self,
        path: str | list[str],
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **options: object,
    ) -> None:
        if not recursive or maxdepth is not None:
            await super()._rm(path, recursive=recursive, batch_size=batch_size, maxdepth=maxdepth, **options)
            return
        for one in reversed(await self._expand_path(path)):
            for tree in [one] if one else [entry.name for entry in await self.pool.afolder()]:
                await _pool._call(self.pool._native.delete_tree, tree)

    def cp_file(self, path1: str, path2: str, **_: object) -> None:
        """Copies a file; for a directory, creates the target directory."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        try:
            self.pool.copy(path1, path2)
        except IsADirectoryError:
            self.makedirs(path2, exist_ok=True)

    async def _cp_file(self, path1: str, path2: str, **_: object) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        try:
            await _pool._call(self.pool._native.copy, path1, path2)
        except IsADirectoryError:
            await self._makedirs(path2, exist_ok=True)

    def mv(self, path1: str | list[str], path2: str, recursive: bool = False, maxdepth: int | None = None, **options: object) -> None:
        """Renames a file or directory atomically; several paths are copied and removed."""
        if maxdepth is None and not isinstance(path1, list) and self.exists(path1) and (recursive or not self.isdir(path1)):
            into = path2.endswith("/") or self.isdir(path2)
            name = self._strip_protocol(path1).rpartition("/")[2]
            self.pool.rename(self._strip_protocol(path1), f"{self._strip_protocol(path2)}/{name}" if into else self._strip_protocol(path2))
        else:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)

    async def _mv_file(self, path1: str, path2: str) -> None:
        await _pool._call(self.pool._native.rename, self._strip_protocol(path1), self._strip_protocol(path2))

    # Copies from and to the host.

    def get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **_: object) -> None:  # noqa: ANN401 - as in fsspec
        """Copies a file to the host, or into an open file; for a directory, creates one."""
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        if outfile is None and self.isdir(rpath):
            Path(lpath).mkdir(parents=True, exist_ok=True)
            return
        with self.pool.open(self._strip_protocol(rpath), "rb", buffering=0) as file:
            if outfile is None:
                Path(lpath).parent.mkdir(parents=True, exist_ok=True)
                with open(lpath, "wb") as to:
                    _copy(file, to, callback)
            else:
                _copy(file, outfile, callback)

    async def _get_file(self, rpath: str, lpath: str, **options: object) -> None:
        await asyncio.to_thread(self.get_file, rpath, lpath, **options)

    def put_file(self, lpath: str | os.PathLike[str], rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **_: object) -> None:  # noqa: ANN401
        """Copies a file of the host atomically; for a directory, creates one."""
        if Path(lpath).is_dir():
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            callback.set_size(size)
            if size == 0:
                self.pipe_file(rpath, file.read(), mode)
            else:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as bytes_of_it:
                    self.pipe_file(rpath, bytes_of_it, mode)
            callback.relative_update(size)

    async def _put_file(self, lpath: str | os.PathLike[str], rpath: str, mode: str = "overwrite", **options: object) -> None:
        await asyncio.to_thread(self.put_file, lpath, rpath, mode=mode, **options)


def _copy(file: io.IOBase, to: Any, callback: Any) -> None:  # noqa: ANN401
    """Copies a pool file up to its end."""
    if not isinstance(file, _files.PoolFile):
        raise TypeError(type(file).__name__)
    callback.set_size(file.size())
    while view := file.read_buffer(COPY_BYTES):
        to.write(view)
        callback.relative_update(len(view))


def _absolute_range(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Converts a range with negative ends, which count from the end, to offsets."""
    begin, stop, _ = slice(start, end).indices(size)
    return begin, max(begin, stop)


def _results(outcomes: list[View | TidemillError], on_error: str) -> list[Any]:
    """Converts views to bytes; raises exceptions, or returns them if `on_error` says so."""
    shown: list[Any] = []
    for outcome in outcomes:
        if not isinstance(outcome, TidemillError):
            shown.append(bytes(outcome))
        elif on_error == "return":
            shown.append(outcome)
        else:
            raise outcome
    return shown
