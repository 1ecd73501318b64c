// Memory of the pool over time, on the timeline's axis: an area, and a line where the pool would have been full.

import { hideCard, showCard } from "./card.js";
import { announce } from "./dom.js";
import { bytes, seconds } from "./format.js";
import { lowest } from "./lanes.js";
import { canvasIn } from "./paint.js";
import { byteTicks, panned, zoomed } from "./scale.js";
import { axisOf, drawTimes, GUTTER, listenToWheel } from "./timeline.js";

const HEIGHT = 150;
const RIGHT = 12;
/** A capacity of more than this many peaks is not drawn to scale: the area would be a line. */
const CAPACITY_SHOWN = 4;

/** Draws the chart in `holder`. */
export function startMemory(holder, run, shared) {
  const { samples, peak_bytes: peak } = run.pool;
  const capacity = Math.max(0, ...samples.map((sample) => sample[2]));
  const inScale = capacity > 0 && capacity <= peak * CAPACITY_SHOWN;
  const top = Math.max(1, inScale ? Math.max(capacity, peak) * 1.12 : peak * 1.25);
  const state = { samples, capacity, inScale, top, shared, at: 0 };
  const label = `Memory of the pool over time: at most ${bytes(peak)} of ${bytes(capacity)}`;
  const surface = canvasIn(holder, { label, help: "memory-help", height: HEIGHT }, (...args) => drawMemory(state, ...args));
  Object.assign(state, surface);
  shared.view.watch(surface.redraw);
  listenToWheel(surface.canvas, surface.size, shared);
  listen(state);
}

/** The sample that holds at `time`: the last one not after it. */
export function sampleAt(samples, time) {
  return samples[Math.max(0, lowest(samples.length, (at) => samples[at][0] > time) - 1)];
}

function drawMemory(state, context, width, height, colours) {
  const { samples, top, shared, capacity, inScale } = state;
  const view = shared.view.get();
  const axis = axisOf(view, width);
  const y = (amount) => height - 6 - (amount / top) * (height - 14);
  context.clearRect(0, 0, width, height);
  drawTimes(context, view, axis, width, height - 6, colours, false);
  drawAmounts(context, top, y, width, colours);
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - GUTTER - RIGHT, height);
  context.clip();
  drawArea(context, samples, axis, y, view, colours);
  context.restore();
  drawCapacity(context, { capacity, inScale, y, width }, colours);
}

function drawAmounts(context, top, y, width, colours) {
  context.textAlign = "right";
  for (const place of byteTicks(top, 4).places) {
    const row = Math.round(y(place)) + 0.5;
    context.strokeStyle = colours.line;
    context.beginPath();
    context.moveTo(GUTTER, row);
    context.lineTo(width - RIGHT, row);
    context.stroke();
    context.fillStyle = colours.muted;
    context.fillText(bytes(place), GUTTER - 8, Math.min(Math.max(row, 8), HEIGHT - 8));
  }
  context.textAlign = "left";
}

function drawArea(context, samples, axis, y, view, colours) {
  if (samples.length === 0) return;
  const outline = new Path2D();
  outline.moveTo(axis.x(samples[0][0]), y(samples[0][1]));
  for (let at = 1; at < samples.length; at += 1) {
    // An amount holds until the next one was seen.
    outline.lineTo(axis.x(samples[at][0]), y(samples[at - 1][1]));
    outline.lineTo(axis.x(samples[at][0]), y(samples[at][1]));
  }
  const area = new Path2D(outline);
  area.lineTo(axis.x(samples.at(-1)[0]), y(0));
  area.lineTo(axis.x(samples[0][0]), y(0));
  context.fillStyle = colours.area;
  context.fill(area);
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  context.stroke(outline);
}

function drawCapacity(context, { capacity, inScale, y, width }, colours) {
  if (capacity === 0) return;
  const row = inScale ? Math.round(y(capacity)) + 0.5 : 1.5;
  const text = inScale ? `capacity ${bytes(capacity)}` : `capacity ${bytes(capacity)}, far above`;
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
  context.fillText(text, width - RIGHT - 4, inScale ? row - 8 : row + 10);
  context.textAlign = "left";
}

function listen(state) {
  const { canvas, samples, shared } = state;
  const show = (sample, x, y) => {
    const lines = [
      ["in use", bytes(sample[1])],
      ["capacity", bytes(sample[2])],
    ];
    showCard(`At ${seconds(sample[0])}`, lines, x, y);
  };
  canvas.addEventListener("pointermove", (event) => {
    if (samples.length === 0) return;
    const axis = axisOf(shared.view.get(), state.size.width);
    show(sampleAt(samples, axis.time(event.offsetX)), event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", hideCard);
  canvas.addEventListener("blur", hideCard);
  canvas.addEventListener("keydown", (event) => {
    if (samples.length === 0 || !pressed(state, event.key)) return;
    event.preventDefault();
    const sample = samples[state.at];
    const box = canvas.getBoundingClientRect();
    show(sample, box.left + axisOf(shared.view.get(), state.size.width).x(sample[0]), box.top + 20);
    announce(`At ${seconds(sample[0])}: ${bytes(sample[1])} in use.`);
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
