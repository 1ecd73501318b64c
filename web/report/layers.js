// The graph of tasks, or of groups if there are many, in layers from left to right. Pure: no DOM.
//
// Every node is to the right of the nodes it waits for. Within a layer, nodes are ordered by the
// positions of their neighbours (the barycentre heuristic). A layer of many nodes is split into
// several columns, so that the drawing keeps its aspect ratio.

import { depthsOf, isRootFailure, lengthOf } from "./model.js";

/**
 * Above this many nodes the graph starts with groups: more boxes do not fit a screen with readable
 * names.
 */
export const NODES_READABLE = 60;
/** Above this many tasks, a graph of single tasks is not offered. */
export const NODES_MAX = 20_000;

/** Groupings, finest first. `key` returns the key that the tasks of one node share. */
const GROUPINGS = [
  { key: (task) => task.id, name: "tasks" },
  { key: (task, depth) => `${depth}\n${task.tool}`, name: "groups" },
  { key: (task) => `${task.line}\n${task.tool}`, name: "groups" },
  { key: (task) => task.tool, name: "groups" },
];

/**
 * The graph in the finest readable grouping; `level` 0 selects single tasks, whatever their number.
 */
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
      groups.set(own, {
        id: groups.size,
        tool: task.tool,
        tasks: [],
        failed: 0,
        roots: 0,
        cancelled: 0,
        unstarted: 0,
        seconds: 0,
      });
    const node = groups.get(own);
    node.tasks.push(task.id);
    node.failed += task.status === "failed" ? 1 : 0;
    node.roots += isRootFailure(task) ? 1 : 0;
    node.cancelled += task.status === "cancelled" ? 1 : 0;
    node.unstarted += task.start_s === null && !task.reused ? 1 : 0;
    node.seconds += lengthOf(task);
    nodeOf[task.id] = node.id;
  }
  return { name, nodes: [...groups.values()], edges: joined(model.edges, nodeOf, groups.size), nodeOf };
}

/**
 * Edges between groups: one for each pair, with the number of task pairs and the elements passed.
 */
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

/**
 * Sets `x` and `y` (top left) of every node of `graph`, and returns the `width` and `height` of the
 * drawing. The layers are from left to right or, if `turned`, from top to bottom; then `across` is
 * the maximum width of the drawing.
 */
export function arrange(graph, box) {
  const { gapX, gapY, turned, across } = box;
  const [long, wide] = extentOf(box);
  const layers = layersOf(graph);
  order(graph, layers);
  const rows = turned ? Math.max(1, Math.floor((across + gapY) / (wide + gapY))) : rowsFor(layers, box);
  graph.columns = layers.flatMap((layer) => broken(layer, rows));
  const most = Math.max(...graph.columns.map((column) => column.nodes.length)) * (wide + gapY) - gapY;
  let along = 0;
  graph.columns.forEach((column, at) => {
    const own = column.nodes.length * (wide + gapY) - gapY;
    Object.assign(column, { along, first: (most - own) / 2 });
    column.nodes.forEach((node, row) => placeNode(node, at, along, column.first + row * (wide + gapY), turned));
    along += long + (column.last ? gapX : gapY * 1.5);
  });
  for (const edge of graph.edges) delete edge.way;
  return turned ? { width: most, height: along - gapX } : { width: along - gapX, height: most };
}

function placeNode(node, column, along, across, turned) {
  const [x, y] = turned ? [across, along] : [along, across];
  Object.assign(node, { column, along, across, x, y });
}

/** The size of a box: along the direction of the layers, and across it. */
function extentOf({ nodeWidth, nodeHeight, turned }) {
  return turned ? [nodeHeight, nodeWidth] : [nodeWidth, nodeHeight];
}

/** The minimum distance between an edge and the boxes it passes. */
const CLEAR = 5;

/**
 * The path of an edge around the boxes between its ends: points that are joined alternately by a
 * curve, between columns, and a straight line, along the boxes of a column. Requires `arrange`
 * first.
 */
export function wayOf({ nodes, columns }, { source, target }, box) {
  const [long, wide] = extentOf(box);
  const [from, to] = [nodes[source], nodes[target]];
  let across = from.across + wide / 2;
  const goal = to.across + wide / 2;
  const way = [[from.along + long, across]];
  for (let at = from.column + 1; at < to.column; at += 1) {
    // Straight on if no box is in the way; otherwise through the gap nearest to the straight line
    // to the end.
    const part = 1 / (to.column - at + 1);
    if (freeNear(columns[at], across, wide, box.gapY) !== across)
      across = freeNear(columns[at], across + (goal - across) * part, wide, box.gapY);
    way.push([columns[at].along, across], [columns[at].along + long, across]);
  }
  way.push([to.along, goal]);
  return box.turned ? way.map(([along, across]) => [across, along]) : way;
}

/** The position across a column that is nearest to `wish` and not in a box. */
function freeNear({ nodes, first }, wish, wide, gap) {
  const step = wide + gap;
  const row = Math.floor((wish - first + CLEAR) / step);
  if (row < 0 || row >= nodes.length) return wish;
  const top = first + row * step;
  if (wish >= top + wide + CLEAR) return wish;
  return wish - top < wide / 2 ? top - CLEAR : top + wide + CLEAR;
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

/**
 * Orders the nodes by four sweeps, back and forth: more change little (observed on the examples).
 */
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

/** The number of rows per column with which the drawing is about `aspect` times as wide as high. */
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

/** The equivalent arrow keys in a turned drawing. */
const TURNED = { ArrowRight: "ArrowDown", ArrowLeft: "ArrowUp", ArrowDown: "ArrowRight", ArrowUp: "ArrowLeft" };

/**
 * The node that an arrow key selects from `node`: a neighbour by an edge in that direction,
 * otherwise the nearest one.
 */
export function nodeBeside(graph, node, arrow, turned = false) {
  const key = turned ? TURNED[arrow] : arrow;
  const sideways = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1;
  const ahead = (other) => sign * (sideways ? other.along - node.along : other.across - node.across);
  const aside = (other) => Math.abs(sideways ? other.across - node.across : other.along - node.along);
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
