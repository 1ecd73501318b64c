"""HTML for pools and files in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill._files import PoolFile
    from tidemill._pool import Pool

# Maximum number of characters of the reason why a node does not answer.
REASON_CHARS_MAX = 60
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# Colours that are readable in light and dark notebooks.
_CELL = "padding:2px 12px 2px 0;text-align:left;border:none;white-space:nowrap;color:inherit"
_TROUGH = "display:inline-block;width:8em;height:.7em;border-radius:.35em;background:rgba(128,128,128,.25);overflow:hidden;vertical-align:middle"
_FILL = "display:block;height:100%;background:#2a7f9e"


def size(count: int) -> str:
    """A number of bytes in a readable unit."""
    amount = float(count)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{count} B"


def _table(title: str, rows: list[list[str]]) -> str:
    lines = ["".join(f"<td style='{_CELL}'>{cell}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr style='background:none'>{line}</tr>" for line in lines)
    return f"<div><b>{title}</b><table style='border:none;margin:.3em 0;color:inherit'>{body}</table></div>"


def _bar(used: int, capacity: int) -> str:
    share = min(1.0, used / capacity) if capacity else 0.0
    # A bar for any bytes at all is wide enough to be visible.
    width = max(2.0, 100 * share) if used else 0.0
    return f"<span style='{_TROUGH}'><span style='{_FILL};width:{width:.1f}%'></span></span>"


def _truncate(text: str) -> str:
    """The beginning of a long text; the tooltip has all of it."""
    return text if len(text) <= REASON_CHARS_MAX else f"{text[:REASON_CHARS_MAX]}..."


def pool_html(pool: Pool) -> str:
    """The nodes of a pool and how full they are.

    Does not fail: a notebook displays a pool in any state, so what is not available is left out.
    """
    where = escape(pool.file or "in this process")
    if pool.closed:
        return _table(f"Tidemill pool {where}, closed", [])
    try:
        nodes = pool.nodes()
    except OSError as error:
        return _table(f"Tidemill pool {where}", [[escape(str(error))]])
    rows = []
    for node in nodes:
        name = [f"node {node.id}", escape(node.host)]
        if node.silent is not None:
            rows.append([*name, "does not answer", f"<span title='{escape(node.silent, quote=True)}'>{escape(_truncate(node.silent))}</span>"])
        else:
            rows.append([*name, _bar(node.used, node.capacity), f"{size(node.used)} of {size(node.capacity)}", f"{node.files:,} files"])
    return _table(f"Tidemill pool {where}", rows)


def file_html(file: PoolFile) -> str:
    """The name, mode, length and position of a file."""
    title = escape(file.name.rpartition("/")[2])
    rows = [["path", escape(file.name)], ["mode", escape(file.mode)]]
    if file.closed:
        rows.append(["state", "closed"])
    else:
        rows += [["length", size(file.size())], ["position", f"{file.tell():,}"]]
    return _table(title, rows)
