"""Docks a molecule at another one: tries 28 poses and writes the energy of each.

dock.py ONE.mol OTHER.mol POSES

In each pose the other molecule is turned by quarters around the z axis and moved along the x axis.
A line `pose QUARTERS SHIFT ENERGY` is written for it; a lower energy is a better fit.
"""

import pathlib
import sys

QUARTERS = range(4)
SHIFTS = range(-6, 7, 2)


def atoms(text):
    """The atoms of a molecule: x, y, z and charge."""
    return [tuple(map(int, line.split()[1:])) for line in text.splitlines() if line.startswith("atom ")]


def posed(molecule, quarters, shift):
    """A molecule that is turned and then moved."""
    for _ in range(quarters):
        molecule = [(-y, x, z, charge) for x, y, z, charge in molecule]
    return [(x + shift, y, z, charge) for x, y, z, charge in molecule]


def energy(one, other):
    """The sum over all pairs: charges attract or repel, and near atoms push each other away."""
    total = 0.0
    for x, y, z, charge in one:
        for u, v, w, other_charge in other:
            apart = (x - u) ** 2 + (y - v) ** 2 + (z - w) ** 2 + 1
            total += charge * other_charge / apart + 0.2 / apart**3
    return total


def dock(one_text, other_text):
    """The lines of all poses."""
    one, other = atoms(one_text), atoms(other_text)
    lines = []
    for quarters in QUARTERS:
        for shift in SHIFTS:
            lines.append(f"pose {quarters} {shift} {energy(one, posed(other, quarters, shift)):.3f}\n")
    return "".join(lines)


def main():
    one, other, poses = map(pathlib.Path, sys.argv[1:])
    poses.write_text(dock(one.read_text(), other.read_text()))


if __name__ == "__main__":
    main()
