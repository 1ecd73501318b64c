// The table of tools: the number of runs of each, their duration, and what they used.

import { byId, el } from "./dom.js";
import * as words from "./format.js";
import { startGrid } from "./grid.js";

const time = (name, field, width = "66px") => amount(name, field, words.seconds, width);

function amount(name, field, show, width) {
  return { name, value: (tool) => tool[field], show: (tool) => show(tool[field]), number: true, largestFirst: true, width };
}

const known = (show) => (value) => (value === null || value === undefined ? "–" : show(value));
/** A number that is usually 0. */
const seldom = (value) => (value === 0 ? "–" : words.count(value));

function columnsOf(model, colours, swatches) {
  const { by_tool: tools } = model.run;
  const name = ({ tool }) => {
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    const paint = () => (swatch.style.background = colours().tool(model.tools.get(tool).colour).fill);
    swatches.set(tool, paint);
    paint();
    return el("span", { class: "tool-name" }, swatch, el("span", { class: "swatch-name" }, tool));
  };
  return [
    { name: "tool", value: (tool) => tools.indexOf(tool), show: name, title: (tool) => tool.tool, width: "minmax(110px, 1fr)" },
    amount("tasks", "tasks", words.count, "44px"),
    amount("runs", "runs", words.count, "44px"),
    amount("retries", "retries", seldom, "48px"),
    amount("failed", "failed", seldom, "44px"),
    time("least", "shortest_s"),
    time("median", "median_s"),
    time("longest", "longest_s"),
    time("in all", "ran_s", "78px"),
    time("waited", "waited_s", "82px"),
    time("critical", "critical_s"),
    amount("CPU", "cpu_use", known((part) => `${words.count(part * 100)} %`), "50px"),
    amount("memory", "peak_memory_bytes", words.bytes, "72px"),
    amount("read", "input_bytes", words.bytes, "72px"),
    amount("wrote", "output_bytes", words.bytes, "72px"),
  ];
}

/** Draws the table; opening a tool shows its tasks in the table of tasks. */
export function startTools(model, shared, colours) {
  const swatches = new Map();
  const { by_tool: tools } = model.run;
  const columns = columnsOf(model, colours, swatches);
  const open = ({ tool }) =>
    shared.openGroup({ tool, tasks: model.tasks.filter((task) => task.tool === tool).map(({ id }) => id) });
  startGrid(byId("tools-table"), columns, tools, {
    id: "tool-rows",
    label: "Tools",
    width: "1130px",
    gap: "10px",
    textOf: ({ tool }) => tool,
    idOf: (tool) => tools.indexOf(tool),
    open,
  });
  document.addEventListener("themechange", () => swatches.forEach((paint) => paint()));
}
