// The visible window of an axis: zoom, pan, ticks. Pure: no DOM.

/**
 * The narrowest window, as a fraction of the whole: more than a million-fold zoom would only show
 * rounding.
 */
const NARROWEST = 1e-5;

/** A window on all of `[min, max]`. */
export function windowOn(min, max) {
  const end = max > min ? max : min + 1;
  return { min, max: end, from: min, to: end };
}

/** The window scaled by `factor` (below 1: zoomed in) around `at`, which keeps its position. */
export function zoomed(view, factor, at) {
  const whole = view.max - view.min;
  const width = Math.min(whole, Math.max(whole * NARROWEST, (view.to - view.from) * factor));
  const part = (at - view.from) / (view.to - view.from);
  return clamped(view, at - part * width, width);
}

/** The window moved by `by`, within the axis. */
export function panned(view, by) {
  return clamped(view, view.from + by, view.to - view.from);
}

/** The window on `[from, to]`, in either order. */
export function framed(view, from, to) {
  const width = Math.max(Math.abs(to - from), (view.max - view.min) * NARROWEST);
  return clamped(view, Math.min(from, to), Math.min(width, view.max - view.min));
}

/** The window moved by the minimum so that `[from, to]`, or its start, is visible. */
export function showing(view, from, to) {
  if (from >= view.from && to <= view.to) return view;
  const width = view.to - view.from;
  const start = to - from > width || from < view.from ? from - width * 0.05 : to - width * 0.95;
  return clamped(view, start, width);
}

function clamped(view, from, width) {
  const start = Math.max(view.min, Math.min(from, view.max - width));
  return { ...view, from: start, to: Math.min(view.max, start + width) };
}

/** Round positions in `[from, to]`, about one per `part` of it, and the step between them. */
export function ticks(from, to, part, steps = [1, 2, 5, 10]) {
  const rough = (to - from) * part;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * steps.find((candidate) => candidate * power >= rough * 0.999);
  const places = [];
  for (let index = Math.ceil(from / step - 1e-9); index * step <= to + step * 1e-9; index += 1) places.push(index * step);
  return { step, places };
}

/** As `ticks`, but with steps of a clock: 1, 2, 5, 10, 30 minutes and hours above a minute. */
export function clockTicks(from, to, part) {
  const rough = (to - from) * part;
  if (rough <= 10) return ticks(from, to, part);
  const step =
    [15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].find((candidate) => candidate >= rough * 0.999) ??
    86400 * Math.ceil(rough / 86400);
  const places = [];
  for (let index = Math.ceil(from / step - 1e-9); index * step <= to * (1 + 1e-9); index += 1) places.push(index * step);
  return { step, places };
}

/** As `ticks` from 0 to `top` bytes, with steps that are powers of two. */
export function byteTicks(top, wanted) {
  let step = 1;
  while (top / step > wanted) step *= 2;
  const places = [];
  for (let place = 0; place <= top; place += step) places.push(place);
  return { step, places };
}
