// Bars of the timeline: every attempt of every task in a lane, without overlap. Pure: no DOM.

/**
 * Tolerance for bars that touch. Times are rounded to the microsecond, so two equal ones may differ
 * by one.
 */
const TOUCHING_S = 2e-6;

/**
 * Returns `{ bars, lanes }`: bars `{ task, lane, span, start, end, earlier }`, ordered by lane and
 * start; `lanes[i]` is the index in `bars` of lane i's first bar (with one more at the end). A bar
 * is in its task's slot or, if that is occupied, in the first free lane.
 */
export function barsOf(tasks, slots) {
  const bars = attemptsOf(tasks).sort((a, b) => a.start - b.start || a.task.id - b.task.id);
  const ends = new Array(Math.max(1, slots)).fill(-Infinity);
  for (const bar of bars) {
    place(bar, ends);
    for (let lane = bar.lane; lane < bar.lane + bar.span; lane += 1) ends[lane] = bar.end;
  }
  bars.sort((a, b) => a.lane - b.lane || a.start - b.start);
  const lanes = ends.map((_, lane) => lowest(bars.length, (at) => bars[at].lane >= lane));
  return { bars, lanes: [...lanes, bars.length] };
}

function attemptsOf(tasks) {
  const bars = [];
  for (const task of tasks) {
    for (const { slot, start_s: start, end_s: end, text } of task.earlier ?? [])
      bars.push({ task, slot, start, end, earlier: text });
    if (task.start_s === null) continue;
    bars.push({ task, slot: task.slot ?? 0, start: task.start_s, end: task.end_s ?? task.start_s, earlier: null });
  }
  return bars;
}

function place(bar, ends) {
  const free = (lane) => lane < ends.length && ends[lane] <= bar.start + TOUCHING_S;
  const span = bar.task.cpus ?? 1;
  const fits = (from, size) => {
    for (let lane = from; lane < from + size; lane += 1) if (!free(lane)) return false;
    return true;
  };
  bar.span = span;
  bar.lane = bar.slot;
  if (fits(bar.lane, span)) return;
  for (bar.lane = 0; bar.lane + span <= ends.length; bar.lane += 1) if (fits(bar.lane, span)) return;
  bar.span = 1;
  bar.lane = ends.findIndex((_, lane) => free(lane));
  if (bar.lane < 0) bar.lane = ends.push(-Infinity) - 1;
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
