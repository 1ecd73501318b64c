"""The CSV files of this example: the meaning of a line, and the conversion of lines to numbers.

The first line names the columns. The first column is `id`; `label`, if present, is the last. A
column named `protocol:icmp|tcp|udp` holds one of these words; every other column holds a number. So
each file describes itself, and no tool needs another file to read it.

Only the standard library is imported here, so that Shuffler, Partitioner and Filter start in 20 ms.
`matrix` imports numpy when it is called.
"""

import math


class Format:
    """The columns of a file, from its first line."""

    def __init__(self, header):
        self.names = header.rstrip("\n").split(",")
        if self.names[0] != "id":
            raise SystemExit(f"not a file of this example: the first column is {self.names[0]!r}, not 'id'. Make it by prepare.py.")
        self.has_label = self.names[-1] == "label"
        columns = self.names[1:-1] if self.has_label else self.names[1:]
        # None for a number; otherwise the words that the column may hold.
        self.words = [name.partition(":")[2].split("|") if ":" in name else None for name in columns]

    def problem(self, line):
        """Returns why a line is not a row of this format, or None if it is one."""
        fields = line.rstrip("\n").split(",")
        if len(fields) != len(self.names):
            return f"{len(fields)} columns instead of {len(self.names)}"
        for name, words, field in zip(self.names[1:], self.words, fields[1:], strict=False):
            if words is not None and field not in words:
                return f"column {name.partition(':')[0]}: unknown word {field!r}"
            if words is None and not is_finite(field):
                return f"column {name}: {field!r} is not a finite number"
        return None

    def matrix(self, lines):
        """The feature columns as an array of float32, one row a line.

        Numbers are replaced by their logarithm (sign kept), because some of them span nine orders
        of magnitude. A column of words becomes one column for each word, with 1 in rows that hold
        it.
        """
        import numpy as np

        fields = [line.rstrip("\n").split(",")[1 : 1 + len(self.words)] for line in lines]
        columns = []
        for words, column in zip(self.words, zip(*fields, strict=True), strict=True):
            if words is None:
                numbers = np.array(column, dtype=np.float32)
                columns.append((np.sign(numbers) * np.log1p(np.abs(numbers)))[:, None])
            else:
                place = {word: index for index, word in enumerate(words)}
                columns.append(np.eye(len(words), dtype=np.float32)[[place[word] for word in column]])
        return np.ascontiguousarray(np.hstack(columns))


def is_finite(text):
    """True if a field is a number other than infinity and NaN."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def label_of(line):
    """The last field of a line."""
    return line.rstrip("\n").rpartition(",")[2]


def read(path):
    """Reads a file; returns its first line and the list of the others."""
    with open(path, encoding="utf-8") as file:
        header, lines = file.readline(), file.readlines()
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return header, lines


def write(path, header, lines):
    """Writes a file: the counterpart of `read`."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(header)
        file.writelines(lines)
