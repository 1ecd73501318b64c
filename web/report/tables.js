// The tables: a row for every task, a row for every file.

import { byId, el } from "./dom.js";
import { fileOf } from "./drawer.js";
import { ORIGINS, statusOf } from "./facts.js";
import * as words from "./format.js";
import { startGrid } from "./grid.js";
import { lengthOf } from "./model.js";
import { nodeName } from "./nodes.js";

const TASK_COLUMNS = [
  { name: "task", value: (task) => task.id, show: (task) => String(task.id), number: true, width: "70px" },
  { name: "tool", value: (task) => task.tool, show: (task) => task.tool, width: "minmax(110px, 1fr)" },
  { name: "status", value: statusOf, show: (task) => statusOf(task), width: "minmax(120px, 1.1fr)" },
  { name: "start", value: (task) => task.start_s, show: (task) => words.seconds(task.start_s), number: true, width: "96px" },
  {
    name: "ran",
    value: (task) => (task.start_s === null ? null : lengthOf(task)),
    show: (task) => words.seconds(task.start_s === null ? null : lengthOf(task)),
    number: true,
    largestFirst: true,
    width: "96px",
  },
  {
    name: "waited",
    value: (task) => task.waited_s,
    show: (task) => words.seconds(task.waited_s),
    number: true,
    largestFirst: true,
    width: "80px",
  },
  {
    name: "slot",
    value: (task) => task.slot,
    show: (task) => (task.slot === null ? "–" : String(task.slot)),
    number: true,
    width: "60px",
  },
  {
    name: "read",
    value: (task) => task.input_bytes,
    show: (task) => words.bytes(task.input_bytes),
    number: true,
    largestFirst: true,
    width: "100px",
  },
  {
    name: "wrote",
    value: (task) => task.output_bytes,
    show: (task) => words.bytes(task.output_bytes),
    number: true,
    largestFirst: true,
    width: "100px",
  },
  {
    name: "outputs",
    value: (task) => words.dataName(task.outputs[0] ?? ""),
    show: (task) => task.outputs.map(words.dataName).join(", "),
    width: "minmax(120px, 1.4fr)",
  },
];

/** Widths of the columns on a cluster, where there are more; 72 pixels for the others. */
const NARROW = {
  task: "48px",
  tool: "minmax(90px, 1fr)",
  status: "minmax(80px, 1fr)",
  start: "68px",
  ran: "66px",
  waited: "66px",
  node: "minmax(80px, 0.9fr)",
  slot: "36px",
  moving: "66px",
  outputs: "minmax(80px, 1.1fr)",
};

/** The columns of tasks, on a cluster with the node, and where bytes that were read lay. */
function taskColumns(model) {
  if (!model.run.nodes) return TASK_COLUMNS;
  const node = (task) => nodeName(model, task);
  const amount = (name, value, show) => ({ name, value, show: (task) => show(value(task)), number: true, largestFirst: true });
  const moving = (task) => task.causes?.moving_s;
  const extra = {
    slot: [{ name: "node", value: node, show: (task) => node(task) ?? "–" }],
    read: [amount("moving", moving, words.seconds)],
    wrote: ORIGINS.map(([field, name]) => amount(name, (task) => task.reads?.[field], words.bytes)),
  };
  const columns = TASK_COLUMNS.flatMap((column) => [...(extra[column.name] ?? []), column]);
  return columns.map((column) => ({ ...column, width: NARROW[column.name] ?? "72px" }));
}

/** The table of tasks; the graph's groups can filter it. */
export function startTasks(model, shared) {
  const text = (task) =>
    [task.id, task.tool, statusOf(task), nodeName(model, task), ...task.outputs.map(words.dataName)].join(" ").toLowerCase();
  const texts = new Map();
  const textOf = (task) => texts.get(task) ?? texts.set(task, text(task)).get(task);
  const told = (shown) =>
    (byId("tasks-count").textContent = `${words.count(shown)} of ${words.plural(model.tasks.length, "task")}`);
  const open = (task, grid) => {
    shared.selected.set(task);
    shared.open(task, grid);
  };
  const classOf = (task) => (task.status === "done" ? null : task.status);
  const table = startGrid(byId("tasks-table"), taskColumns(model), model.tasks, {
    id: "task-rows",
    label: "Tasks",
    width: model.run.nodes ? "1190px" : "900px",
    gap: model.run.nodes ? "10px" : null,
    textOf,
    idOf: (task) => task.id,
    open,
    told,
    classOf,
  });
  if (model.run.nodes) byId("tasks-filter").placeholder = "number, tool, status, node or output";
  byId("task-rows").classList.toggle("on-nodes", Boolean(model.run.nodes));
  byId("tasks-filter").addEventListener("input", (event) => table.setQuery(event.target.value));
  limitToGroups(model, shared, table);
}

/** Lets the graph's groups filter the table, with a button that removes the filter. */
function limitToGroups(model, shared, table) {
  const limit = byId("tasks-limit");
  const widen = () => {
    limit.hidden = true;
    table.setRows(model.tasks);
    table.grid.focus();
  };
  limit.addEventListener("click", widen);
  shared.openGroup = (node) => {
    limit.textContent = `Only ${words.plural(node.tasks.length, "task")} of ${node.tool}: show all`;
    limit.hidden = false;
    table.setRows(node.tasks.map((id) => model.tasks[id]));
    table.grid.focus({ preventScroll: true });
    byId("tasks").scrollIntoView();
  };
}

/** The table of data. */
export function startData(model, shared) {
  const { run } = model;
  const textOf = (member) => `${member.name} ${member.path ?? ""} ${member.exported ?? ""}`.toLowerCase();
  const told = (shown) => (byId("data-count").textContent = `${words.count(shown)} of ${words.plural(run.data.length, "file")}`);
  const open = (member, grid) => {
    if (member.writer !== null) shared.open(model.tasks[member.writer], grid);
  };
  const table = startGrid(byId("data-table"), dataColumns(model), run.data, {
    id: "data-rows",
    label: "Data",
    width: "900px",
    textOf,
    idOf: (member) => model.places.get(member.name),
    open,
    told,
  });
  byId("data-filter").addEventListener("input", (event) => table.setQuery(event.target.value));
}

/** Columns of the table of data. */
function dataColumns(model) {
  const place = (member) =>
    member.exported ?? member.path ?? (member.dropped_s === undefined ? "" : `dropped at ${words.seconds(member.dropped_s)}`);
  return [
    {
      name: "data",
      value: (member) => model.places.get(member.name),
      show: (member) => member.name,
      width: "minmax(120px, 1fr)",
    },
    {
      name: "bytes",
      value: (member) => member.bytes,
      show: (member) => words.bytes(member.bytes),
      number: true,
      largestFirst: true,
      width: "100px",
    },
    {
      name: "writer",
      value: (member) => member.writer,
      show: (member) => (member.writer === null ? "input" : `${member.writer} ${model.tasks[member.writer].tool}`),
      width: "minmax(110px, 0.8fr)",
    },
    {
      name: "written",
      value: (member) => member.written_s,
      show: (member) => words.seconds(member.written_s),
      number: true,
      width: "96px",
    },
    {
      name: "file, or end",
      value: place,
      show: (member) => fileOf(member, place(member), "-1"),
      title: place,
      width: "minmax(140px, 1.2fr)",
    },
    {
      name: "BLAKE3",
      value: (member) => member.hash,
      show: (member) => el("span", { class: "hash" }, member.hash ?? ""),
      title: (member) => member.hash,
      width: "minmax(100px, 0.9fr)",
    },
  ];
}
