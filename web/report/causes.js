// What the time of tasks was spent on, and where the bytes that they read came from: a row for all
// tasks, for the critical path, and for each tool. Only of runs on a cluster.

import { byId, el } from "./dom.js";
import { CAUSES, ORIGINS, partsOf } from "./facts.js";
import * as words from "./format.js";
import { partName, stacked, sumOf } from "./stacked.js";

/** Maximum number of tools: those that took the most time. */
const TOOLS_MAX = 20;

/** Fills the section, or leaves it hidden on one host. */
export function startCauses({ run }) {
  const { causes, reads } = run.totals;
  if (!causes && !reads) return;
  byId("causes").hidden = false;
  if (causes) byId("causes-table").append(tableOf(CAUSES, rowsOfTime(run), words.seconds, "of"));
  if (reads) byId("reads-table").append(tableOf(ORIGINS, [["all tasks", "totals.reads", reads]], words.bytes, "read by"));
  byId("reads").hidden = !reads;
}

/** Rows `[name, field, sums]`; the field is where run.json has the sums. */
function rowsOfTime({ totals, critical_path: path, by_tool: tools }) {
  const all = (tool) => sumOf(partsOf(tool.causes, CAUSES));
  const ofTools = tools.map((tool, at) => [tool, at]).filter(([tool]) => tool.causes);
  ofTools.sort(([one], [other]) => all(other) - all(one));
  return [
    ["all tasks", "totals.causes", totals.causes],
    ...(path?.causes ? [["critical path", "critical_path.causes", path.causes]] : []),
    ...ofTools.slice(0, TOOLS_MAX).map(([tool, at]) => [tool.tool, `by_tool.${at}.causes`, tool.causes]),
  ];
}

function tableOf(kinds, rows, show, subject) {
  const heading = (content, number = true) => el("th", { scope: "col", class: number ? "number" : null }, content);
  const names = kinds.map(([, name, tone]) => heading(partName({ name, tone })));
  const head = el("tr", {}, heading(subject, false), heading("shares", false), names, heading("in all"));
  const row = ([name, place, sums]) => {
    const parts = partsOf(sums, kinds);
    const amount = ({ field, value, text }) =>
      el("td", { class: "number", "data-field": `${place}.${field}`, "data-value": value }, text);
    return el(
      "tr",
      {},
      el("th", { scope: "row", class: "row-name", title: name }, name),
      el("td", { class: "shares" }, stacked(parts, sumOf(parts))),
      parts.map(amount),
      el("td", { class: "number" }, show(sumOf(parts))),
    );
  };
  return el("table", { class: "amount-table" }, el("thead", {}, head), el("tbody", {}, rows.map(row)));
}
