// run.json with the indices that the views need: writers, dependencies, and colours of tools. Pure:
// no DOM.

/**
 * Maximum number of dependencies. More cannot be drawn anyway; two arrays of 5,000 passed to each
 * other have 25 million.
 */
export const EDGES_MAX = 400_000;

/** Maximum number of tools with separate colours: more are hard to tell apart. */
export const COLOURS_MAX = 10;

/** Makes a model of a parsed run.json. */
export function modelOf(run) {
  const places = new Map(run.data.map((member, place) => [member.name, place]));
  const model = { run, tasks: run.tasks, places, tools: toolsOf(run.tasks) };
  Object.assign(model, edgesOf(model));
  model.depths = depthsOf(run.tasks.length, model.edges);
  return model;
}

/**
 * The range of `run.data` that `ref` names, as `[first, count]`; count is 0 if it names nothing.
 */
export function placesOf(model, ref) {
  const first = model.places.get(typeof ref === "string" ? ref : ref.from);
  if (first === undefined) return [0, 0];
  return [first, typeof ref === "string" ? 1 : Math.min(ref.count, model.run.data.length - first)];
}

/** True if a task failed on its own and not because of another task. */
export function isRootFailure(task) {
  return task.status === "failed" && task.reason?.kind !== "upstream";
}

/**
 * The critical path in order of time, with consecutive tasks of one tool together:
 * `{ tool, steps }`.
 */
export function stretchesOf(model) {
  const stretches = [];
  for (const step of model.run.critical_path?.steps ?? []) {
    const { tool } = model.tasks[step.task];
    if (stretches.at(-1)?.tool === tool) stretches.at(-1).steps.push(step);
    else stretches.push({ tool, steps: [step] });
  }
  return stretches;
}

/** The tasks from `task` to the one that caused its failure, `task` first. */
export function chainOf(model, task) {
  const chain = [task];
  const seen = new Set([task.id]);
  for (let via = task.reason?.via; via !== undefined && !seen.has(via) && model.tasks[via]; via = model.tasks[via].reason?.via) {
    seen.add(via);
    chain.push(model.tasks[via]);
  }
  return chain;
}

/** The tasks that failed because of one of `roots`, ordered by id. */
export function followersOf(model, roots) {
  const ids = new Set(roots.map((root) => root.id));
  return model.tasks.filter((task) => task.reason?.kind === "upstream" && ids.has(task.reason.root));
}

/** Groups of tasks that failed on their own: by tool, reason and last output line. */
export function failureGroups(tasks) {
  const groups = new Map();
  for (const task of tasks.filter(isRootFailure)) {
    const key = JSON.stringify([task.tool, task.reason?.text, lastLine(task.reason?.stderr) ?? lastLine(task.reason?.stdout)]);
    if (groups.has(key)) groups.get(key).push(task);
    else groups.set(key, [task]);
  }
  return [...groups.values()];
}

function lastLine(stream) {
  return stream && (stream.tail || stream.head).trimEnd().split("\n").at(-1);
}

/** The tasks that `id` waited for, and those that waited for it. */
export function neighboursOf(model, id) {
  const before = [];
  const after = [];
  for (const { source, target } of model.edges) {
    if (target === id) before.push(source);
    if (source === id) after.push(target);
  }
  return { before, after };
}

/** The title of the run: the workflow's name, with its directory's if the name alone is generic. */
export function runTitle({ workflow, directory }) {
  const folders = `${workflow.source.startsWith("/") ? "" : (directory ?? "")}/${workflow.source}`.split("/").filter(Boolean);
  const folder = folders.at(-2);
  return workflow.name === "workflow" && folder && folder !== ".." ? `${folder}/${workflow.name}` : workflow.name;
}

/** A sentence about the whole run, to follow the word for its outcome. */
export function verdict(run, words) {
  const {
    tasks,
    tasks_failed: failed,
    tasks_failed_root: roots,
    tasks_cancelled: cancelled = 0,
    makespan_s: length,
  } = run.totals;
  const took = words.seconds(length);
  if (run.outcome === "interrupted") {
    const far = `After ${took}, ${words.count(run.totals.tasks_done)} of ${words.plural(tasks, "task")} were done`;
    return `${far}${failed > 0 ? `, ${words.count(failed)} had failed` : ""}; ${words.count(cancelled)} had not finished.`;
  }
  if (run.outcome === "done") return tasks === 1 ? `One task in ${took}.` : `All ${words.plural(tasks, "task")} in ${took}.`;
  if (failed + cancelled === 0) return `Every task is done, but the run failed after ${took}.`;
  const followed = failed - roots;
  const rest = followed > 0 ? `; ${words.count(followed)} more could not run because of that` : "";
  const stopped = cancelled > 0 ? `; ${words.count(cancelled)} had not finished when the run ended` : "";
  return `${words.count(roots)} of ${words.plural(tasks, "task")} failed${rest}${stopped}. The run took ${took}.`;
}

function toolsOf(tasks) {
  const tools = new Map();
  for (const task of tasks) {
    const tool = tools.get(task.tool) ?? { name: task.tool, tasks: 0, failed: 0, seconds: 0 };
    tool.tasks += 1;
    tool.failed += task.status === "failed" ? 1 : 0;
    tool.seconds += lengthOf(task);
    tools.set(task.tool, tool);
  }
  const list = [...tools.values()];
  const loud = [...list].sort((a, b) => b.seconds - a.seconds).slice(0, COLOURS_MAX);
  let next = 0;
  for (const tool of list) tool.colour = list.length <= COLOURS_MAX || loud.includes(tool) ? next++ : COLOURS_MAX;
  return tools;
}

/** Duration of the last attempt in seconds; 0 if it never started. */
export function lengthOf(task) {
  return task.start_s === null || task.end_s === null ? 0 : task.end_s - task.start_s;
}

function edgesOf(model) {
  const edges = [];
  for (const task of model.tasks) {
    const sources = new Map();
    for (const ref of task.inputs) gatherWriters(model, ref, sources);
    for (const id of task.after ?? []) if (!sources.has(id)) sources.set(id, null);
    for (const [source, element] of sources) {
      if (edges.length === EDGES_MAX) return { edges, edgesCut: true };
      edges.push({ source, target: task.id, element });
    }
  }
  return { edges, edgesCut: false };
}

function gatherWriters(model, ref, sources) {
  const [first, length] = placesOf(model, ref);
  for (let place = first; place < first + length; place += 1) {
    const { writer, element } = model.run.data[place];
    if (writer !== null && !sources.has(writer)) sources.set(writer, element);
  }
}

/**
 * The length of the longest path to each of `size` nodes; edges that close a cycle do not count.
 */
export function depthsOf(size, edges) {
  const waits = new Int32Array(size);
  const out = Array.from({ length: size }, () => []);
  for (const { source, target } of edges) {
    if (source === target) continue;
    out[source].push(target);
    waits[target] += 1;
  }
  const depths = new Int32Array(size);
  const queue = [];
  const queued = new Uint8Array(size);
  const push = (node) => {
    queued[node] = 1;
    queue.push(node);
  };
  for (let node = 0; node < size; node += 1) if (waits[node] === 0) push(node);
  let rest = 0;
  for (let at = 0; at < size; at += 1) {
    if (at === queue.length) {
      // A cycle: start at any node of it, and let the edge that closes it point back.
      while (queued[rest]) rest += 1;
      push(rest);
    }
    for (const target of out[queue[at]]) {
      if (queued[target]) continue;
      depths[target] = Math.max(depths[target], depths[queue[at]] + 1);
      waits[target] -= 1;
      if (waits[target] === 0) push(target);
    }
  }
  return depths;
}
