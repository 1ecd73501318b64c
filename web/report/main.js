// The page: reads the embedded run.json and builds the views, which communicate by a few shared
// values.

import { startCauses } from "./causes.js";
import { startCritical } from "./critical.js";
import { startLoad, startMachineMemory, startMemory, startProcessors } from "./curves.js";
import { byId, watched } from "./dom.js";
import { startDrawer } from "./drawer.js";
import { startFailures } from "./failures.js";
import * as words from "./format.js";
import { graphOf, NODES_MAX } from "./layers.js";
import { modelOf } from "./model.js";
import { startNetwork } from "./network.js";
import { colours } from "./paint.js";
import { showElements, showHeader, showLegend, showProvenance } from "./summary.js";
import { startData, startTasks } from "./tables.js";
import { startTheme } from "./theme.js";
import { startTimeline, wholeRun } from "./timeline.js";
import { startTools } from "./tools.js";

function start() {
  const run = words.visible(JSON.parse(byId("run").textContent));
  const model = modelOf(run);
  startTheme();
  showHeader(run);
  const shared = {
    view: watched(wholeRun(run)),
    selected: watched(null),
    highlight: watched(null),
    open: null,
    openGroup: null,
  };
  shared.open = startDrawer(model, shared);
  startFailures(model, shared);
  showLegend(model, shared, colours);
  startTimeline(byId("timeline-chart"), model, shared);
  startCharts(run, shared);
  startGraph(model, shared);
  startCritical(model, shared, colours);
  startCauses(model);
  showElements(run);
  startTasks(model, shared);
  startTools(model, shared, colours);
  startData(model, shared);
  showProvenance(run);
  byId("print").addEventListener("click", () => print());
  byId("zoom-in").addEventListener("click", () => zoomBy(shared.view, 0.5));
  byId("zoom-out").addEventListener("click", () => zoomBy(shared.view, 2));
  byId("zoom-all").addEventListener("click", () => zoomBy(shared.view, Infinity));
  for (const link of document.querySelectorAll("nav a")) link.hidden = byId(link.hash.slice(1)).hidden;
  document.documentElement.dataset.ready = "true";
}

/** Draws the charts below the timeline for which there is data. */
function startCharts(run, shared) {
  if (run.load?.samples.length > 0) startLoad(shownIn("load"), run, shared);
  startMemory(shownIn("memory"), run, shared);
  if (!run.machine_use) return;
  for (const of of document.querySelectorAll(".measured-cpus")) of.textContent = run.machine_use.cpus_of;
  startProcessors(shownIn("cpus"), run.machine_use, shared);
  for (const of of document.querySelectorAll(".measured-memory")) of.textContent = run.machine_use.memory_of;
  startMachineMemory(shownIn("machine"), run.machine_use, shared);
}

function shownIn(name) {
  byId(name).hidden = false;
  return byId(`${name}-chart`);
}

function zoomBy(view, factor) {
  const { from, to, min, max } = view.get();
  const half = Math.min(((to - from) * factor) / 2, (max - min) / 2);
  const middle = Math.min(Math.max((from + to) / 2, min + half), max - half);
  view.set({ min, max, from: middle - half, to: middle + half });
}

function startGraph(model, shared) {
  const show = startNetwork(byId("graph-chart"), model, shared);
  const groups = graphOf(model);
  const choice = byId("graph-level");
  const note = (graph) => {
    const shown =
      graph.name === "tasks"
        ? words.plural(graph.nodes.length, "task")
        : `${words.plural(model.tasks.length, "task")} in ${words.plural(graph.nodes.length, "group")}`;
    const cut = model.edgesCut ? `; only the first ${words.count(model.edges.length)} dependencies are drawn` : "";
    byId("graph-note").textContent = shown + cut;
  };
  const apply = (graph) => {
    show(graph);
    note(graph);
  };
  choice.hidden = groups.name === "tasks" || model.tasks.length > NODES_MAX;
  choice.addEventListener("click", () => {
    const single = choice.getAttribute("aria-pressed") !== "true";
    choice.setAttribute("aria-pressed", String(single));
    apply(single ? graphOf(model, 0) : groups);
  });
  apply(groups);
}

start();
