"""NumPy arrays as objects: the bytes of an array, and attributes with its dtype and shape."""

from __future__ import annotations

import errno
import json
import math
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

from tidemill.errors import Invalid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tidemill._native import View

# The attributes of an object that was put as an array. Both are JSON.
DTYPE = b"user.tidemill.dtype"
SHAPE = b"user.tidemill.shape"

Attributes: TypeAlias = list[tuple[bytes, bytes]]


def describe(data: Any) -> tuple[Any, Attributes]:  # noqa: ANN401 - any object with a buffer
    """Returns data to put, as an object with a contiguous buffer, and the attributes to set.

    NumPy arrays and scalars get dtype and shape as attributes; other data is plain bytes. Raises
    `TypeError` for arrays whose bytes are not in their own memory.
    """
    numpy = sys.modules.get("numpy")  # a caller that has an array has imported NumPy
    if numpy is None or not isinstance(data, numpy.ndarray | numpy.generic) or isinstance(data, bytes):
        return data, []
    if isinstance(data, numpy.ma.MaskedArray):
        raise TypeError("a masked array is two arrays: put its `data` and its `mask` under two keys, or `filled()` as one")
    array = numpy.asarray(data)
    if array.dtype.hasobject:
        raise TypeError(f"an array of dtype {array.dtype} has Python objects, which are not in its memory: give it another dtype, or pickle it")
    attributes = [(DTYPE, json.dumps(_description(array.dtype)).encode()), (SHAPE, json.dumps(array.shape).encode())]
    if array.nbytes == 0:
        return b"", attributes
    # The array goes as plain bytes because the buffer protocol does not support all element types.
    # It is copied only if it is not in C order.
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8), attributes


def _description(dtype: np.dtype[Any]) -> object:
    """A dtype as plain values, from which `_dtype` makes an equal dtype."""
    try:
        text: object = dtype.descr if dtype.names is not None else dtype.str
        candidates = [text] if dtype.names is not None else [text, dtype.name]
        for candidate in candidates:
            if _dtype(json.loads(json.dumps(candidate))) == dtype:
                return candidate
    except (TypeError, ValueError):
        # Overlapping fields, or a type name that only another package registers.
        pass
    raise TypeError(f"dtype {dtype} cannot be written down; put a view of plain bytes: array.view('u1')")


def _dtype(description: object) -> np.dtype[Any]:
    """Makes the dtype from a description that was read from JSON."""
    import numpy as np  # noqa: PLC0415 - NumPy is needed for arrays only

    made = np.lib.format.descr_to_dtype(_convert_fields(description)) if isinstance(description, list) else np.dtype(description)  # type: ignore[call-overload]
    if made.hasobject:
        raise ValueError("a dtype with Python objects")
    return made


def _convert_fields(fields: Any) -> Any:  # noqa: ANN401 - nested JSON lists
    """Converts fields to NumPy's form.

    A field is (name, type) or (name, type, shape); a name may be (title, name).
    """
    made = []
    for name, kind, *shape in fields:
        inner = _convert_fields(kind) if isinstance(kind, list) else kind
        made.append((tuple(name) if isinstance(name, list) else name, inner, *map(tuple, shape)))
    return made


def array_of(key: str | bytes, view: View, dtype: bytes | None, shape: bytes | None) -> NDArray[Any]:
    """The bytes of an object as the array that was put. Raises `Invalid` if it is not an array."""
    import numpy as np  # noqa: PLC0415 - NumPy is needed for arrays only

    name = key if isinstance(key, str) else key.decode(errors="surrogateescape")
    if dtype is None or shape is None:
        hint = "`get(key).numpy(dtype, shape)` shows its bytes as one"
        raise Invalid(errno.EINVAL, f"`{name}` was not put as an array", name, hint)
    try:
        made, lengths = _dtype(json.loads(dtype)), tuple(json.loads(shape))
        sound = all(isinstance(length, int) and length >= 0 for length in lengths)
    except (TypeError, ValueError) as error:
        raise Invalid(errno.EINVAL, f"`{name}`: its attributes do not say what array it is: {error}", name) from None
    if not sound or math.prod(lengths) * made.itemsize != len(view):
        why = f"it has {len(view)} bytes, not those of an array of dtype {made} and shape {lengths}: it was changed since"
        raise Invalid(errno.EINVAL, f"`{name}`: {why}", name, "put it again, or look at its bytes with `get`")
    return np.ndarray(lengths, made, buffer=memoryview(view))
