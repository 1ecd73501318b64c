// A small bar of several parts, and their amounts: time by cause, bytes by where they came from.

import { el } from "./dom.js";

/**
 * A bar of `parts` (`partsOf` of facts.js). A sum of `most` fills the bar; parts are in proportion.
 * It is for the eye alone: the amounts are beside it as text.
 */
export function stacked(parts, most) {
  const share = (value) => (most > 0 ? (100 * value) / most : 0);
  const shown = parts.filter(({ value }) => value > 0);
  return el(
    "span",
    { class: "stacked", "aria-hidden": "true", title: parts.map(({ name, text }) => `${name}: ${text}`).join("\n") },
    shown.map(({ tone, value }) => el("span", { class: `part ${tone}`, style: `width:${share(value)}%` })),
  );
}

/** The sum of `parts`. */
export function sumOf(parts) {
  return parts.reduce((sum, { value }) => sum + value, 0);
}

/** The name of a part, with the colour that it has in bars. */
export function partName({ name, tone }) {
  return el("span", { class: "tool-name" }, el("span", { class: `swatch part ${tone}`, "aria-hidden": "true" }), name);
}

/** The bar of `parts` above a list of their amounts. */
export function amountsOf(title, parts) {
  return el(
    "div",
    {},
    el("h4", {}, title),
    stacked(parts, sumOf(parts)),
    el(
      "ul",
      { class: "amounts" },
      parts.map((part) => el("li", {}, partName(part), el("span", { class: "number" }, part.text))),
    ),
  );
}
