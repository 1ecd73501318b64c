// The nodes of a cluster in the timeline: a heading above the lanes of each, and the time at which
// one had not joined yet or was lost.

import * as words from "./format.js";
import { fittingText, hatch } from "./paint.js";

/** The height of a heading above the lanes of a node. */
export const HEAD = 20;
/** The largest part of a heading that a name takes. */
const NAME_PART = 0.5;
/** A node that joined within this part of the run was there from the start. */
const JOINED_PART = 0.005;

/** The name of the node of a task or an attempt; null on one host, or if it never started. */
export function nodeName({ run }, { node }) {
  return run.nodes?.[node]?.name ?? null;
}

/** The lines of a node's card. */
export function nodeLines(model, index) {
  const { slots, first_slot: first, joined_s: joined, lost_s: lost } = model.run.nodes[index];
  const ran = model.tasks.filter(({ node }) => node === index).length;
  return [
    ["slots", slots === 1 ? String(first) : `${first} to ${first + slots - 1}`],
    ["joined", `at ${words.seconds(joined)}`],
    ["left", lost === undefined ? "at the end of the run" : `lost at ${words.seconds(lost)}`, lost === undefined ? null : "bad"],
    ["tasks", words.count(ran)],
  ];
}

/**
 * Draws the heading of a node with its bottom at `y`, from the left edge to pixel `right`. What
 * follows the name is right of pixel `left`.
 */
export function drawHeading(context, run, index, y, { left, right }, colours) {
  const { name, slots, joined_s: joined, lost_s: lost } = run.nodes[index];
  const middle = y - HEAD / 2 + 1.5;
  const font = context.font;
  // Lines of the time axis pass below the text.
  const write = (text, x, colour, width = Infinity) => {
    context.fillStyle = colours.paper;
    context.fillRect(x - 3, y - HEAD + 3, Math.min(width, context.measureText(text).width) + 6, HEAD - 4);
    context.fillStyle = colour;
    fittingText(context, text, x, middle, width);
    return x + Math.min(width, context.measureText(text).width) + 12;
  };
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.strokeRect(0, Math.round(y - HEAD) + 0.5, right, 0);
  context.font = `600 ${font}`;
  let x = write(name, 3, colours.ink, right * NAME_PART);
  context.font = font;
  x = write(words.plural(slots, "slot"), Math.max(x, left + 6), colours.muted);
  if (isLate(run, joined)) x = write(`joined at ${words.seconds(joined)}`, x, colours.muted);
  if (lost !== undefined) write(`lost at ${words.seconds(lost)}`, x, colours.bad);
}

/** Marks the time in which a node was not there, over its lanes from `top` to `bottom`. */
export function drawAbsence(context, run, index, { top, bottom, left, right }, axis, colours) {
  const { joined_s: joined, lost_s: lost } = run.nodes[index];
  const absent = (from, to) => {
    if (to - from < 1) return;
    context.fillStyle = colours.paper;
    context.fillRect(from, top, to - from, bottom - top);
    hatch(context, from, top, to - from, bottom - top, colours.line);
  };
  if (isLate(run, joined)) absent(left, Math.min(axis.x(joined), right));
  if (lost === undefined) return;
  const x = axis.x(lost);
  absent(Math.max(x, left), right);
  if (x < left || x > right) return;
  context.fillStyle = colours.bad;
  context.fillRect(x - 1, top, 2, bottom - top);
}

function isLate(run, joined) {
  return joined > run.totals.makespan_s * JOINED_PART;
}
