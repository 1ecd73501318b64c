"""The montage workflow on four real images of M17."""

from __future__ import annotations

import shutil
import struct
import sys
import zlib
from pathlib import Path

import pytest
from example_runs import EXAMPLES, Run, Tidemill, check, need_program, python, real_data

HERE = EXAMPLES / "montage"
TASKS = {
    "mProjectPP": 4, "mImgtbl": 2, "mDiff": 5, "mFitplane": 5, "Gather": 1, "mBgModel": 1, "mBackground": 4, "mAdd": 1, "mViewer": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def m17() -> Path:
    """The images; skips the tests if they or Montage are missing."""
    need_program("mProjectPP", "montage")
    return real_data("m17")


@pytest.fixture(scope="module")
def done(binary: Path, storage: str, m17: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the workflow, once for each storage."""
    tidemill = Tidemill(binary, tmp_path_factory.mktemp("montage"), storage)
    return tidemill.run(HERE / "workflow.js", m17, "--export", "Mosaic")


def test_the_mosaic_has_the_pixels_of_a_plain_disk_and_the_picture_shows_something(done: Run, m17: Path) -> None:
    assert sum(TASKS.values()) == 24
    assert done.tools() == TASKS
    assert "the mosaic has the pixels of a plain disk" in check(HERE, m17, done.out)


def test_temporaries_of_montage_are_not_exported(done: Run) -> None:
    assert set(done.files()) == {"mosaic.fits", "mosaic.png", "mosaic_area.fits"}


def test_the_checked_in_script_is_what_the_planner_writes(m17: Path) -> None:
    assert python(HERE / "plan.py", m17).stdout == (HERE / "workflow.js").read_text()


def test_the_planner_does_not_depend_on_the_order_of_a_directory(m17: Path, tmp_path: Path) -> None:
    for path in sorted(m17.iterdir(), reverse=True):
        (tmp_path / path.name).symlink_to(path)
    assert python(HERE / "plan.py", tmp_path).stdout == (HERE / "workflow.js").read_text()


def test_the_check_notices_one_other_pixel(done: Run, m17: Path, tmp_path: Path) -> None:
    out = shutil.copytree(done.out, tmp_path / "out")
    mosaic = next(out.rglob("mosaic.fits"))
    data = bytearray(mosaic.read_bytes())
    data[len(data) // 2] ^= 1
    mosaic.write_bytes(data)
    assert "the mosaic's pixels are" in check(HERE, m17, out, exit_code=1)


def test_the_check_notices_a_blank_picture(done: Run, m17: Path, tmp_path: Path) -> None:
    out = shutil.copytree(done.out, tmp_path / "out")
    next(out.rglob("mosaic.png")).write_bytes(grey_png([bytes(64)] * 64))
    assert "looks blank" in check(HERE, m17, out, exit_code=1)


@pytest.mark.parametrize("how", range(5))
def test_the_check_reads_every_line_filter_of_a_png(how: int) -> None:
    sys.path.insert(0, str(HERE))
    try:
        import check as checker
    finally:
        sys.path.remove(str(HERE))
    lines = [bytes((7 * x * y + x) % 256 for x in range(31)) for y in range(17)]
    assert checker.png_lines(grey_png(lines, how)) == (1, lines)


def grey_png(lines: list[bytes], how: int = 0) -> bytes:
    """A PNG of these lines, with one of the five line filters."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    def filtered(line: bytes, above: bytes) -> bytes:
        result = bytearray([how])
        for x, byte in enumerate(line):
            left, corner, up = (line[x - 1] if x else 0), (above[x - 1] if x else 0), above[x]
            aim = left + up - corner
            paeth = next(near for near in sorted((left, up, corner), key=lambda near: abs(aim - near)))
            result.append((byte - (0, left, up, (left + up) // 2, paeth)[how]) % 256)
        return bytes(result)

    head = struct.pack(">IIBBBBB", len(lines[0]), len(lines), 8, 0, 0, 0, 0)
    body = b"".join(filtered(line, above) for line, above in zip(lines, [bytes(len(lines[0])), *lines], strict=False))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")
