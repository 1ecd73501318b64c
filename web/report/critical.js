// A table of the critical path: the chain of tasks that determined when the run ended. Consecutive
// tasks of one tool share a row.

import { byId, el } from "./dom.js";
import { taskLink } from "./drawer.js";
import { CAUSES, partsOf } from "./facts.js";
import * as words from "./format.js";
import { stretchesOf } from "./model.js";
import { partName, stacked, sumOf } from "./stacked.js";

/** Rows shown at first. */
const SHOWN = 12;

/** Columns of what the time of a row was spent on. */
const SPENT = [
  { name: "waiting", tone: "slot" },
  { name: "moving", tone: "moving" },
  { name: "computing", tone: "computing" },
];

/** Fills the section, or leaves it hidden if nothing ran. */
export function startCritical(model, shared, colours) {
  const { run } = model;
  const stretches = stretchesOf(model);
  if (stretches.length === 0) return;
  byId("critical").hidden = false;
  byId("critical-note").textContent = sentence(run);
  const go = (id) => {
    shared.selected.set(model.tasks[id]);
    shared.open(model.tasks[id], document.activeElement);
  };
  const body = el("tbody");
  const names = ["from", "to", "tool", "tasks", "waited for", ...(run.critical_path.causes ? ["shares", ...SPENT] : [])];
  const table = el("table", {}, el("thead", {}, el("tr", {}, names.map(heading))), body);
  const swatches = [];
  const row = (stretch) => {
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    swatches.push(() => (swatch.style.background = colours().tool(model.tools.get(stretch.tool).colour).fill));
    return rowOf(model, stretch, swatch, go);
  };
  const paint = () => swatches.forEach((each) => each());
  const add = (list) => {
    body.append(...list.map(row));
    paint();
  };
  add(stretches.slice(0, SHOWN));
  byId("critical-table").append(table);
  document.addEventListener("themechange", paint);
  if (stretches.length > SHOWN) showRest(stretches.slice(SHOWN), add);
}

function showRest(rest, add) {
  const button = el("button", { type: "button", class: "more" }, `Show ${words.plural(rest.length, "more row")}`);
  const all = () => {
    button.remove();
    add(rest.splice(0));
  };
  button.addEventListener("click", all);
  addEventListener("beforeprint", all);
  byId("critical-table").after(button);
}

function sentence({ critical_path: path, totals }) {
  const cut = path.steps_cut > 0 ? ` The first ${words.plural(path.steps_cut, "step")} are not listed.` : "";
  return (
    `Tasks that ran one after the other for ${words.seconds(path.ran_s)} of ${words.seconds(totals.makespan_s)} decided when the run ended. ` +
    `The longest chain of tasks that need each other took ${words.seconds(path.chain_s)}; with any number of slots the run takes as long.${cut}`
  );
}

function heading(name) {
  const number = name === "from" || name === "to" || SPENT.includes(name);
  return el("th", { scope: "col", class: number ? "number" : null }, SPENT.includes(name) ? partName(name) : name);
}

function rowOf(model, { tool, steps }, swatch, go) {
  const [first, last] = [steps[0], steps.at(-1)];
  const task = (step) => taskLink(model.tasks[step.task], go, String(step.task));
  const tasks =
    steps.length === 1
      ? task(first)
      : [words.count(steps.length), " tasks, ", task(first), steps.length > 2 ? " … " : ", ", task(last)];
  return el(
    "tr",
    {},
    el("td", { class: "number" }, words.seconds(first.start_s)),
    el("td", { class: "number" }, words.seconds(last.end_s)),
    el("td", {}, el("span", { class: "tool-name" }, swatch, tool)),
    el("td", {}, tasks),
    el("td", {}, causes(steps)),
    first.causes ? spent(steps) : null,
  );
}

/** What the time of the steps of a row was spent on: a bar, and numbers. */
function spent(steps) {
  const sums = Object.fromEntries(CAUSES.map(([field]) => [field, steps.reduce((sum, { causes }) => sum + causes[field], 0)]));
  const parts = partsOf(sums, CAUSES);
  const amount = ({ text }) => el("td", { class: "number" }, text);
  // Waiting for data is what the steps before show.
  return [el("td", { class: "shares" }, stacked(parts, sumOf(parts))), parts.slice(1).map(amount)];
}

const CONDITIONS = {
  start: "the start of the run",
  data: "the output of the one before",
  after: "the end of the one before",
  slot: "the slot, or space, of the one before",
};

/** Describes what the steps of a row waited for: the first, and the others. */
function causes(steps) {
  const [first, ...others] = steps.map((step) => step.waited_for);
  const same = others.every((cause) => cause === others[0]);
  if (others.length === 0) return CONDITIONS[first];
  if (same && first === others[0]) return `each for ${CONDITIONS[first]}`;
  const slots = others.filter((cause) => cause === "slot").length;
  const rest = same
    ? { slot: "its slot", data: "its data", after: "its turn" }[others[0]]
    : `the one before, ${words.count(slots)} of them for its slot`;
  return `${CONDITIONS[first]}, then each for ${rest}`;
}
