// Drawing on a canvas: sharp on every screen, in the colours of the page.

import { el, framewise } from "./dom.js";

/** The width of a printed page in CSS pixels, and canvas pixels per CSS pixel. */
const PAPER = { width: 700, ratio: 2 };

/**
 * Makes a focusable canvas in `holder` that `draw(context, width, height, colours)` fills;
 * `redraw()` requests a new frame. `resized()` is called after a change of the width, before the
 * drawing.
 */
export function canvasIn(holder, { label, help, height, resized }, draw) {
  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": label, "aria-describedby": help });
  holder.append(canvas);
  const size = { width: 0, height };
  const redraw = framewise(() => paint(canvas, size, draw));
  const take = (width) => {
    if (width === size.width) return;
    size.width = width;
    resized?.();
  };
  let printing = false;
  const measure = () => {
    if (printing) return;
    take(Math.floor(holder.clientWidth));
    redraw();
  };
  addEventListener("beforeprint", () => {
    printing = true;
    take(PAPER.width);
    paint(canvas, size, draw, PAPER.ratio);
  });
  addEventListener("afterprint", () => {
    printing = false;
    measure();
  });
  new ResizeObserver(measure).observe(holder);
  measure();
  document.addEventListener("themechange", () => paint(canvas, size, draw));
  return { canvas, size, redraw };
}

function paint(canvas, { width, height }, draw, ratio = window.devicePixelRatio || 1) {
  if (width <= 0) return;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = `12px ${colours().font}`;
  context.textBaseline = "middle";
  draw(context, width, height, colours());
}

const NAMES = ["paper", "panel", "ink", "muted", "line", "accent", "wait", "move", "bad", "stopped", "font"];
let known = null;

/**
 * The page's current colours: `--paper` and so on, and `tool(colour)` with a fill, a line and the
 * text colour on the fill.
 */
export function colours() {
  if (known) return known;
  const style = getComputedStyle(document.documentElement);
  known = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  const fills = Array.from({ length: 11 }, (_, at) => toolColour(style, at));
  known.tool = (colour) => fills[colour];
  return known;
}

/** Drops the cached colours; call it after a change of the theme. */
export function forgetColours() {
  known = null;
}

// Hues: neighbours in the list are far apart, and none is near the red of failures.
const HUES = [225, 75, 155, 310, 110, 260, 50, 190, 335, 135];

function toolColour(style, at) {
  const [light, chroma, edge] = ["--fill-light", "--fill-chroma", "--edge-light"].map((name) =>
    Number(style.getPropertyValue(name)),
  );
  const [hue, strength] = at < HUES.length ? [HUES[at], chroma] : [0, 0];
  return {
    fill: `oklch(${light} ${strength} ${hue})`,
    edge: `oklch(${edge} ${strength} ${hue})`,
    ink: style.getPropertyValue("--fill-ink").trim(),
  };
}

/**
 * Draws `text` at `x`, `y`, shortened with an ellipsis to `width`. Draws nothing if not even two
 * letters fit.
 */
export function fittingText(context, text, x, y, width) {
  if (context.measureText(text).width <= width) {
    context.fillText(text, x, y);
    return;
  }
  const letter = context.measureText("n").width;
  let keep = Math.floor(width / letter) - 1;
  while (keep > 1 && context.measureText(`${text.slice(0, keep)}…`).width > width) keep -= 1;
  if (keep > 1) context.fillText(`${text.slice(0, keep)}…`, x, y);
}

/** A cross of `size` pixels around `x`, `y`: the mark of failures. */
export function cross(context, x, y, size, colour) {
  const half = size / 2;
  context.save();
  context.strokeStyle = colour;
  context.lineWidth = Math.max(1.5, size / 4);
  context.beginPath();
  context.moveTo(x - half, y - half);
  context.lineTo(x + half, y + half);
  context.moveTo(x + half, y - half);
  context.lineTo(x - half, y + half);
  context.stroke();
  context.restore();
}

/** Diagonal lines over a rectangle: the second mark of failures, visible on bars too. */
export function hatch(context, x, y, width, height, colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  for (let at = x - height; at < x + width; at += 6) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}
