// Bars of the timeline: every attempt of every task in a lane, without overlap. Pure: no DOM.

/**
 * Tolerance for bars that touch. Times are rounded to the microsecond, so two equal ones may differ
 * by one.
 */
const TOUCHING_S = 2e-6;

/**
 * Returns `{ bars, lanes, groups }`: bars `{ task, attempt, lane, span, start, end, earlier }`,
 * ordered by lane and start; `lanes[i]` is the index in `bars` of lane i's first bar (with one more
 * at the end). A bar is in its attempt's slot or, if that is occupied, in the first free lane.
 *
 * The lanes of each of the `nodes` are a group `{ node, first, lane, count }`: its first slot, its
 * first lane, the number of its lanes. Without nodes there is one group, with node null.
 */
export function barsOf(tasks, slots, nodes = []) {
  const groups = nodes.length > 0 ? nodes.map(groupOf) : [groupOf({ first_slot: 0, slots }, null)];
  const bars = attemptsOf(tasks).sort((a, b) => a.start - b.start || a.task.id - b.task.id);
  for (const bar of bars) {
    const { first, ends } = groups[bar.attempt.node ?? 0] ?? groups[0];
    place(bar, (bar.attempt.slot ?? 0) - first, ends);
    for (let lane = bar.lane; lane < bar.lane + bar.span; lane += 1) ends[lane] = bar.end;
  }
  const laneCount = stack(groups);
  for (const bar of bars) bar.lane += (groups[bar.attempt.node ?? 0] ?? groups[0]).lane;
  bars.sort((a, b) => a.lane - b.lane || a.start - b.start);
  const lanes = Array.from({ length: laneCount + 1 }, (_, lane) => lowest(bars.length, (at) => bars[at].lane >= lane));
  return { bars, lanes, groups: groups.map(({ node, first, lane, ends }) => ({ node, first, lane, count: ends.length })) };
}

function groupOf({ first_slot: first, slots }, node) {
  return { node, first, lane: 0, ends: new Array(Math.max(1, slots)).fill(-Infinity) };
}

/** Puts the lanes of each group below those of the group before; returns their number. */
function stack(groups) {
  let lane = 0;
  for (const group of groups) {
    group.lane = lane;
    lane += group.ends.length;
  }
  return lane;
}

function attemptsOf(tasks) {
  const bars = [];
  for (const task of tasks) {
    for (const attempt of task.earlier ?? [])
      bars.push({ task, attempt, start: attempt.start_s, end: attempt.end_s, earlier: attempt.text });
    if (task.start_s === null) continue;
    bars.push({ task, attempt: task, start: task.start_s, end: task.end_s ?? task.start_s, earlier: null });
  }
  return bars;
}

function place(bar, slot, ends) {
  const free = (lane) => lane >= 0 && lane < ends.length && ends[lane] <= bar.start + TOUCHING_S;
  const span = bar.task.cpus ?? 1;
  const fits = (from, size) => {
    for (let lane = from; lane < from + size; lane += 1) if (!free(lane)) return false;
    return true;
  };
  bar.span = span;
  bar.lane = slot;
  if (fits(bar.lane, span)) return;
  for (bar.lane = 0; bar.lane + span <= ends.length; bar.lane += 1) if (fits(bar.lane, span)) return;
  bar.span = 1;
  bar.lane = ends.findIndex((_, lane) => free(lane));
  if (bar.lane < 0) bar.lane = ends.push(-Infinity) - 1;
}

/**
 * The rows of `groups` from pixel `top` on: `{ tops, bottom }` with the top of each lane. A heading
 * of `headHeight` is above each group.
 */
export function rowsOf(groups, top, laneHeight, headHeight) {
  const tops = [];
  let y = top;
  for (const { count } of groups) {
    y += headHeight;
    for (let at = 0; at < count; at += 1, y += laneHeight) tops.push(y);
  }
  return { tops, bottom: y };
}

/** The lane at pixel `y`; -1 above the lanes, below them, and in a heading. */
export function laneAt(tops, laneHeight, y) {
  const lane = lowest(tops.length, (at) => tops[at] > y) - 1;
  return lane >= 0 && y < tops[lane] + laneHeight ? lane : -1;
}

/** The bar at `time` in `lane`, or within `slack` seconds of it; null if there is none. */
export function barAt({ bars, lanes }, lane, time, slack) {
  if (lane < 0 || lane + 1 >= lanes.length) return null;
  const [from, to] = [lanes[lane], lanes[lane + 1]];
  const next = from + lowest(to - from, (at) => bars[from + at].start > time);
  const near = [bars[next - 1], bars[next]].filter((bar, at) => bar && next - 1 + at >= from && next - 1 + at < to);
  const gap = (bar) => Math.max(bar.start - time, time - bar.end, 0);
  const best = near.sort((a, b) => gap(a) - gap(b))[0];
  return best && gap(best) <= slack ? best : null;
}

/**
 * The index in `bars` of the neighbour of bar `at` for an arrow key: the one before, the one after,
 * or one in the lane above or below at that time.
 */
export function neighbour({ bars, lanes }, at, key) {
  const bar = bars[at];
  if (key === "ArrowLeft") return Math.max(lanes[bar.lane], at - 1);
  if (key === "ArrowRight") return Math.min(lanes[bar.lane + 1] - 1, at + 1);
  const step = key === "ArrowUp" ? -1 : 1;
  for (let lane = bar.lane + step; lane >= 0 && lane + 1 < lanes.length; lane += step) {
    const [from, to] = [lanes[lane], lanes[lane + 1]];
    if (from === to) continue;
    const next = from + lowest(to - from, (index) => bars[from + index].start > bar.start);
    return next > from && (next === to || bars[next - 1].end > bar.start) ? next - 1 : Math.min(next, to - 1);
  }
  return at;
}

/**
 * The smallest number below `size` for which `test` is true, otherwise `size`. `test` must be
 * monotonic: it stays true.
 */
export function lowest(size, test) {
  let [from, to] = [0, size];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (test(middle)) to = middle;
    else from = middle + 1;
  }
  return from;
}
