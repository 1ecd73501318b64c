"""Checks the pixels of the mosaic against those of Montage on a disk, and the picture.

    check.py --data DIR --out OUT

DIR holds the images and region.hdr, OUT the exports of the run, which needs the flag
`--export Mosaic`. The script needs only the standard library and Montage. It runs Montage's
programs one after the other in a directory of /tmp. Exits with 0 if all checks pass; otherwise with
1 and a message.
"""

import argparse
import hashlib
import pathlib
import shutil
import subprocess
import tempfile
import zlib

import gather
import plan

# The pixels of M17 (the four images of the README) by Montage 6.0 on x86-64, the same in many runs.
# Another processor or version may round differently, so a difference is printed but is no error;
# the check compares with the result of this machine.
M17_PIXELS = "37d054d065d6e0ed302667157a8f7b0038dccf22698552b8b3250629dde29275"

FITS_BLOCK, FITS_CARD = 2880, 80


def expect(condition, message):
    """The only assertion: exits with a message."""
    if not condition:
        raise SystemExit(f"check.py: {message}")


def exported(out, name):
    """The only file of this name below OUT."""
    found = list(out.rglob(name))
    expect(len(found) == 1, f"{len(found)} files {name} under {out}: was the run given --export Mosaic?")
    return found[0]


def pixels(path):
    """The sha256 of the data after the header of a FITS file."""
    data = path.read_bytes()
    cards = (data[at : at + FITS_CARD] for at in range(0, len(data), FITS_CARD))
    end = next((number for number, card in enumerate(cards) if card.rstrip() == b"END"), None)
    expect(end is not None, f"{path} has no end of a FITS header")
    start = (end * FITS_CARD // FITS_BLOCK + 1) * FITS_BLOCK
    expect(len(data) > start, f"{path} has no pixels")
    return hashlib.sha256(data[start:]).hexdigest()


def on_disk(raw, folder):
    """Makes the mosaic in `folder` by the workflow's programs, in order; returns its path."""
    run = lambda *command: plan.montage(*command, cwd=folder)  # noqa: E731
    names, overlaps, header = plan.find_images(raw), plan.find_overlaps(raw), str(raw / "region.hdr")
    for part in "projected", "difference", "corrected":
        (folder / part).mkdir()
    for name in names:
        run("mProjectPP", str(raw / name), f"projected/{name}", header)
    run("mImgtbl", "projected", "projected.tbl")
    fits = []
    for a, b in overlaps:
        pair = f"{a.removesuffix('.fits')}__{b.removesuffix('.fits')}"
        run("mDiff", f"projected/{a}", f"projected/{b}", f"difference/{pair}.fits", header)
        subprocess.run(["mFitplane", "-s", f"{pair}.txt", f"difference/{pair}.fits"], cwd=folder, check=True)
        fits.append(folder / f"{pair}.txt")
    numbers = gather.image_numbers(folder / "projected.tbl")
    (folder / "fits.tbl").write_text(gather.head() + "".join(gather.row(fit, numbers) for fit in fits))
    run("mBgModel", "projected.tbl", "fits.tbl", "corrections.tbl")
    for name in names:
        plan.montage("mBackground", "-t", name, f"../corrected/{name}", "../projected.tbl", "../corrections.tbl", cwd=folder / "projected")
    run("mImgtbl", "corrected", "corrected.tbl")
    run("mAdd", "-p", "corrected", "corrected.tbl", header, "mosaic.fits")
    return folder / "mosaic.fits"


def png_lines(data):
    """The bytes per pixel, and the lines of bytes of an 8-bit PNG without interlace."""
    expect(data.startswith(b"\x89PNG\r\n\x1a\n"), "the picture is not a PNG")
    at, packed = 8, b""
    while at < len(data):
        size, kind = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + size]
        expect(zlib.crc32(kind + body) == int.from_bytes(data[at + 8 + size : at + 12 + size]), f"a broken {kind} in the PNG")
        if kind == b"IHDR":
            width, depth, colour, interlace = int.from_bytes(body[:4]), body[8], body[9], body[12]
        elif kind == b"IDAT":
            packed += body
        at += size + 12
    expect((depth, interlace) == (8, 0), "the picture is a kind of PNG that this check does not know")
    step = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    return step, unfiltered(zlib.decompress(packed), width * step, step)


def unfiltered(data, width, step):
    """Undoes PNG's line filters, which store a byte as a difference to its neighbours.

    The neighbours are the left, the upper and the upper left byte.
    """
    lines, above = [], bytes(width)
    for start in range(0, len(data), width + 1):
        how, line = data[start], bytearray(data[start + 1 : start + 1 + width])
        for x in range(width if how else 0):
            left = line[x - step] if x >= step else 0
            corner = above[x - step] if x >= step else 0
            line[x] = line[x] + (0, left, above[x], (left + above[x]) // 2, nearest(left, above[x], corner))[how] & 255
        lines.append(bytes(line))
        above = line
    return lines


def nearest(left, up, corner):
    """PNG's Paeth predictor: the neighbour that is nearest to left + up - corner."""
    aim = left + up - corner
    return min((abs(aim - left), 0, left), (abs(aim - up), 1, up), (abs(aim - corner), 2, corner))[2]


def check_picture(path):
    """Checks that the picture has many grey levels and is not filled by one of them.

    Returns the number of levels and the spread.
    """
    step, lines = png_lines(path.read_bytes())
    values = b"".join(lines)[::step]
    counts = [values.count(level) for level in range(256)]
    total = len(values)
    mean = sum(level * count for level, count in enumerate(counts)) / total
    spread = (sum(count * (level - mean) ** 2 for level, count in enumerate(counts)) / total) ** 0.5
    levels = sum(count > 0 for count in counts)
    expect(levels >= 64 and spread >= 20, f"{path} looks blank: {levels} grey levels, standard deviation {spread:.1f}")
    expect(max(counts) < 0.5 * total, f"{path} is mostly one grey")
    return levels, spread


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    ours = pixels(exported(args.out, "mosaic.fits"))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="montage-check-"))
    try:
        theirs = pixels(on_disk(args.data.resolve(), folder))
    finally:
        shutil.rmtree(folder)
    expect(ours == theirs, f"the mosaic's pixels are {ours}, those of a plain disk {theirs}")
    levels, spread = check_picture(exported(args.out, "mosaic.png"))
    print(f"the mosaic has the pixels of a plain disk: {ours}" + (" (M17's known ones)" if ours == M17_PIXELS else ""))
    print(f"the picture has {levels} grey levels, standard deviation {spread:.0f}")


if __name__ == "__main__":
    main()
