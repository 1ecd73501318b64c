// The timeline: a bar for every attempt, in the lane of its slot; the lanes of a node are below its
// name. A timeline that is higher than a screen scrolls, and its axis stays in sight.
//
// Keys: arrows move between tasks, + and - zoom around the task, 0 shows everything, Enter opens
// the task. Pointer: dragging across a span zooms into it, a double-click shows everything; the
// wheel zooms if the chart has the focus, or with Ctrl.

import { hideCard, showCard } from "./card.js";
import { announce } from "./dom.js";
import { linesOf, spoken, titleOf } from "./facts.js";
import { instant, plural } from "./format.js";
import { barAt, barsOf, laneAt, lowest, neighbour, rowsOf } from "./lanes.js";
import { drawAbsence, drawHeading, HEAD, nodeLines } from "./nodes.js";
import { canvasIn, cross, fittingText, hatch } from "./paint.js";
import { clockTicks, framed, panned, showing, windowOn, zoomed } from "./scale.js";

/** Space to the left of the charts with the time axis, for lane numbers and amounts. */
export const GUTTER = 72;
const RIGHT = 12;
const AXIS = 26;
/**
 * Space above the lanes for a mark of each failure, which would be invisible in a bar of one pixel.
 */
const RAIL = 14;
/** The height above which the timeline scrolls; all lanes of one host may be as high. */
const TALL = 720;

/**
 * Draws the timeline in `holder`; `shared` has the `view` of the time axis, the `selected` task and
 * `open(task)`.
 */
export function startTimeline(holder, model, shared) {
  const { nodes = [], settings } = model.run;
  const chart = barsOf(model.tasks, settings.slots, nodes);
  const laneCount = chart.lanes.length - 1;
  const laneHeight = Math.max(5, Math.min(28, Math.floor(420 / laneCount)));
  const { tops, bottom } = rowsOf(chart.groups, AXIS + RAIL, laneHeight, nodes.length > 0 ? HEAD : 0);
  const height = bottom + 6;
  const of = nodes.length > 0 ? ` of ${plural(nodes.length, "node")}` : "";
  const label = `Timeline: ${chart.bars.length} attempts in ${laneCount} slots${of}`;
  const state = {
    chart,
    laneHeight,
    tops,
    holder,
    scrolled: 0,
    printing: false,
    model,
    shared,
    at: null,
    drag: null,
    crossed: failuresOf(chart),
    path: pathOf(model, chart),
  };
  if (nodes.length > 0 && height > TALL) letScroll(state);
  const surface = canvasIn(holder, { label, help: "timeline-help", height }, (...args) => drawTimeline(state, ...args));
  Object.assign(state, surface);
  shared.view.watch(surface.redraw);
  shared.selected.watch((task) => follow(state, task));
  shared.highlight.watch(surface.redraw);
  listenToKeys(state);
  listenToPointer(state);
}

/** Limits the height of the timeline on the screen, not on paper. */
function letScroll(state) {
  const { holder } = state;
  holder.classList.add("tall");
  const moved = () => {
    state.scrolled = holder.scrollTop;
    state.redraw();
  };
  holder.addEventListener("scroll", moved, { passive: true });
  // Before the canvas is painted for paper.
  addEventListener("beforeprint", () => Object.assign(state, { scrolled: 0, printing: true }));
  addEventListener("afterprint", () => {
    state.printing = false;
    moved();
  });
}

/** The view of a whole run. */
export function wholeRun(run) {
  return windowOn(
    0,
    run.tasks.reduce((end, task) => Math.max(end, task.end_s ?? 0), run.totals.makespan_s),
  );
}

/** Converts `time` to a pixel, and back. */
export function axisOf(view, width) {
  const span = Math.max(1, width - GUTTER - RIGHT);
  const perSecond = span / (view.to - view.from);
  return { perSecond, x: (time) => GUTTER + (time - view.from) * perSecond, time: (x) => view.from + (x - GUTTER) / perSecond };
}

/** Vertical lines and labels of the time axis. */
export function drawTimes(context, view, axis, width, height, colours, labelled) {
  const { step, places } = clockTicks(view.from, view.to, 110 / Math.max(110, width - GUTTER));
  context.strokeStyle = colours.line;
  context.fillStyle = colours.muted;
  context.textAlign = "center";
  for (const place of places) {
    const x = Math.round(axis.x(place)) + 0.5;
    context.beginPath();
    context.moveTo(x, labelled ? AXIS - 4 : 0);
    context.lineTo(x, height);
    context.stroke();
    if (labelled && x < width - 16) context.fillText(instant(place, step), Math.max(x, GUTTER + 2), 10);
  }
  context.textAlign = "left";
}

/** The bars of the critical path, in order of time. */
function pathOf({ run }, { bars }) {
  const byTask = new Map();
  for (const bar of bars) byTask.set(bar.task.id, [...(byTask.get(bar.task.id) ?? []), bar]);
  const until = (step) => (byTask.get(step.task) ?? []).filter((bar) => bar.start < step.end_s).sort((a, b) => a.start - b.start);
  return (run.critical_path?.steps ?? []).flatMap(until);
}

function failuresOf({ bars }) {
  return bars.filter((bar) => bar.earlier !== null || bar.task.status === "failed").sort((a, b) => a.end - b.end);
}

// ---- drawing ----

function drawTimeline(state, context, width, height, colours) {
  const { chart, shared } = state;
  const view = shared.view.get();
  const axis = axisOf(view, width);
  context.clearRect(0, 0, width, height);
  drawTimes(context, view, axis, width, height, colours, true);
  const groups = chart.groups.filter((group) => isInSight(state, group));
  for (const group of groups) drawGroup(state, context, group, axis, width, colours);
  context.save();
  context.beginPath();
  context.rect(GUTTER, AXIS, width - GUTTER - RIGHT, height);
  context.clip();
  for (const { lane: first, count } of groups)
    for (let lane = first; lane < first + count; lane += 1) drawLane(state, context, lane, view, axis, colours);
  drawPath(state, context, view, axis, colours);
  drawFocus(state, context, axis, colours);
  drawDrag(state, context, height, colours);
  context.restore();
  context.save();
  context.translate(0, state.scrolled);
  if (state.scrolled > 0) drawAxisAgain(context, view, axis, width, colours);
  drawFailures(state, context, view, axis, colours);
  context.restore();
}

/** True if a part of a node's lanes, or of its heading, is in the visible part of the timeline. */
function isInSight({ holder, laneHeight, printing, scrolled, tops }, { lane, count }) {
  if (printing || !holder.classList.contains("tall")) return true;
  return tops[lane] - HEAD <= scrolled + holder.clientHeight && tops[lane] + count * laneHeight >= scrolled;
}

/** Draws the axis over the lanes that are scrolled below it. */
function drawAxisAgain(context, view, axis, width, colours) {
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, AXIS + RAIL);
  drawTimes(context, view, axis, width, AXIS + RAIL, colours, true);
}

/** Draws the lanes of a node, and its heading; without nodes, all lanes. */
function drawGroup(state, context, group, axis, width, colours) {
  const { laneHeight, model, tops } = state;
  const top = tops[group.lane];
  drawLanes(state, context, group, width, colours);
  if (group.node === null) return;
  const space = { top, bottom: top + group.count * laneHeight, left: GUTTER, right: width - RIGHT };
  drawAbsence(context, model.run, group.node, space, axis, colours);
  drawHeading(context, model.run, group.node, top, space, colours);
}

function drawLanes({ chart, laneHeight, model, tops }, context, { node, first, lane: start, count }, width, colours) {
  const lanes = chart.lanes.length - 1;
  const write = (text, y) => context.fillText(text, GUTTER - 10, y + 0.5);
  // Lanes beyond the slots of a node have no number, because their numbers are those of the next.
  const numbered = node === null ? count : model.run.nodes[node].slots;
  const every = Math.ceil(14 / laneHeight);
  // Below a heading there is no room for numbers of low lanes, but for the first and the last.
  const asRange = node !== null && every > 1 && numbered > 1;
  context.textAlign = "right";
  for (let at = 0; at < count; at += 1) {
    const y = tops[start + at];
    context.fillStyle = at % 2 === 0 ? colours.panel : colours.paper;
    context.globalAlpha = 0.7;
    context.fillRect(GUTTER, y, width - GUTTER - RIGHT, laneHeight);
    context.globalAlpha = 1;
    context.fillStyle = colours.muted;
    if (at % every === 0 && at < numbered && !asRange)
      write(lanes > 1 && start + at > 0 ? String(first + at) : `slot ${first + at}`, y + laneHeight / 2);
  }
  if (asRange) write(`${first}–${first + numbered - 1}`, tops[start] + (numbered * laneHeight) / 2);
  context.textAlign = "left";
}

function drawLane(state, context, lane, view, axis, colours) {
  const { chart, laneHeight, model, shared, tops } = state;
  const [from, to] = [chart.lanes[lane], chart.lanes[lane + 1]];
  let at = from + lowest(to - from, (index) => chart.bars[from + index].end >= view.from);
  const only = shared.highlight.get();
  let painted = -Infinity;
  for (; at < to && chart.bars[at].start <= view.to; at += 1) {
    const bar = chart.bars[at];
    const x = Math.max(axis.x(bar.start), GUTTER - 2);
    const right = Math.min(axis.x(bar.end), axis.x(view.to) + 2);
    // A bar within a painted pixel would not be visible.
    if (right - x < 1 && right < painted + 0.5) continue;
    painted = Math.max(x + 1, right);
    const shape = { x, y: tops[lane] + 1, width: Math.max(1, right - x - 0.5), height: bar.span * laneHeight - 2 };
    context.globalAlpha = only === null || only === bar.task.tool ? 1 : 0.15;
    drawMoving(context, bar, x, tops[lane] + laneHeight / 2, axis, colours);
    drawBar(context, bar, shape, colours.tool(model.tools.get(bar.task.tool).colour), colours);
  }
  context.globalAlpha = 1;
}

/** Draws the time in which an attempt was prepared: a line up to its bar. */
function drawMoving(context, { attempt, start }, x, middle, axis, colours) {
  const from = axis.x(start - (attempt.prepared_s ?? 0));
  if (x - from < 1) return;
  context.fillStyle = colours.move;
  context.fillRect(from, middle - 1.5, x - from, 3);
}

function drawBar(context, bar, { x, y, width, height }, { fill, edge, ink }, colours) {
  const mark = toneOf(bar, colours);
  context.fillStyle = fill;
  context.fillRect(x, y, width, height);
  if (mark && width >= 3) hatch(context, x, y, width, height, mark);
  if (width >= 4) {
    context.strokeStyle = mark ?? edge;
    context.lineWidth = mark ? 1.5 : 1;
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  } else if (mark) {
    context.fillStyle = mark;
    context.fillRect(x, y, Math.max(1, width), height);
  }
  if (width < 34 || height < 13 || mark) return;
  context.fillStyle = ink;
  fittingText(context, bar.task.tool, x + 6, y + height / 2 + 0.5, width - 10);
}

/** The colour of a bar's failure; null if there is none. */
function toneOf({ task, earlier }, colours) {
  if (task.status === "failed" || earlier !== null) return colours.bad;
  return task.status === "cancelled" ? colours.stopped : null;
}

/** Draws the critical path: a line below its bars, and vertical lines from each bar to the next. */
function drawPath({ path, laneHeight, tops }, context, view, axis, colours) {
  const foot = (bar) => tops[bar.lane] + bar.span * laneHeight - Math.min(2.5, laneHeight / 3);
  context.strokeStyle = colours.ink;
  context.lineWidth = Math.min(3, Math.max(1.5, laneHeight / 8));
  context.beginPath();
  path.forEach((bar, at) => {
    const next = path[at + 1];
    if (bar.end < view.from || bar.start > view.to) return;
    context.moveTo(axis.x(bar.start), foot(bar));
    context.lineTo(axis.x(bar.end), foot(bar));
    if (next) context.lineTo(axis.x(bar.end), foot(next));
    if (next) context.lineTo(axis.x(next.start), foot(next));
  });
  context.stroke();
}

function drawFailures({ crossed }, context, view, axis, colours) {
  let last = -Infinity;
  for (const bar of crossed) {
    const x = axis.x(bar.end);
    if (bar.end < view.from || bar.end > view.to || x - last < 9) continue;
    last = x;
    cross(context, Math.min(Math.max(x, GUTTER + 5), axis.x(view.to) - 5), AXIS + RAIL / 2, 7, colours.bad);
  }
}

function drawFocus({ at, chart, laneHeight, tops }, context, axis, colours) {
  if (at === null) return;
  const bar = chart.bars[at];
  const x = axis.x(bar.start);
  const y = tops[bar.lane];
  context.strokeStyle = colours.ink;
  context.lineWidth = 2;
  context.strokeRect(x - 1, y, Math.max(3, axis.x(bar.end) - x + 1), bar.span * laneHeight);
}

function drawDrag({ drag }, context, height, colours) {
  if (!drag?.moved) return;
  context.fillStyle = colours.accent;
  context.globalAlpha = 0.18;
  context.fillRect(Math.min(drag.from, drag.to), AXIS, Math.abs(drag.to - drag.from), height);
  context.globalAlpha = 1;
}

// ---- keys ----

function listenToKeys(state) {
  const { canvas } = state;
  canvas.addEventListener("keydown", (event) => {
    if (event.altKey || event.metaKey || event.ctrlKey || !pressed(state, event.key)) return;
    event.preventDefault();
  });
  canvas.addEventListener("focus", () => {
    if (state.at === null && state.chart.bars.length > 0) state.at = firstInView(state);
    if (canvas.matches(":focus-visible")) tell(state);
    state.redraw();
  });
  canvas.addEventListener("blur", hideCard);
}

/** Executes the command of `key`; returns false if it has none. */
function pressed(state, key) {
  const { chart, shared, at } = state;
  const view = shared.view.get();
  const centre = at === null ? (view.from + view.to) / 2 : chart.bars[at].start;
  if (key === "+" || key === "=") shared.view.set(zoomed(view, 0.6, centre));
  else if (key === "-") shared.view.set(zoomed(view, 1 / 0.6, centre));
  else if (key === "0") shared.view.set({ ...view, from: view.min, to: view.max });
  else if (key === "PageUp" || key === "PageDown")
    shared.view.set(panned(view, ((view.to - view.from) / 2) * (key === "PageUp" ? -1 : 1)));
  else if (key === "Escape") hideCard();
  else if (at === null) return false;
  else if (key === "Enter" || key === " ") shared.open(chart.bars[at].task, state.canvas);
  else if (key === "Home") go(state, chart.lanes[chart.bars[at].lane]);
  else if (key === "End") go(state, chart.lanes[chart.bars[at].lane + 1] - 1);
  else if (key.startsWith("Arrow")) go(state, neighbour(chart, at, key));
  else return false;
  return true;
}

function go(state, at) {
  state.at = at;
  const bar = state.chart.bars[at];
  state.shared.view.set(showing(state.shared.view.get(), bar.start, bar.end));
  state.shared.selected.set(bar.task);
  bringInSight(state, bar);
  state.redraw();
  tell(state);
}

/** Scrolls a tall timeline to `bar`. */
function bringInSight({ holder, laneHeight, tops }, bar) {
  const [top, bottom] = [tops[bar.lane] - AXIS - RAIL - HEAD, tops[bar.lane] + bar.span * laneHeight + 6];
  holder.scrollTop = Math.min(top, Math.max(holder.scrollTop, bottom - holder.clientHeight));
}

function tell(state) {
  if (state.at === null) return;
  const { task, attempt, start } = state.chart.bars[state.at];
  const box = state.holder.getBoundingClientRect();
  const axis = axisOf(state.shared.view.get(), state.size.width);
  // Below the chart, where the card hides no bar.
  showCard(titleOf(task), linesOf(state.model, task, attempt), box.left + Math.max(GUTTER, axis.x(start)), box.bottom - 12);
  announce(spoken(state.model, task));
}

function firstInView({ chart, shared }) {
  const view = shared.view.get();
  const at = chart.bars.findIndex((bar) => bar.end >= view.from && bar.start <= view.to);
  return at < 0 ? 0 : at;
}

function follow(state, task) {
  if (task !== null && state.chart.bars[state.at]?.task !== task) {
    const at = state.chart.bars.findIndex((bar) => bar.task === task && bar.earlier === null);
    state.at = at < 0 ? null : at;
  }
  state.redraw();
}

// ---- pointer ----

function listenToPointer(state) {
  const { canvas, shared } = state;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.offsetX < GUTTER) return;
    canvas.setPointerCapture(event.pointerId);
    state.drag = { from: event.offsetX, to: event.offsetX, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => moved(state, event));
  canvas.addEventListener("pointerup", (event) => dropped(state, event));
  canvas.addEventListener("pointercancel", () => (state.drag = null));
  canvas.addEventListener("pointerleave", hideCard);
  canvas.addEventListener("dblclick", () =>
    shared.view.set({ ...shared.view.get(), from: shared.view.get().min, to: shared.view.get().max }),
  );
  listenToWheel(canvas, state.size, shared);
}

/** Zooms and pans the time axis by the wheel, but only where the page would not scroll instead. */
export function listenToWheel(canvas, size, shared) {
  const wheel = (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    const view = shared.view.get();
    const axis = axisOf(view, size.width);
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) shared.view.set(panned(view, event.deltaX / axis.perSecond));
    else shared.view.set(zoomed(view, Math.exp(event.deltaY * 0.002), axis.time(event.offsetX)));
  };
  canvas.addEventListener("wheel", wheel, { passive: false });
}

function moved(state, event) {
  if (state.drag) {
    state.drag.to = event.offsetX;
    state.drag.moved ||= Math.abs(state.drag.to - state.drag.from) > 4;
    if (state.drag.moved) hideCard();
    state.redraw();
    return;
  }
  const bar = under(state, event);
  const node = nodeUnder(state, event.offsetY);
  state.canvas.style.cursor = bar ? "pointer" : node === null ? "crosshair" : "default";
  const { clientX: x, clientY: y } = event;
  if (bar) showCard(titleOf(bar.task), linesOf(state.model, bar.task, bar.attempt), x, y);
  else if (node !== null) showCard(state.model.run.nodes[node].name, nodeLines(state.model, node), x, y);
  else hideCard();
}

function dropped(state, event) {
  const { drag, shared, chart } = state;
  state.drag = null;
  if (!drag) return;
  const axis = axisOf(shared.view.get(), state.size.width);
  if (drag.moved) {
    shared.view.set(framed(shared.view.get(), axis.time(drag.from), axis.time(drag.to)));
  } else {
    const bar = under(state, event);
    if (!bar) return;
    state.at = chart.bars.indexOf(bar);
    shared.selected.set(bar.task);
    shared.open(bar.task, state.canvas);
  }
  state.redraw();
}

function under({ chart, laneHeight, scrolled, shared, size, tops }, event) {
  const axis = axisOf(shared.view.get(), size.width);
  if (event.offsetX < GUTTER || event.offsetY < scrolled + AXIS + RAIL) return null;
  return barAt(chart, laneAt(tops, laneHeight, event.offsetY), axis.time(event.offsetX), 3 / axis.perSecond);
}

/** The node whose heading is at pixel `y`; null if none is. */
function nodeUnder({ chart, scrolled, tops }, y) {
  if (y < scrolled + AXIS + RAIL) return null;
  const group = chart.groups.find(({ lane }) => y >= tops[lane] - HEAD && y < tops[lane]);
  return group?.node ?? null;
}
