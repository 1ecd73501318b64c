// A table of any length: only the visible rows are in the page. It is sorted by its headers,
// filtered by words, and navigated by keys.
//
// The grid itself has the focus and names its active row, so rows can be added and removed during
// navigation.

import { el } from "./dom.js";
import { count } from "./format.js";
import { inSight, matching, sorted } from "./rows.js";

const ROW = 30;
/** Rows put into the page for printing, where nothing scrolls. */
const PRINTED_MAX = 300;

/**
 * Makes a grid in `holder`. The `columns` are `{ name, value(row), show(row), title(row), number,
 * largestFirst, width }`; without `title` the tooltip of a cell is its text. The `options` are
 * `id`, `label`, the minimum `width` of all columns, the `gap` between them, `textOf(row)` for the
 * filter, `idOf(row)` and `told(count)`, and the optional `classOf(row)` and `open(row, grid)`.
 * Returns `{ setRows, setQuery, grid }`.
 */
export function startGrid(holder, columns, rows, options) {
  const grid = el("div", {
    class: "grid",
    role: "grid",
    tabindex: "0",
    id: options.id,
    "aria-label": options.label,
    "aria-colcount": columns.length,
  });
  const body = el("div", { class: "grid-body", role: "rowgroup" });
  const scroller = el("div", { class: "grid-scroll" });
  grid.style.setProperty("--columns", columns.map((column) => column.width).join(" "));
  grid.style.setProperty("--width", options.width);
  if (options.gap) grid.style.setProperty("--gap", options.gap);
  const state = {
    grid,
    body,
    scroller,
    columns,
    options,
    rows,
    shown: rows,
    query: "",
    by: 0,
    descending: false,
    active: -1,
    printing: false,
  };
  const head = el(
    "div",
    { class: "grid-head", role: "row", "aria-rowindex": "1" },
    columns.map((column, at) => header(state, column, at)),
  );
  state.head = head;
  // The header is inside the scroller, so that a scroll bar makes both equally narrower.
  scroller.append(el("div", { role: "rowgroup", class: "grid-top" }, head), body);
  grid.append(scroller);
  holder.append(grid);
  scroller.addEventListener("scroll", () => paint(state), { passive: true });
  grid.addEventListener("keydown", (event) => keyed(state, event));
  // A pointer activates the row that it clicks; a change of the rows at this moment would lose the
  // click.
  grid.addEventListener("focus", () => grid.matches(":focus-visible") && activate(state, Math.max(0, state.active)));
  addEventListener("beforeprint", () => printing(state, true));
  addEventListener("afterprint", () => printing(state, false));
  refresh(state);
  return {
    grid,
    setRows: (next) => refresh(Object.assign(state, { rows: next, active: -1 })),
    setQuery: (query) => refresh(Object.assign(state, { query, active: -1 })),
  };
}

function header(state, column, at) {
  const sort = () => {
    state.descending = state.by === at ? !state.descending : Boolean(column.number && column.largestFirst);
    state.by = at;
    refresh(state);
  };
  const label = el("button", { type: "button", onclick: sort }, column.name);
  return el("div", { role: "columnheader", class: column.number ? "number" : null }, label);
}

function refresh(state) {
  const { columns, options, rows, query, by, descending, head } = state;
  state.shown = sorted(matching(rows, query, options.textOf), columns[by].value, descending);
  [...head.children].forEach((cell, at) => {
    if (at === by) cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
  state.grid.setAttribute("aria-rowcount", state.shown.length + 1);
  state.body.style.height = `${Math.max(1, state.shown.length) * ROW}px`;
  state.scroller.scrollTop = 0;
  state.painted = null;
  options.told?.(state.shown.length);
  paint(state);
}

function paint(state) {
  const { body, scroller, shown, printing: all } = state;
  // Before the first layout nothing has a height; the default is one screenful.
  const [from, to] = all
    ? [0, Math.min(shown.length, PRINTED_MAX)]
    : inSight(shown.length, ROW, scroller.scrollTop, room(state) || 420);
  const key = `${from} ${to} ${state.active}`;
  if (state.painted === key) return;
  state.painted = key;
  const lines = [];
  for (let at = from; at < to; at += 1) lines.push(line(state, at));
  if (shown.length === 0) lines.push(el("p", { class: "grid-none" }, "Nothing matches."));
  if (all && to < shown.length)
    lines.push(el("p", { class: "grid-none" }, `${count(shown.length - to)} more rows are in run.json.`));
  body.replaceChildren(...lines);
}

function line(state, at) {
  const { columns, options, shown, grid } = state;
  const row = shown[at];
  const id = `${options.id}-${options.idOf(row)}`;
  const active = at === state.active;
  const cells = columns.map((column) => {
    const shown = column.show(row);
    const title = column.title ? column.title(row) : column.number ? null : shown;
    return el("div", { role: "gridcell", class: column.number ? "number" : null, title }, shown);
  });
  if (active) grid.setAttribute("aria-activedescendant", id);
  const click = (event) => {
    // A click on a link follows the link only.
    if (event.target.closest("a")) return;
    activate(state, at);
    options.open?.(row, grid);
  };
  const attributes = {
    id,
    role: "row",
    class: options.classOf?.(row),
    "aria-rowindex": at + 2,
    "aria-selected": String(active),
    style: `top:${at * ROW}px`,
    onclick: click,
  };
  return el("div", attributes, cells);
}

function activate(state, at) {
  if (at < 0 || at >= state.shown.length) return;
  state.active = at;
  const { scroller } = state;
  const top = at * ROW;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (top + ROW > scroller.scrollTop + room(state)) scroller.scrollTop = top + ROW - room(state);
  paint(state);
}

/** The visible height of the rows: the header covers the rest. */
function room({ scroller, head }) {
  return scroller.clientHeight - head.offsetHeight;
}

function keyed(state, event) {
  if (event.target !== state.grid) return;
  const page = Math.max(1, Math.floor(room(state) / ROW) - 1);
  const last = state.shown.length - 1;
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  if (event.key === "Enter" && state.active >= 0) state.options.open?.(state.shown[state.active], state.grid);
  else if (event.key in steps) activate(state, Math.max(0, Math.min(last, state.active + steps[event.key])));
  else return;
  event.preventDefault();
}

function printing(state, on) {
  state.printing = on;
  const rows = on ? Math.min(state.shown.length, PRINTED_MAX) + 1 : state.shown.length;
  state.body.style.height = `${Math.max(1, rows) * ROW}px`;
  paint(state);
}
