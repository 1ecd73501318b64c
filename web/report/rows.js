// Rows of a table: filtered, sorted, and limited to the visible ones. Pure: no DOM.

/**
 * Rows that match every word of `query` anywhere in the row's text (which is already in lower
 * case).
 */
export function matching(rows, query, textOf) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return rows;
  return rows.filter((row) => {
    const text = textOf(row);
    return words.every((word) => text.includes(word));
  });
}

/** A copy of `rows` sorted by `valueOf`; rows without a value come last in both directions. */
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

/** The visible rows, with a few above and below to avoid flicker during scrolling: `[from, to)`. */
export function inSight(total, rowHeight, scrollTop, height, spare = 8) {
  const from = Math.max(0, Math.floor(scrollTop / rowHeight) - spare);
  const to = Math.min(total, Math.ceil((scrollTop + height) / rowHeight) + spare);
  return [from, to];
}
