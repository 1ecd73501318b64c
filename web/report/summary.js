// The top and the end of the page: the outcome, the key numbers, warnings, bytes per element,
// provenance.

import { typed } from "./drawer.js";
import { byId, el } from "./dom.js";
import * as words from "./format.js";
import { runTitle, verdict } from "./model.js";

/** Elements shown before "show all". */
const BARS_SHOWN = 12;

/**
 * Fills the header. Every number from run.json has its path there and its value (`data-field`,
 * `data-value`).
 */
export function showHeader(run) {
  const title = runTitle(run);
  document.title = `${title}: ${run.outcome}`;
  byId("name").textContent = title;
  const word = el(
    "strong",
    {
      class: { done: "good", failed: "bad", interrupted: "stopped" }[run.outcome],
      "data-field": "outcome",
      "data-value": run.outcome,
    },
    { done: "Done.", failed: "Failed.", interrupted: "Interrupted." }[run.outcome],
  );
  byId("verdict").replaceChildren(word, " ", verdict(run, words));
  const { machine, started } = run;
  const where = `${machine.host}, ${words.plural(machine.cpus, "processor")}, ${words.bytes(machine.memory_bytes)}`;
  byId("about").textContent = `${started.slice(0, 10)} at ${started.slice(11, 19)} UTC on ${where}. Run ${run.id}.`;
  const totals = run.totals;
  byId("numbers").append(
    number("makespan", "totals.makespan_s", totals.makespan_s, words.seconds),
    number("tasks done", "totals.tasks_done", totals.tasks_done, words.count),
    number(
      totals.tasks_failed > totals.tasks_failed_root ? "tasks failed or not run" : "tasks failed",
      "totals.tasks_failed",
      totals.tasks_failed,
      words.count,
      totals.tasks_failed > 0 ? "bad" : null,
    ),
    totals.tasks_cancelled > 0
      ? number("tasks not finished", "totals.tasks_cancelled", totals.tasks_cancelled, words.count, "stopped")
      : "",
    number("slots in use", "totals.slot_use", totals.slot_use, words.percent),
    number("peak of the pool", "totals.pool_peak_bytes", totals.pool_peak_bytes, words.bytes),
    ...leastPeak(run.pool),
    number("data written", "totals.written_bytes", totals.written_bytes, words.bytes),
  );
  byId("warnings").append(...run.warnings.map((warning) => el("li", {}, warning)));
  byId("warnings").hidden = run.warnings.length === 0;
}

/** The least memory with which the run could have worked, if it was computed. */
function leastPeak({ least_peak_bytes: least, least_peak_orders: orders }) {
  if (least === null || least === undefined) return [];
  return [number(`least peak of ${words.plural(orders, "order")}`, "pool.least_peak_bytes", least, words.bytes)];
}

function number(label, field, value, show, tone = null) {
  return el("div", {}, el("dt", {}, label), el("dd", { class: tone, "data-field": field, "data-value": value }, show(value)));
}

/** The colours of the tools, as buttons that highlight one tool. */
export function showLegend(model, shared, colours) {
  const legend = byId("legend");
  const swatches = [...model.tools.values()].map((tool) => {
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    const pick = () => shared.highlight.set(shared.highlight.get() === tool.name ? null : tool.name);
    const button = el(
      "button",
      { type: "button", "aria-pressed": "false", title: tool.name, onclick: pick },
      swatch,
      el("span", { class: "swatch-name" }, tool.name),
      el("span", { class: "muted" }, words.count(tool.tasks)),
    );
    legend.append(button);
    return { tool, swatch, button };
  });
  showMarks(model);
  const paint = () => swatches.forEach(({ tool, swatch }) => (swatch.style.background = colours().tool(tool.colour).fill));
  shared.highlight.watch((name) =>
    swatches.forEach(({ tool, button }) => button.setAttribute("aria-pressed", String(tool.name === name))),
  );
  document.addEventListener("themechange", paint);
  paint();
}

/** The meaning of the marks on bars and boxes, for those that occur. */
function showMarks({ tasks, run }) {
  const marks = [
    ["failed", tasks.some((task) => task.status === "failed" || task.attempts > 1), "failed"],
    ["interrupted", tasks.some((task) => task.status === "cancelled"), "not finished: the run ended first"],
    ["moving", tasks.some((task) => task.prepared_s !== undefined), "inputs moved"],
    ["lost", (run.nodes ?? []).some(({ lost_s: lost }) => lost !== undefined), "node lost"],
    ["critical", (run.critical_path?.steps.length ?? 0) > 0, "critical path"],
  ];
  const shown = marks.filter(([, there]) => there);
  byId("marks").append(
    ...shown.map(([mark, , text]) => el("li", {}, el("span", { class: `mark ${mark}`, "aria-hidden": "true" }), text)),
  );
}

/** Bars of the bytes per data element, largest first. */
export function showElements(run) {
  const elements = [...run.elements].sort((a, b) => b.bytes - a.bytes);
  const most = Math.max(1, elements[0]?.bytes ?? 1);
  const list = byId("elements");
  const bar = (element) => {
    const members = element.shape.length > 0 ? `${element.shape.map(words.count).join(" × ")} files` : "1 file";
    const fill = el("span", { class: `bar ${element.kind}`, style: `width:${(100 * element.bytes) / most}%` });
    const amount = el(
      "span",
      { class: "number", "data-element": element.name, "data-value": element.bytes },
      words.bytes(element.bytes),
    );
    return el(
      "li",
      {},
      el("span", { class: "bar-name", title: element.name }, element.name),
      el("span", { class: "muted" }, `${element.kind}, ${members}`),
      el("span", { class: "bar-room" }, fill),
      amount,
    );
  };
  list.append(...elements.slice(0, BARS_SHOWN).map(bar));
  if (elements.length <= BARS_SHOWN) return;
  const button = el("button", { type: "button", class: "more" }, `Show all ${words.count(elements.length)} elements`);
  button.addEventListener("click", () => {
    button.remove();
    list.append(...elements.slice(BARS_SHOWN).map(bar));
  });
  list.after(button);
}

/** The data that identifies where the results come from. */
export function showProvenance(run) {
  const { settings, machine, totals } = run;
  byId("command-line").textContent = typed(run.command_line);
  const sets = Object.entries(run.sets)
    .map(([name, value]) => `${name} = ${JSON.stringify(value)}`)
    .join(", ");
  const facts = [
    ["tidemill", run.version],
    ["workflow", `${run.workflow.source}${run.directory ? `, in ${run.directory}` : ""}`],
    ["its BLAKE3", run.workflow.hash ?? "not hashed", "hash"],
    ["set", sets || "nothing"],
    ["seeds", run.provenance.seeds.map(seedOf).join("; ") || "none known"],
    ["started, ended", `${run.started}, ${run.ended}`],
    [
      "machine",
      `${machine.host}, ${machine.system}, ${words.plural(machine.cpus, "processor")}, ${words.bytes(machine.memory_bytes)}`,
    ],
    ["slots", words.count(settings.slots) + (run.nodes ? `, on ${words.plural(run.nodes.length, "node")}` : "")],
    ["pool", `up to ${words.bytes(settings.memory_limit_bytes)}; ${settings.mode}: ${settings.mode_reason}`],
    ["data, tools, out", [settings.data, settings.tools, settings.out].map((path) => path ?? "–").join(", ")],
    ["tools ran", `${words.seconds(totals.tool_s)}, of which processor time ${words.seconds(totals.cpu_s)}`],
    ["exit code", String(run.exit_code)],
  ];
  byId("settings").append(
    ...facts.flatMap(([term, text, tone]) => [el("dt", {}, term), el("dd", { class: tone ?? null }, text)]),
  );
  byId("tools-used").append(...run.provenance.tools.map(toolOf));
}

function seedOf({ name, value, tool, tasks }) {
  const given = `${name} = ${JSON.stringify(value)}`;
  return tool ? `${tool}: ${given}, ${words.plural(tasks, "task")}` : given;
}

function toolOf(tool) {
  const files = (tool.files ?? []).map((file) =>
    el("li", {}, file.path, " ", el("span", { class: "hash" }, file.hash ?? "not read")),
  );
  return el(
    "article",
    { class: "tool" },
    el("h3", {}, tool.name, tool.description ? el("span", { class: "where" }, tool.description) : null),
    el("pre", { tabindex: "0", "aria-label": `Command of ${tool.name}` }, typed(tool.command)),
    el("p", { class: "muted" }, [tool.program ?? "program not found", tool.program_version].filter(Boolean).join(", ")),
    el("p", { class: "hash" }, `tool ${tool.hash ?? "not hashed"}`),
    tool.program_hash ? el("p", { class: "hash" }, `program ${tool.program_hash}`) : null,
    files.length > 0 ? el("ul", { class: "files" }, files) : null,
  );
}
