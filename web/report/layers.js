// The graph: tasks, or groups of them when they are many, in layers from left to right. Pure: no DOM.
//
// Every node is right of what it waits for. Within a layer, nodes are ordered by where their neighbours are (the barycentre
// heuristic), and a layer of many nodes is broken into several columns, so that the drawing stays about as wide as high.

import { depthsOf, isRootFailure, lengthOf } from "./model.js";

/** Above this many nodes the graph starts with groups: more boxes do not fit a screen with readable names. */
export const NODES_READABLE = 60;
/** Above this many tasks, single tasks are not offered at all. */
export const NODES_MAX = 20_000;

/** Ways to group, finest first: each answers the key that tasks of one node share. */
const GROUPINGS = [
  { key: (task) => task.id, name: "tasks" },
  { key: (task, depth) => `${depth}\n${task.tool}`, name: "groups" },
  { key: (task) => `${task.line}\n${task.tool}`, name: "groups" },
  { key: (task) => task.tool, name: "groups" },
];

/** The graph in the finest grouping that is readable; `level` 0 asks for single tasks, whatever their number. */
export function graphOf(model, level) {
  if (level !== undefined) return grouped(model, GROUPINGS[level]);
  const last = GROUPINGS.length - 1;
  for (let at = 0; at < last; at += 1) {
    if (at === 0 && model.tasks.length > NODES_READABLE) continue;
    const graph = grouped(model, GROUPINGS[at]);
    if (graph.nodes.length <= NODES_READABLE) return graph;
  }
  return grouped(model, GROUPINGS[last]);
}

function grouped(model, { key, name }) {
  const groups = new Map();
  const nodeOf = new Int32Array(model.tasks.length);
  for (const task of model.tasks) {
    const own = key(task, model.depths[task.id]);
    if (!groups.has(own))
      groups.set(own, { id: groups.size, tool: task.tool, tasks: [], failed: 0, roots: 0, unstarted: 0, seconds: 0 });
    const node = groups.get(own);
    node.tasks.push(task.id);
    node.failed += task.status === "failed" ? 1 : 0;
    node.roots += isRootFailure(task) ? 1 : 0;
    node.unstarted += task.start_s === null ? 1 : 0;
    node.seconds += lengthOf(task);
    nodeOf[task.id] = node.id;
  }
  return { name, nodes: [...groups.values()], edges: joined(model.edges, nodeOf, groups.size), nodeOf };
}

/** Edges between groups: one for each pair, with the number of task pairs and the elements that pass. */
function joined(edges, nodeOf, size) {
  const pairs = new Map();
  for (const { source, target, element } of edges) {
    const [from, to] = [nodeOf[source], nodeOf[target]];
    if (from === to) continue;
    const key = from * size + to;
    const pair = pairs.get(key) ?? { source: from, target: to, count: 0, elements: new Set() };
    pair.count += 1;
    if (element !== null) pair.elements.add(element);
    pairs.set(key, pair);
  }
  return [...pairs.values()];
}

/** Gives every node of `graph` its `x` and `y` (top left) and answers the drawing's `width` and `height`. */
export function arrange(graph, { nodeWidth, nodeHeight, gapX, gapY, aspect }) {
  const layers = layersOf(graph);
  order(graph, layers);
  const tallest = rowsFor(layers, { nodeWidth, nodeHeight, gapX, gapY, aspect });
  const columns = layers.flatMap((layer) => broken(layer, tallest));
  const height = Math.max(...columns.map((column) => column.nodes.length)) * (nodeHeight + gapY) - gapY;
  let x = 0;
  for (const { nodes, last } of columns) {
    const own = nodes.length * (nodeHeight + gapY) - gapY;
    nodes.forEach((node, row) => {
      node.x = x;
      node.y = (height - own) / 2 + row * (nodeHeight + gapY);
    });
    x += nodeWidth + (last ? gapX : gapY * 1.5);
  }
  return { width: x - gapX, height };
}

function layersOf({ nodes, edges }) {
  const depths = depthsOf(nodes.length, edges);
  const layers = [];
  for (const node of nodes) {
    node.layer = depths[node.id];
    (layers[node.layer] ??= []).push(node);
  }
  return layers.filter(Boolean);
}

/** Four sweeps, there and back: more change little (seen on the examples). */
function order({ nodes, edges }, layers) {
  const before = nodes.map(() => []);
  const after = nodes.map(() => []);
  for (const { source, target } of edges) {
    after[source].push(target);
    before[target].push(source);
  }
  const settle = (layer) => layer.forEach((node, at) => (node.place = layer.length > 1 ? at / (layer.length - 1) : 0.5));
  layers.forEach(settle);
  for (let sweep = 0; sweep < 4; sweep += 1) {
    const forth = sweep % 2 === 0;
    for (const layer of forth ? layers : [...layers].reverse()) {
      for (const node of layer) node.wish = mean((forth ? before : after)[node.id], nodes) ?? node.place;
      layer.sort((a, b) => a.wish - b.wish || a.id - b.id);
      settle(layer);
    }
  }
}

function mean(ids, nodes) {
  if (ids.length === 0) return null;
  return ids.reduce((sum, id) => sum + nodes[id].place, 0) / ids.length;
}

/** How many rows a column may have so that the whole is about `aspect` times as wide as high. */
function rowsFor(layers, { nodeWidth, nodeHeight, gapX, gapY, aspect }) {
  const widest = Math.max(...layers.map((layer) => layer.length));
  for (let rows = 1; rows < widest; rows = Math.ceil(rows * 1.25)) {
    const columns = layers.reduce((sum, layer) => sum + Math.ceil(layer.length / rows), 0);
    const width = columns * (nodeWidth + gapY * 1.5) + layers.length * gapX;
    if (width <= rows * (nodeHeight + gapY) * aspect) return rows;
  }
  return widest;
}

function broken(layer, rows) {
  const columns = Math.ceil(layer.length / rows);
  const even = Math.ceil(layer.length / columns);
  const parts = [];
  for (let at = 0; at < layer.length; at += even)
    parts.push({ nodes: layer.slice(at, at + even), last: at + even >= layer.length });
  return parts;
}

/** The node that an arrow key leads to from `node`: a neighbour by an edge if one lies that way, else the nearest. */
export function nodeBeside(graph, node, key) {
  const sideways = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1;
  const ahead = (other) => sign * (sideways ? other.x - node.x : other.y - node.y);
  const aside = (other) => Math.abs(sideways ? other.y - node.y : other.x - node.x);
  let pool = graph.nodes.filter((other) => ahead(other) > 0);
  if (sideways) {
    const linked = new Set();
    for (const { source, target } of graph.edges) {
      if (sign > 0 && source === node.id) linked.add(target);
      if (sign < 0 && target === node.id) linked.add(source);
    }
    const close = pool.filter((other) => linked.has(other.id));
    if (close.length > 0) pool = close;
  }
  const cost = (other) => ahead(other) + 2 * aside(other);
  return pool.reduce((best, other) => (best === null || cost(other) < cost(best) ? other : best), null) ?? node;
}
