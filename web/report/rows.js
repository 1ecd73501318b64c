// Rows of a table: filtered, sorted, and the few of them that are in sight. Pure: no DOM.

/** Rows that match every word of `query`, wherever it stands in the row's text (already in lower case). */
export function matching(rows, query, textOf) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return rows;
  return rows.filter((row) => {
    const text = textOf(row);
    return words.every((word) => text.includes(word));
  });
}

/** A copy of `rows` by the value that `valueOf` gives; rows without a value come last either way. */
export function sorted(rows, valueOf, descending) {
  const keyed = rows.map((row, at) => ({ row, at, value: valueOf(row) }));
  const sign = descending ? -1 : 1;
  keyed.sort((a, b) => {
    const [none, noneOther] = [a.value === null || a.value === undefined, b.value === null || b.value === undefined];
    if (none || noneOther) return Number(none) - Number(noneOther) || a.at - b.at;
    return sign * compared(a.value, b.value) || a.at - b.at;
  });
  return keyed.map(({ row }) => row);
}

const collator = new Intl.Collator("en", { numeric: true });

function compared(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return collator.compare(String(one), String(other));
}

/** The rows in sight, with a few above and below so that scrolling does not flicker: `[from, to)`. */
export function inSight(total, rowHeight, scrollTop, height, spare = 8) {
  const from = Math.max(0, Math.floor(scrollTop / rowHeight) - spare);
  const to = Math.min(total, Math.ceil((scrollTop + height) / rowHeight) + spare);
  return [from, to];
}
