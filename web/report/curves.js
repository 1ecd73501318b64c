// Amounts over time on the timeline's axis: of the pool, of the machine, of waiting and running
// tasks.
//
// A chart has one band, whose amounts grow upwards. It may have a second band below, whose amounts
// grow downwards with a separate scale. A band is
// `{ name, value(sample), show(amount), top, ticks, limit }`: its name, its amount in a sample, the
// amount as text, the end of its scale, the marks on the scale, and an optional line across it
// (`{ value, text }`).

import { hideCard, showCard } from "./card.js";
import { announce } from "./dom.js";
import { bytes, count, plural, seconds } from "./format.js";
import { lowest } from "./lanes.js";
import { canvasIn } from "./paint.js";
import { byteTicks, panned, ticks, zoomed } from "./scale.js";
import { axisOf, drawTimes, GUTTER, listenToWheel } from "./timeline.js";

const RIGHT = 12;
/** Space above the highest and below the lowest mark. */
const EDGE = 6;
/** A limit of more than this many peaks is not drawn to scale: the area would be flat. */
const LIMIT_SHOWN = 4;

/** Draws the memory of the pool, and its capacity. */
export function startMemory(holder, run, shared) {
  const { samples, peak_bytes: peak } = run.pool;
  const capacity = samples.reduce((most, sample) => Math.max(most, sample[2]), 0);
  const label = `Memory of the pool over time: at most ${bytes(peak)} of ${bytes(capacity)}`;
  const band = bytesBand("in use", peak, { value: capacity, text: `capacity ${bytes(capacity)}` });
  const also = (sample) => [["capacity", bytes(sample[2])]];
  startCurves(holder, shared, { label, height: 140, samples, bands: [band], also });
}

/** Draws the used memory of the machine or control group, and the total. */
export function startMachineMemory(holder, used, shared) {
  const { samples, peak_memory_bytes: peak, memory_bytes: all } = used;
  const label = `Memory of the ${used.memory_of} over time: at most ${bytes(peak)} of ${bytes(all)}`;
  const band = { ...bytesBand("in use", peak, { value: all, text: `there is ${bytes(all)}` }), value: (sample) => sample[2] };
  startCurves(holder, shared, { label, height: 110, samples, bands: [band] });
}

/** Draws the busy processors of the machine or control group. */
export function startProcessors(holder, used, shared) {
  const show = (cpus) => plural(Math.round(cpus * 100) / 100, "processor");
  const { samples, cpus } = used;
  const label = `Processors of the ${used.cpus_of} over time: ${show(used.busy_cpus)} of ${show(cpus)} busy in the mean`;
  const limit = { value: cpus, text: `there are ${show(cpus)}` };
  const band = { name: "busy", value: (sample) => sample[1], show, top: cpus * 1.25, ticks: counts(cpus, 4), limit };
  startCurves(holder, shared, { label, height: 110, samples, bands: [band], backwards: true });
}

/** Draws the running tasks upwards, and the waiting tasks downwards. */
export function startLoad(holder, run, shared) {
  const { samples, running_max: running, waiting_max: waiting } = run.load;
  const show = (tasks) => plural(Math.round(tasks * 100) / 100, "task");
  const label = `Tasks over time: at most ${count(running)} ran and ${count(waiting)} waited at once`;
  const bands = [
    { name: "running", value: (sample) => sample[1], show, top: Math.max(1, running) * 1.35, ticks: counts(running, 3) },
    { name: "waiting", value: (sample) => sample[2], show, top: Math.max(1, waiting) * 1.35, ticks: counts(waiting, 3) },
  ];
  startCurves(holder, shared, { label, height: 130, samples, bands });
}

function bytesBand(name, peak, limit) {
  const inScale = limit.value > 0 && limit.value <= peak * LIMIT_SHOWN;
  const top = Math.max(1, inScale ? Math.max(limit.value, peak) * 1.18 : peak * 1.25);
  const far = inScale ? limit : { value: Infinity, text: `${limit.text}, far above` };
  const marks = byteTicks(top, 4).places.map((place) => [place, bytes(place)]);
  return { name, value: (sample) => sample[1], show: bytes, top, ticks: marks, limit: limit.value > 0 ? far : null };
}

/** Marks on a scale of whole numbers. */
function counts(most, wanted) {
  const { places } = ticks(0, Math.max(1, most), 1 / wanted);
  return places.filter(Number.isInteger).map((place) => [place, count(place)]);
}

/**
 * Draws `chart` in `holder`. The `samples` have their time first; `backwards` means that a value
 * applies to the time before its sample.
 */
function startCurves(holder, shared, chart) {
  const state = { ...chart, shared, at: 0 };
  const surface = canvasIn(holder, { ...chart, help: "curves-help" }, (...args) => drawCurves(state, ...args));
  Object.assign(state, surface);
  shared.view.watch(surface.redraw);
  listenToWheel(surface.canvas, surface.size, shared);
  listen(state);
}

/**
 * The index of the sample that applies at `time`: the last one not after it. If values apply
 * `backwards`, it is the first one not before.
 */
export function sampleAt(samples, time, backwards = false) {
  const next = lowest(samples.length, (at) => (backwards ? samples[at][0] >= time : samples[at][0] > time));
  return Math.max(0, Math.min(samples.length - 1, backwards ? next : next - 1));
}

// ---- drawing ----

function drawCurves(state, context, width, height, colours) {
  const view = state.shared.view.get();
  const axis = axisOf(view, width);
  context.clearRect(0, 0, width, height);
  drawTimes(context, view, axis, width, height - EDGE, colours, false);
  const two = state.bands.length > 1;
  state.bands.forEach((band, at) => {
    const base = two ? height / 2 : height - EDGE;
    const room = (two ? height / 2 : height - EDGE) - EDGE - 2;
    const y = (amount) => base + ((at === 0 ? -1 : 1) * Math.min(amount, band.top) * room) / band.top;
    // Both bands start at the same 0, so only one of them marks it.
    drawMarks(context, at === 0 ? band.ticks : band.ticks.filter(([place]) => place > 0), y, width, height, colours);
    drawClipped(context, width, height, () => drawBand(context, state, band, axis, y, at === 0 ? colours.accent : colours.wait));
    if (band.limit) drawLimit(context, band, y, width, colours);
    if (two) drawName(context, band, at === 0 ? EDGE + 2 : height - EDGE - 2, width, colours);
  });
}

function drawClipped(context, width, height, draw) {
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - GUTTER - RIGHT, height);
  context.clip();
  draw();
  context.restore();
}

function drawMarks(context, marks, y, width, height, colours) {
  context.textAlign = "right";
  for (const [place, text] of marks) {
    const row = Math.round(y(place)) + 0.5;
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(GUTTER, row);
    context.lineTo(width - RIGHT, row);
    context.stroke();
    context.fillStyle = colours.muted;
    context.fillText(text, GUTTER - 8, Math.min(Math.max(row, 8), height - 8));
  }
  context.textAlign = "left";
}

function drawBand(context, { samples, backwards }, { value }, axis, y, colour) {
  if (samples.length === 0) return;
  const outline = new Path2D();
  outline.moveTo(axis.x(samples[0][0]), y(value(samples[0])));
  for (let at = 1; at < samples.length; at += 1) {
    // An amount applies until the next sample or, backwards, since the previous one.
    const x = axis.x(samples[at][0]);
    if (backwards) outline.lineTo(axis.x(samples[at - 1][0]), y(value(samples[at])));
    else outline.lineTo(x, y(value(samples[at - 1])));
    outline.lineTo(x, y(value(samples[at])));
  }
  const end = axis.x(samples.at(-1)[0]);
  const area = new Path2D(outline);
  area.lineTo(end, y(0));
  area.lineTo(axis.x(samples[0][0]), y(0));
  context.fillStyle = colour;
  context.globalAlpha = 0.17;
  context.fill(area);
  context.globalAlpha = 1;
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.stroke(outline);
}

function drawLimit(context, { limit, top }, y, width, colours) {
  const inScale = limit.value <= top;
  const row = inScale ? Math.round(y(limit.value)) + 0.5 : 1.5;
  context.strokeStyle = colours.ink;
  context.lineWidth = 1;
  context.setLineDash([5, 4]);
  context.beginPath();
  context.moveTo(GUTTER, row);
  context.lineTo(width - RIGHT, row);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = colours.ink;
  context.textAlign = "right";
  context.fillText(limit.text, width - RIGHT - 4, inScale ? row - 8 : row + 10);
  context.textAlign = "left";
}

function drawName(context, { name }, y, width, colours) {
  // An outline in the background colour, because the curve may be behind the text.
  context.strokeStyle = colours.paper;
  context.lineWidth = 4;
  context.textAlign = "right";
  context.strokeText(name, width - RIGHT - 4, y + (y < 20 ? 4 : -4));
  context.fillStyle = colours.ink;
  context.fillText(name, width - RIGHT - 4, y + (y < 20 ? 4 : -4));
  context.textAlign = "left";
}

// ---- pointer and keys ----

function listen(state) {
  const { canvas, samples, shared } = state;
  const lines = (sample) => [
    ...state.bands.map(({ name, value, show }) => [name, show(value(sample))]),
    ...(state.also?.(sample) ?? []),
  ];
  const show = (sample, x, y) => showCard(`At ${seconds(sample[0])}`, lines(sample), x, y);
  canvas.addEventListener("pointermove", (event) => {
    if (samples.length === 0) return;
    const axis = axisOf(shared.view.get(), state.size.width);
    show(samples[sampleAt(samples, axis.time(event.offsetX), state.backwards)], event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", hideCard);
  canvas.addEventListener("blur", hideCard);
  canvas.addEventListener("keydown", (event) => {
    if (samples.length === 0 || !pressed(state, event.key)) return;
    event.preventDefault();
    const sample = samples[state.at];
    const box = canvas.getBoundingClientRect();
    show(sample, box.left + axisOf(shared.view.get(), state.size.width).x(sample[0]), box.top + 20);
    announce(
      `At ${seconds(sample[0])}: ${lines(sample)
        .map(([name, text]) => `${name} ${text}`)
        .join(", ")}.`,
    );
  });
}

function pressed(state, key) {
  const { samples, shared } = state;
  const view = shared.view.get();
  const stride = Math.max(1, Math.round(samples.length / 100));
  if (key === "ArrowRight") state.at = Math.min(samples.length - 1, state.at + stride);
  else if (key === "ArrowLeft") state.at = Math.max(0, state.at - stride);
  else if (key === "+" || key === "=") shared.view.set(zoomed(view, 0.6, samples[state.at][0]));
  else if (key === "-") shared.view.set(zoomed(view, 1 / 0.6, samples[state.at][0]));
  else if (key === "0") shared.view.set({ ...view, from: view.min, to: view.max });
  else if (key === "PageUp" || key === "PageDown")
    shared.view.set(panned(view, ((view.to - view.from) / 2) * (key === "PageUp" ? -1 : 1)));
  else return false;
  return true;
}
