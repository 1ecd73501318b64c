// The graph on a canvas: boxes from left to right, with curves between them.
//
// Keys: arrows move between boxes (left and right along the edges), + and - zoom, 0 shows
// everything, Enter opens. Pointer: dragging moves, a click opens, a double-click shows everything;
// the wheel zooms if the graph has the focus, or with Ctrl.

import { hideCard, showCard } from "./card.js";
import { announce } from "./dom.js";
import { linesOf, spoken, titleOf } from "./facts.js";
import { count, plural, seconds } from "./format.js";
import { arrange, nodeBeside, wayOf } from "./layers.js";
import { canvasIn, cross, fittingText } from "./paint.js";

/**
 * Sizes of boxes and gaps: roomy ones, and closer ones for graphs with so many columns that the
 * names would be too small.
 */
const ROOMY = { nodeWidth: 162, nodeHeight: 42, gapX: 84, gapY: 14, aspect: 2.6, turned: false };
const CLOSE = { ...ROOMY, gapX: 44 };
const CLOSEST = { ...ROOMY, nodeWidth: 132, gapX: 32 };
/** On a narrower page the graph is drawn from top to bottom. */
const NARROW = 600;
const TURNED = { ...ROOMY, nodeWidth: 150, gapX: 30, gapY: 12, turned: true };
/** Below this scale the closer boxes are used: names of 13 px would be smaller than 12 px. */
const SCALE_ROOMY = 0.92;
const HEIGHT = { least: 160, most: 460, mostTurned: 760 };
const MARGIN = 16;
/** Below this scale names are unreadable, and not drawn. */
const SCALE_NAMED = 0.55;
/** More edges than this are drawn faintly, unless the view is close. */
const EDGES_HAZY = 3000;

/**
 * Draws graphs in `holder`; returns `show(graph)`. `shared` has `selected`, `highlight`,
 * `open(task)` and `openGroup(node)`.
 */
export function startNetwork(holder, model, shared) {
  const state = { model, shared, graph: null, box: ROOMY, bounds: null, at: null, view: null, drag: null };
  const label = "Graph of the tasks and what they wait for";
  const resized = () => state.graph && show(state, state.graph);
  const options = { label, help: "graph-help", height: HEIGHT.most, resized };
  Object.assign(
    state,
    canvasIn(holder, options, (...args) => drawNetwork(state, ...args)),
  );
  shared.selected.watch((task) => {
    if (task !== null) state.at = state.graph.nodes[state.graph.nodeOf[task.id]];
    state.redraw();
  });
  shared.highlight.watch(state.redraw);
  listenToKeys(state);
  listenToPointer(state);
  return (graph) => show(state, graph);
}

function show(state, graph) {
  state.graph = graph;
  const across = state.size.width - 2 * MARGIN;
  const most = across < NARROW ? HEIGHT.mostTurned : HEIGHT.most;
  for (state.box of across < NARROW ? [{ ...TURNED, across }] : [ROOMY, CLOSE, CLOSEST]) {
    state.bounds = graph.nodes.length > 0 ? arrange(graph, state.box) : { width: 0, height: 0 };
    if (fitting(state, most) >= SCALE_ROOMY) break;
  }
  state.links = linksOf(graph);
  state.path = pathIn(state.model, graph);
  state.at = state.shared.selected.get() === null ? null : graph.nodes[graph.nodeOf[state.shared.selected.get().id]];
  state.view = null;
  const wanted = state.bounds.height * fitting(state, most) + 2 * MARGIN;
  state.size.height = Math.round(Math.max(HEIGHT.least, Math.min(most, wanted)));
  state.redraw();
}

/** The boxes of the critical path, and its edges as `from * boxes + to`. */
function pathIn({ run }, { nodes, nodeOf }) {
  const steps = run.critical_path?.steps ?? [];
  const along = steps.slice(1).map((step, at) => ({ from: nodeOf[steps[at].task], to: nodeOf[step.task], by: step.waited_for }));
  const edges = along.filter(({ by }) => by !== "slot").map(({ from, to }) => from * nodes.length + to);
  return { nodes: new Set(steps.map((step) => nodeOf[step.task])), edges: new Set(edges) };
}

function linksOf({ nodes, edges }) {
  const links = nodes.map(() => ({ before: [], after: [] }));
  for (const edge of edges) {
    links[edge.source].after.push(edge);
    links[edge.target].before.push(edge);
  }
  return links;
}

/** The scale at which everything is visible, at most 1. */
function fitting({ bounds, size }, height) {
  return Math.min(1, (size.width - 2 * MARGIN) / Math.max(1, bounds.width), (height - 2 * MARGIN) / Math.max(1, bounds.height));
}

function fitted(state) {
  const scale = fitting(state, state.size.height);
  const x = (state.size.width - state.bounds.width * scale) / 2;
  return { scale, x, y: (state.size.height - state.bounds.height * scale) / 2 };
}

// ---- drawing ----

function drawNetwork(state, context, width, height, colours) {
  context.clearRect(0, 0, width, height);
  if (!state.graph) return;
  state.view ??= fitted(state);
  const { scale, x, y } = state.view;
  context.translate(x, y);
  context.scale(scale, scale);
  const { nodeWidth, nodeHeight } = state.box;
  const sight = { left: -x / scale, right: (width - x) / scale, top: -y / scale, bottom: (height - y) / scale };
  drawEdges(state, context, sight, colours);
  for (const node of state.graph.nodes) {
    if (node.x > sight.right || node.x + nodeWidth < sight.left || node.y > sight.bottom || node.y + nodeHeight < sight.top)
      continue;
    drawNode(state, context, node, colours);
  }
}

function drawEdges(state, context, sight, colours) {
  const { graph, at, path, view } = state;
  const many = graph.edges.length > EDGES_HAZY;
  const hazy = many && view.scale < SCALE_NAMED;
  context.strokeStyle = colours.muted;
  context.globalAlpha = hazy ? 0.05 : many ? 0.2 : 0.5;
  for (const edge of graph.edges) drawEdge(state, edge, context, sight, hazy);
  context.globalAlpha = 1;
  const isCritical = ({ source, target }) => path.edges.has(source * graph.nodes.length + target);
  context.strokeStyle = colours.ink;
  for (const edge of graph.edges) if (isCritical(edge)) drawEdge(state, edge, context, sight, hazy, 1);
  context.strokeStyle = colours.accent;
  for (const edge of graph.edges)
    if (at && (edge.source === at.id || edge.target === at.id)) drawEdge(state, edge, context, sight, false, 1);
}

function drawEdge({ graph, box, view: { scale } }, edge, context, sight, direct, extra = 0) {
  const way = direct ? directWay(graph, edge, box) : (edge.way ??= wayOf(graph, edge, box));
  const [[x1, y1], [x2, y2]] = [way[0], way.at(-1)];
  if (Math.max(x1, x2) < sight.left || Math.min(x1, x2) > sight.right) return;
  if (box.turned && (Math.max(y1, y2) < sight.top || Math.min(y1, y2) > sight.bottom)) return;
  context.lineWidth = Math.max(0.6 / scale, Math.min(1 + Math.log10(edge.count), 5)) + extra;
  context.beginPath();
  context.moveTo(x1, y1);
  for (let at = 1; at < way.length; at += 1) {
    if (at % 2 === 0) context.lineTo(...way[at]);
    else curveTo(context, way[at - 1], way[at], box);
  }
  context.stroke();
}

/** A curve that starts and ends in the direction of the layers. */
function curveTo(context, [x1, y1], [x2, y2], { gapX, turned }) {
  const bend = Math.max(0.3 * gapX, Math.min(Math.abs(turned ? y2 - y1 : x2 - x1) / 2, 90));
  if (turned) context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
  else context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
}

function directWay({ nodes }, { source, target }, { nodeWidth, nodeHeight, turned }) {
  const [from, to] = [nodes[source], nodes[target]];
  const [halfWidth, halfHeight] = [nodeWidth / 2, nodeHeight / 2];
  const out = turned ? [from.x + halfWidth, from.y + nodeHeight] : [from.x + nodeWidth, from.y + halfHeight];
  return [out, turned ? [to.x + halfWidth, to.y] : [to.x, to.y + halfHeight]];
}

function drawNode({ at, box, model, shared, view, path }, context, node, colours) {
  const { nodeWidth: width, nodeHeight: height } = box;
  const { x, y } = node;
  const { fill, edge } = colours.tool(model.tools.get(node.tool).colour);
  const only = shared.highlight.get();
  context.globalAlpha = only === null || only === node.tool ? 1 : 0.25;
  // A box without a name is filled with its colour.
  const named = view.scale >= SCALE_NAMED;
  context.fillStyle = named ? colours.paper : fill;
  context.fillRect(x, y, width, height);
  context.fillStyle = fill;
  context.fillRect(x, y, 8, height);
  const failed = node.failed > 0;
  const mark = failed ? colours.bad : node.cancelled > 0 ? colours.stopped : null;
  context.strokeStyle = node === at ? colours.ink : (mark ?? edge);
  context.lineWidth = (node === at ? 2.5 : mark ? 1.8 : 1) / Math.min(1, view.scale * 1.5);
  if (node.unstarted === node.tasks.length) context.setLineDash([5, 3]);
  if (named || mark || node === at) context.strokeRect(x, y, width, height);
  context.setLineDash([]);
  if (path.nodes.has(node.id)) {
    context.fillStyle = colours.ink;
    context.fillRect(x - 0.5, y + height - 2, width + 1, 3);
  }
  if (failed) cross(context, x + width - (named ? 13 : width / 2), y + (named ? 13 : height / 2), named ? 8 : 30, colours.bad);
  if (named) drawNames(context, node, box.nodeWidth, colours);
  context.globalAlpha = 1;
}

function drawNames(context, node, width, colours) {
  const { font } = colours;
  const crossed = node.failed > 0;
  context.fillStyle = colours.ink;
  context.font = `600 13px ${font}`;
  fittingText(context, node.tool, node.x + 16, node.y + 15, width - (crossed ? 40 : 24));
  context.fillStyle = colours.muted;
  context.font = `12px ${font}`;
  fittingText(context, underline(node), node.x + 16, node.y + 31, width - 24);
}

/** The number of unfinished tasks of a group, and a word for what happened to all of them. */
function fateOf({ failed, roots, cancelled }) {
  if (cancelled > 0) return `${count(failed + cancelled)} not finished`;
  return `${count(failed)} ${failed > roots ? "unfinished" : "failed"}`;
}

function underline(node) {
  const own = node.tasks.length === 1 ? `task ${node.tasks[0]}` : plural(node.tasks.length, "task");
  const left = node.failed + node.cancelled;
  if (left > 0 && node.tasks.length > 1) return `${count(node.tasks.length - left)} of ${own} done`;
  return node.seconds > 0 ? `${own}, ${seconds(node.seconds)}` : `${own}, not run`;
}

// ---- keys ----

function listenToKeys(state) {
  const { canvas } = state;
  canvas.addEventListener("keydown", (event) => {
    if (event.altKey || event.metaKey || event.ctrlKey || !state.graph || !pressed(state, event.key)) return;
    event.preventDefault();
  });
  canvas.addEventListener("focus", () => {
    state.at ??= state.graph?.nodes[0] ?? null;
    if (canvas.matches(":focus-visible")) tell(state);
    state.redraw();
  });
  canvas.addEventListener("blur", hideCard);
}

function pressed(state, key) {
  const { at, graph } = state;
  if (key === "+" || key === "=") zoom(state, 1.4);
  else if (key === "-") zoom(state, 1 / 1.4);
  else if (key === "0") fit(state);
  else if (key === "Escape") hideCard();
  else if (at === null) return false;
  else if (key === "Enter" || key === " ") open(state, at);
  else if (key === "Home") go(state, graph.nodes[0]);
  else if (key === "End") go(state, graph.nodes.at(-1));
  else if (key.startsWith("Arrow")) go(state, nodeBeside(graph, at, key, state.box.turned));
  else return false;
  return true;
}

function go(state, node) {
  state.at = node;
  keepInSight(state, node);
  state.redraw();
  tell(state);
}

function keepInSight(state, { x, y }) {
  const { view, size } = state;
  const inside = (from, length, room) => Math.min(Math.max(from, MARGIN), room - length - MARGIN) - from;
  view.x += inside(view.x + x * view.scale, state.box.nodeWidth * view.scale, size.width);
  view.y += inside(view.y + y * view.scale, state.box.nodeHeight * view.scale, size.height);
}

function zoom(state, factor, px = null, py = null) {
  const { view, size, at } = state;
  const x = px ?? (at ? view.x + at.x * view.scale : size.width / 2);
  const y = py ?? (at ? view.y + at.y * view.scale : size.height / 2);
  const scale = Math.max(0.01, Math.min(3, view.scale * factor));
  const ratio = scale / view.scale;
  state.view = { scale, x: x - (x - view.x) * ratio, y: y - (y - view.y) * ratio };
  state.redraw();
}

function fit(state) {
  state.view = null;
  state.redraw();
}

function open(state, node) {
  if (node.tasks.length === 1) {
    const task = state.model.tasks[node.tasks[0]];
    state.shared.selected.set(task);
    state.shared.open(task, state.canvas);
  } else state.shared.openGroup(node);
}

function tell(state) {
  const box = state.canvas.getBoundingClientRect();
  const { at, view } = state;
  if (at === null || view === null) return;
  card(state, at, box.left + view.x + at.x * view.scale, box.top + view.y + (at.y + state.box.nodeHeight) * view.scale);
  announce(
    at.tasks.length === 1
      ? spoken(state.model, state.model.tasks[at.tasks[0]])
      : `${at.tool}, ${underline(at)}${at.failed + at.cancelled > 0 ? `, ${fateOf(at)}` : ""}.`,
  );
}

function card(state, node, x, y) {
  if (node.tasks.length === 1) {
    const task = state.model.tasks[node.tasks[0]];
    showCard(titleOf(task), linesOf(state.model, task), x, y);
    return;
  }
  const { before, after } = state.links[node.id];
  const names = (edges, end) =>
    edges
      .slice(0, 4)
      .map((edge) => `${state.graph.nodes[edge[end]].tool}${passed(edge)}`)
      .join(", ") || "nothing";
  showCard(
    `${node.tool} · ${plural(node.tasks.length, "task")}`,
    [
      ["of them", fateOf(node), node.failed > 0 ? "bad" : node.cancelled > 0 ? "stopped" : null],
      ["ran", seconds(node.seconds)],
      ["needs", names(before, "source")],
      ["feeds", names(after, "target")],
    ],
    x,
    y,
  );
}

function passed({ elements }) {
  return elements.size === 0 ? "" : ` (${[...elements].slice(0, 2).join(", ")})`;
}

// ---- pointer ----

function listenToPointer(state) {
  const { canvas } = state;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !state.view) return;
    canvas.setPointerCapture(event.pointerId);
    state.drag = { x: event.offsetX, y: event.offsetY, from: { ...state.view }, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => moved(state, event));
  canvas.addEventListener("pointerup", (event) => {
    const node = state.drag && !state.drag.moved ? under(state, event) : null;
    state.drag = null;
    if (node) {
      state.at = node;
      open(state, node);
    }
  });
  canvas.addEventListener("pointercancel", () => (state.drag = null));
  canvas.addEventListener("pointerleave", hideCard);
  canvas.addEventListener("dblclick", () => fit(state));
  const wheel = (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    zoom(state, Math.exp(-event.deltaY * 0.002), event.offsetX, event.offsetY);
  };
  canvas.addEventListener("wheel", wheel, { passive: false });
}

function moved(state, event) {
  const { drag, canvas } = state;
  if (drag) {
    const [byX, byY] = [event.offsetX - drag.x, event.offsetY - drag.y];
    drag.moved ||= Math.abs(byX) + Math.abs(byY) > 4;
    if (!drag.moved) return;
    state.view = { ...drag.from, x: drag.from.x + byX, y: drag.from.y + byY };
    hideCard();
    state.redraw();
    return;
  }
  const node = under(state, event);
  canvas.style.cursor = node ? "pointer" : "grab";
  if (node) card(state, node, event.clientX, event.clientY);
  else hideCard();
}

function under({ graph, view }, { offsetX, offsetY }) {
  if (!view) return null;
  const [x, y] = [(offsetX - view.x) / view.scale, (offsetY - view.y) / view.scale];
  const hit = (node) => x >= node.x && x <= node.x + state.box.nodeWidth && y >= node.y && y <= node.y + state.box.nodeHeight;
  return graph.nodes.find(hit) ?? null;
}
