// The computations of the page, tested without a page: words, lanes, axes, layers, rows.

import assert from "node:assert/strict";
import test from "node:test";
import { runLines, spoken, statusOf } from "../report/facts.js";
import * as words from "../report/format.js";
import { barAt, barsOf, laneAt, neighbour, rowsOf } from "../report/lanes.js";
import { arrange, graphOf, nodeBeside, NODES_READABLE, wayOf } from "../report/layers.js";
import {
  chainOf,
  COLOURS_MAX,
  depthsOf,
  failureGroups,
  followersOf,
  modelOf,
  runTitle,
  stretchesOf,
  verdict,
} from "../report/model.js";
import { inSight, matching, sorted } from "../report/rows.js";
import { byteTicks, clockTicks, framed, panned, showing, ticks, windowOn, zoomed } from "../report/scale.js";

// ---- a run made by hand ----

const task = (id, tool, start, end, more = {}) => ({
  id,
  tool,
  status: "done",
  line: 1,
  slot: 0,
  start_s: start,
  end_s: end,
  inputs: [],
  outputs: [],
  ...more,
});
const member = (name, writer) => ({ name, element: name.replace(/\[.*/, ""), writer, bytes: 10 });

/** Tasks: a writes A[0], A[1]; b and c read one each; d reads both results. */
function diamond() {
  const tasks = [
    task(0, "a", 0, 1, { outputs: [{ from: "A[0]", to: "A[1]", count: 2 }] }),
    task(1, "b", 1, 2, { inputs: ["A[0]"], outputs: ["B"] }),
    task(2, "c", 1, 3, { slot: 1, inputs: ["A[1]"], outputs: ["C"] }),
    task(3, "d", 3, 4, { inputs: ["B", "C"] }),
  ];
  const data = [member("A[0]", 0), member("A[1]", 0), member("B", 1), member("C", 2)];
  return { tasks, data, settings: { slots: 2 } };
}

/** `count` tasks that all wait for one task; with `lines`, each has its own source line. */
function fan(count, lines = false) {
  const tasks = [task(0, "split", 0, 1, { outputs: ["A"] })];
  for (let id = 1; id <= count; id += 1) tasks.push(task(id, "work", 1, 2, { inputs: ["A"], line: lines ? id : 2 }));
  return { tasks, data: [member("A", 0)], settings: { slots: 2 } };
}

// ---- facts ----

test("a task whose results were reused is told as reused, not as one that never ran", () => {
  const run = diamond();
  run.tasks[1] = task(1, "b", null, null, { slot: null, reused: "20260101-flow", inputs: ["A[0]"], outputs: ["B"] });
  const model = modelOf(run);
  const [a, b] = model.run.tasks;
  assert.deepEqual([statusOf(a), statusOf(b)], ["done", "reused"]);
  assert.match(spoken(model, b), /, reused, from 20260101-flow\.$/);
  assert.deepEqual(runLines(model, b)[0], ["ran", "no, 20260101-flow had the same result"]);
  assert.ok(graphOf(model, 0).nodes.every((node) => node.unstarted === 0));
});

// ---- words ----

test("amounts are written with at most three digits that say something", () => {
  const shown = [0, 1023, 1024, 1536, 10 * 1024, 123456789, 4 * 2 ** 30].map(words.bytes);
  assert.deepEqual(shown, ["0 B", "1,023 B", "1 KiB", "1.5 KiB", "10 KiB", "118 MiB", "4 GiB"]);
  assert.equal(words.bytes(null), "–");
});

test("lengths of time are written in the unit that people would choose", () => {
  const shown = [0, 0.0004, 0.021, 0.9999, 1.254, 59.96, 125, 3600 * 3 + 7 * 60].map(words.seconds);
  assert.deepEqual(shown, ["0 s", "0.4 ms", "21 ms", "1.00 s", "1.25 s", "1 min 00 s", "2 min 05 s", "3 h 07 min"]);
});

test("marks that turn text around are seen, not obeyed", () => {
  const run = {
    name: "a\u202eb\u0007\n",
    list: ["\u200f"],
    text: "two\nlines\u001b",
    stderr: { head: "\u001b[1mraw" },
    none: null,
  };
  assert.deepEqual(words.visible(run), {
    name: "a\\u202eb\\u0007\\u000a",
    list: ["\\u200f"],
    text: "two\nlines\\u001b",
    stderr: { head: "\u001b[1mraw" },
    none: null,
  });
  assert.equal(words.plainLines("\u001b[1mred\u202e\u0000\n"), "red\\u202e\\u0000\n");
});

test("terminal colours and carriage returns of a tool do not reach the page", () => {
  assert.equal(words.plainLines("\u001b[1;31merror\u001b[0m: x\r\n10 %\r20 %"), "error: x\n10 %\n20 %");
});

test("the verdict tells failures apart from what followed", () => {
  const totals = { tasks: 223, tasks_done: 216, tasks_failed: 7, tasks_failed_root: 5, makespan_s: 84 };
  const said = (outcome, more = {}) => verdict({ outcome, totals: { ...totals, ...more } }, words);
  assert.equal(said("failed"), "5 of 223 tasks failed; 2 more could not run because of that. The run took 1 min 24 s.");
  assert.equal(said("done"), "All 223 tasks in 1 min 24 s.");
  const stopped = { tasks_failed: 0, tasks_failed_root: 0, tasks_cancelled: 7 };
  assert.equal(said("interrupted", stopped), "After 1 min 24 s, 216 of 223 tasks were done; 7 had not finished.");
  const some = said("interrupted", { tasks_failed: 2, tasks_cancelled: 5 });
  assert.equal(some, "After 1 min 24 s, 216 of 223 tasks were done, 2 had failed; 5 had not finished.");
  assert.equal(said("failed", { tasks_failed: 0 }), "Every task is done, but the run failed after 1 min 24 s.");
});

test("a run is called by its folder too where the script's name says nothing", () => {
  const title = (source, directory) => runTitle({ workflow: { name: source.match(/(\w+)\.js$/)[1], source }, directory });
  assert.equal(title("examples/montage/workflow.js", "/home/ada"), "montage/workflow");
  assert.equal(title("workflow.js", "/home/ada/blast"), "blast/workflow");
  assert.equal(title("/data/m17/workflow.js", "/home/ada"), "m17/workflow");
  assert.equal(title("../workflow.js", "/home/ada"), "workflow");
  assert.equal(title("examples/patterns/pipeline.js", "/home/ada"), "pipeline");
});

// ---- the model ----

test("dependencies follow from data, and from tasks named without data", () => {
  const run = diamond();
  run.tasks[3].after = [0];
  const edges = modelOf(run).edges.map(({ source, target }) => `${source}-${target}`);
  assert.deepEqual(edges.sort(), ["0-1", "0-2", "0-3", "1-3", "2-3"]);
});

test("a cycle does not hang the depths", () => {
  const edges = [
    [0, 1],
    [1, 2],
    [2, 1],
    [2, 3],
  ].map(([source, target]) => ({ source, target }));
  const depths = depthsOf(4, edges);
  assert.ok(depths[0] < depths[1] && depths[2] < depths[3]);
});

test("depths are right whatever the order of the tasks", () => {
  const edges = [
    [3, 2],
    [2, 1],
    [1, 0],
    [3, 0],
  ].map(([source, target]) => ({ source, target }));
  assert.deepEqual([...depthsOf(4, edges)], [3, 2, 1, 0]);
});

test("the chain of reasons leads to the task that failed by itself", () => {
  const run = diamond();
  const failed = (id, reason) => Object.assign(run.tasks[id], { status: "failed", reason });
  failed(0, { kind: "exit", root: 0 });
  failed(1, { kind: "upstream", root: 0, via: 0 });
  failed(3, { kind: "upstream", root: 0, via: 1 });
  const model = modelOf(run);
  assert.deepEqual(
    chainOf(model, run.tasks[3]).map(({ id }) => id),
    [3, 1, 0],
  );
  assert.deepEqual(
    followersOf(model, [run.tasks[0]]).map(({ id }) => id),
    [1, 3],
  );
});

test("neighbours of one tool on the critical path are one stretch", () => {
  const run = diamond();
  run.tasks[2].tool = "b";
  run.critical_path = { steps: [0, 1, 2, 3].map((task) => ({ task, waited_for: "data" })) };
  const stretches = stretchesOf(modelOf(run)).map(({ tool, steps }) => [tool, steps.map((step) => step.task)]);
  assert.deepEqual(stretches, [
    ["a", [0]],
    ["b", [1, 2]],
    ["d", [3]],
  ]);
});

test("tasks that failed alike are told together, others apart", () => {
  const failed = (id, text, head) =>
    task(id, "a", 0, 1, { status: "failed", reason: { kind: "exit", text, stderr: { head, bytes: 1 } } });
  const tasks = [
    failed(0, "exit 1", "file 0\nbad row\n"),
    failed(1, "exit 2", "bad row"),
    failed(2, "exit 1", "file 2\nbad row\n"),
    failed(3, "exit 1", "no memory"),
  ];
  tasks.push(task(4, "a", null, null, { status: "failed", reason: { kind: "upstream", root: 0, via: 0 } }));
  assert.deepEqual(
    failureGroups(tasks).map((group) => group.map(({ id }) => id)),
    [[0, 2], [1], [3]],
  );
});

test("more tools than colours share the last one, the longest keep theirs", () => {
  const tasks = Array.from({ length: 14 }, (_, id) => task(id, `tool${id}`, 0, id + 1));
  const { tools } = modelOf({ tasks, data: [] });
  assert.equal(tools.get("tool0").colour, COLOURS_MAX);
  assert.equal(new Set([...tools.values()].map(({ colour }) => colour)).size, COLOURS_MAX + 1);
});

// ---- lanes ----

test("a bar lies in its slot, and no two bars overlap", () => {
  const tasks = [task(0, "a", 0, 2), task(1, "b", 1, 3), task(2, "c", 0.5, 1, { slot: 1 }), task(3, "d", 4, 5, { cpus: 2 })];
  tasks[3].earlier = [{ slot: 0, start_s: 3, end_s: 3.5, text: "no" }];
  const { bars, lanes } = barsOf(tasks, 2);
  assert.equal(bars.length, 5);
  for (let lane = 0; lane + 1 < lanes.length; lane += 1) {
    const own = bars.filter((bar) => bar.lane <= lane && lane < bar.lane + bar.span).sort((a, b) => a.start - b.start);
    own.slice(1).forEach((bar, at) => assert.ok(bar.start >= own[at].end, `lane ${lane}`));
  }
  assert.deepEqual(
    bars.filter(({ task: { id } }) => id === 2).map(({ lane }) => lane),
    [1],
  );
});

test("a bar lies in the lanes of its node, also where it has no slot of its own", () => {
  const nodes = [
    { name: "one", first_slot: 0, slots: 2 },
    { name: "two", first_slot: 2, slots: 1 },
  ];
  const tasks = [
    task(0, "a", 0, 2, { node: 0, slot: 1 }),
    task(1, "b", 0, 1, { node: 1, slot: 2 }),
    // Ran in a slot that a waiting task lent: its number is that of the next node.
    task(2, "c", 0.5, 1.5, { node: 0, slot: 2 }),
    task(3, "d", 0.5, 1, { node: 0, slot: 2 }),
    task(4, "e", 3, 4, { node: 0, slot: 0, earlier: [{ node: 1, slot: 2, start_s: 1, end_s: 2, text: "lost" }] }),
  ];
  const { bars, groups } = barsOf(tasks, 3, nodes);
  assert.deepEqual(
    groups.map(({ node, first, lane, count }) => [node, first, lane, count]),
    [
      [0, 0, 0, 3],
      [1, 2, 3, 1],
    ],
  );
  const lanes = bars.map(({ task: { id }, lane, earlier }) => [id, lane, earlier]);
  assert.deepEqual(lanes, [
    [2, 0, null],
    [4, 0, null],
    [0, 1, null],
    [3, 2, null],
    [1, 3, null],
    [4, 3, "lost"],
  ]);
});

test("a heading is no lane", () => {
  const { tops, bottom } = rowsOf([{ count: 2 }, { count: 1 }], 40, 10, 20);
  assert.deepEqual([...tops, bottom], [60, 70, 100, 110]);
  assert.deepEqual(
    [59, 60, 69.5, 79, 80, 99, 100, 110].map((y) => laneAt(tops, 10, y)),
    [-1, 0, 0, 1, -1, -1, 2, -1],
  );
  assert.deepEqual(rowsOf([{ count: 2 }], 40, 28, 0), { tops: [40, 68], bottom: 96 });
});

test("a bar is found at its time and close to it, not farther", () => {
  const chart = barsOf([task(0, "a", 0, 1), task(1, "b", 2, 3)], 1);
  assert.equal(barAt(chart, 0, 2.5, 0).task.id, 1);
  assert.equal(barAt(chart, 0, 1.1, 0.2).task.id, 0);
  assert.equal(barAt(chart, 0, 1.5, 0.2), null);
  assert.equal(barAt(chart, 7, 1.5, 9), null);
});

test("arrows walk along a lane and across lanes at the same time", () => {
  const chart = barsOf([task(0, "a", 0, 1), task(1, "b", 1, 2), task(2, "c", 0.5, 2, { slot: 1 })], 2);
  const id = (at) => chart.bars[at].task.id;
  const at = chart.bars.findIndex((bar) => bar.task.id === 1);
  assert.equal(id(neighbour(chart, at, "ArrowLeft")), 0);
  assert.equal(id(neighbour(chart, at, "ArrowRight")), 1);
  assert.equal(id(neighbour(chart, at, "ArrowDown")), 2);
  assert.equal(id(neighbour(chart, at, "ArrowUp")), 1);
});

// ---- axes ----

test("zooming keeps the place under the pointer, and never leaves the whole", () => {
  const view = zoomed(windowOn(0, 100), 0.5, 25);
  assert.deepEqual([view.from, view.to], [12.5, 62.5]);
  assert.deepEqual([zoomed(view, 100, 30).from, zoomed(view, 100, 30).to], [0, 100]);
  assert.deepEqual([panned(view, -999).from, panned(view, 999).to], [0, 100]);
  assert.deepEqual([framed(view, 40, 20).from, framed(view, 40, 20).to], [20, 40]);
  const moved = showing(framed(view, 0, 10), 50, 51);
  assert.ok(moved.from <= 50 && moved.to >= 51);
});

test("ticks are round, few, and inside", () => {
  for (const [from, to] of [
    [0, 1],
    [0, 84.2],
    [3.3, 3.4],
    [0, 0.003],
  ]) {
    const { step, places } = ticks(from, to, 0.1);
    assert.ok(places.length >= 4 && places.length <= 12, `${from} ${to}: ${places.length}`);
    assert.ok(places.every((place) => place >= from - 1e-9 && place <= to + 1e-9));
    assert.ok(
      [1, 2, 5, 10].some((digit) => Math.abs(Math.log10(step / digit) % 1) < 1e-9),
      `${step}`,
    );
  }
  assert.equal(clockTicks(0, 3600, 0.1).step, 600);
  assert.equal(byteTicks(5 * 2 ** 30, 4).step, 2 ** 31);
});

test("labels of neighbouring ticks differ", () => {
  const { step, places } = clockTicks(1.2, 1.21, 0.1);
  const labels = places.map((place) => words.instant(place, step));
  assert.equal(new Set(labels).size, labels.length);
});

// ---- the graph ----

test("a small graph shows tasks, a large one groups that can be read", () => {
  assert.equal(graphOf(modelOf(diamond())).nodes.length, 4);
  const groups = graphOf(modelOf(fan(500)));
  assert.deepEqual(
    groups.nodes.map((node) => node.tasks.length),
    [1, 500],
  );
  assert.deepEqual(
    groups.edges.map((edge) => [edge.source, edge.target, edge.count]),
    [[0, 1, 500]],
  );
  assert.ok(graphOf(modelOf(fan(500, true))).nodes.length <= NODES_READABLE);
});

test("a long chain is not drawn as a chain of groups of one", () => {
  const tasks = Array.from({ length: 500 }, (_, id) => task(id, "step", id, id + 1, { after: id > 0 ? [id - 1] : [], line: 3 }));
  assert.equal(graphOf(modelOf({ tasks, data: [] })).nodes.length, 1);
});

test("every node is right of what it waits for, and none covers another", () => {
  const graph = graphOf(modelOf(fan(200)), 0);
  const box = { nodeWidth: 150, nodeHeight: 42, gapX: 84, gapY: 14, aspect: 2.6 };
  const { width, height } = arrange(graph, box);
  for (const { source, target } of graph.edges) assert.ok(graph.nodes[source].x + box.nodeWidth < graph.nodes[target].x);
  assert.equal(new Set(graph.nodes.map(({ x, y }) => `${x} ${y}`)).size, 201);
  assert.ok(width / height > 1 && width / height < 6, `${width} by ${height}`);
});

test("an edge passes around the boxes between its ends, whichever way the graph runs", () => {
  const run = fan(60, true);
  // Each task of the second half waits for one of the first half, and the last for all.
  run.tasks.slice(31).forEach((each) => (each.after = [each.id - 30]));
  run.tasks.push(task(61, "join", 3, 4, { after: run.tasks.map(({ id }) => id), line: 99 }));
  const graph = graphOf(modelOf(run), 0);
  const size = { nodeWidth: 150, nodeHeight: 42, gapX: 84, gapY: 14, aspect: 2.6 };
  for (const box of [size, { ...size, turned: true, across: 700 }]) {
    arrange(graph, box);
    assert.ok(graph.columns.length > 6);
    for (const edge of graph.edges) {
      const way = wayOf(graph, edge, box);
      // Straight parts are beside boxes; curves are between columns, where there are no boxes.
      for (let at = 1; at + 1 < way.length; at += 2) {
        const [[x1, y1], [x2, y2]] = [way[at], way[at + 1]];
        const hit = graph.nodes.find(({ x, y }) => x2 >= x && x1 <= x + box.nodeWidth && y2 >= y && y1 <= y + box.nodeHeight);
        assert.equal(hit, undefined, `edge ${edge.source} ${edge.target}`);
      }
    }
  }
});

test("arrows in the graph follow edges first", () => {
  const graph = graphOf(modelOf(diamond()));
  arrange(graph, { nodeWidth: 150, nodeHeight: 42, gapX: 84, gapY: 14, aspect: 2.6 });
  const [a, b, c, d] = graph.nodes;
  assert.ok([b, c].includes(nodeBeside(graph, a, "ArrowRight")));
  assert.equal(nodeBeside(graph, b, "ArrowRight"), d);
  assert.ok(new Set([nodeBeside(graph, b, "ArrowDown"), nodeBeside(graph, b, "ArrowUp")]).has(c));
  assert.equal(nodeBeside(graph, a, "ArrowLeft"), a);
});

// ---- rows ----

test("every word of a filter must match", () => {
  const rows = ["12 predict done", "13 predict failed", "14 train failed"];
  assert.deepEqual(
    matching(rows, "FAILED pred", (row) => row),
    ["13 predict failed"],
  );
  assert.equal(
    matching(rows, "  ", (row) => row),
    rows,
  );
});

test("sorting keeps what has no value last, and numbers in names in order", () => {
  const rows = [{ n: null }, { n: 2 }, { n: 10 }];
  assert.deepEqual(
    sorted(rows, ({ n }) => n, true).map(({ n }) => n),
    [10, 2, null],
  );
  assert.deepEqual(
    sorted(rows, ({ n }) => n, false).map(({ n }) => n),
    [2, 10, null],
  );
  assert.deepEqual(
    sorted(["A[10]", "A[9]"], (name) => name, false),
    ["A[9]", "A[10]"],
  );
});

test("only a screenful of a long table is in the page", () => {
  const [from, to] = inSight(10_000, 30, 60_000, 420);
  assert.ok(from <= 2000 && to >= 2014 && to - from < 40);
  assert.deepEqual(inSight(3, 30, 0, 420), [0, 3]);
});
