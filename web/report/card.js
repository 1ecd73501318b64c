// The card beside the pointer or the keyboard position: a few lines about one bar, box or moment.

import { byId, el } from "./dom.js";

/** Shows `title` and `lines` (`[term, text]`) near the client point `x`, `y`, inside the window. */
export function showCard(title, lines, x, y) {
  const card = byId("card");
  const list = el(
    "dl",
    {},
    lines.map(([term, text, tone]) => [el("dt", {}, term), el("dd", { class: tone ?? null }, text)]),
  );
  card.replaceChildren(el("p", { class: "card-title" }, title), list);
  card.hidden = false;
  const { width, height } = card.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
  const top = y + 16 + height > innerHeight ? y - 16 - height : y + 16;
  card.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

/** Hides the card. */
export function hideCard() {
  byId("card").hidden = true;
}
