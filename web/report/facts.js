// The facts about one task for its card, its drawer, and screen readers.

import * as words from "./format.js";
import { lengthOf } from "./model.js";

/** The title: `Task 17 · Predict`. */
export function titleOf(task) {
  return `Task ${task.id} · ${task.tool}`;
}

/** The status: `done`, or the kind of failure in words. */
export function statusOf(task) {
  if (task.status === "done") return "done";
  if (task.status === "cancelled") return task.attempts > 0 ? "interrupted" : "not run: the run ended first";
  const kinds = {
    exit: `failed: exit code ${task.exit_code}`,
    signal: `failed: signal ${task.reason?.signal ?? "unknown"}`,
    timeout: "failed: out of time",
    "missing-output": "failed: output missing",
    "not-started": "failed: could not be started",
    upstream: "not run: needs a task that failed",
    "no-space": "failed: the pool was full",
    memory: "failed: took more memory than it declares",
  };
  return kinds[task.reason?.kind] ?? "failed";
}

/** The CSS class of the status: `bad` if the task failed, `stopped` if the run ended first. */
export function toneOf(task) {
  return { done: null, failed: "bad", cancelled: "stopped" }[task.status] ?? null;
}

/** The lines of the card. */
export function linesOf(task, earlier = null) {
  const { waited_s: waited } = task;
  return [
    ["status", earlier === null ? statusOf(task) : `an earlier attempt: ${earlier}`, earlier === null ? toneOf(task) : "bad"],
    ["ran", task.start_s === null ? "never" : `${words.seconds(lengthOf(task))}, from ${words.seconds(task.start_s)}`],
    ["slot", task.slot === null ? "–" : `${task.slot}${(task.cpus ?? 1) > 1 ? ` (${task.cpus} slots)` : ""}`],
    ["waited", waited === undefined ? "–" : `${words.seconds(waited)} for a slot, or space`],
    ["read", `${words.bytes(task.input_bytes)} · ${listed(task.inputs)}`],
    ["wrote", `${words.bytes(task.output_bytes)} · ${listed(task.outputs)}`],
  ];
}

/** The facts in one sentence, for screen readers. */
export function spoken(task) {
  const when =
    task.start_s === null
      ? "never ran"
      : `ran ${words.seconds(lengthOf(task))} from ${words.seconds(task.start_s)} in slot ${task.slot}`;
  return `${titleOf(task)}, ${statusOf(task)}, ${when}.`;
}

/** The first names of a list of references. */
export function listed(refs, most = 2) {
  if (refs.length === 0) return "nothing";
  const rest = refs.length > most ? ` and ${refs.length - most} more` : "";
  return refs.slice(0, most).map(words.dataName).join(", ") + rest;
}
