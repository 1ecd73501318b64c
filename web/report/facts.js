// The facts about one task for its card, its drawer, and screen readers.

import * as words from "./format.js";
import { lengthOf } from "./model.js";
import { nodeName } from "./nodes.js";

/** The title: `Task 17 · Predict`. */
export function titleOf(task) {
  return `Task ${task.id} · ${task.tool}`;
}

/** The status: `done`, or the kind of failure in words. */
export function statusOf(task) {
  if (task.status === "done") return task.reused ? "reused" : "done";
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

/** The lines of the card, of the last attempt or of one of `task.earlier`. */
export function linesOf(model, task, attempt = task) {
  const { input_bytes: input, output_bytes: output } = task;
  return [
    attempt === task ? ["status", statusOf(task), toneOf(task)] : ["status", `an earlier attempt: ${attempt.text}`, "bad"],
    ...runLines(model, task, attempt),
    ["read", `${words.bytes(input)} · ${listed(task.inputs)}`],
    ...(task.reads
      ? [
          [
            "of this",
            partsOf(task.reads, ORIGINS)
              .map(({ name, text }) => `${text} ${name}`)
              .join(", "),
          ],
        ]
      : []),
    ["wrote", `${words.bytes(output)} · ${listed(task.outputs)}`],
  ];
}

/** The lines about the time and the place of an attempt. */
export function runLines(model, task, attempt = task) {
  const { waited_s: waited, causes } = task;
  const node = nodeName(model, attempt);
  const never = task.reused ? `no, ${task.reused} had the same result` : "never";
  return [
    ["ran", attempt.start_s === null ? never : `${words.seconds(lengthOf(attempt))}, from ${words.seconds(attempt.start_s)}`],
    ...(node === null ? [] : [["node", node]]),
    ["slot", attempt.slot === null ? "–" : `${attempt.slot}${(task.cpus ?? 1) > 1 ? ` (${task.cpus} slots)` : ""}`],
    ["waited", waited === undefined ? "–" : `${words.seconds(waited)} for a slot, or space`],
    ...(causes ? [["moving", words.seconds(causes.moving_s)]] : []),
  ];
}

/** What time was spent on, and where bytes came from: field, name, CSS class, the value as text. */
export const CAUSES = [
  ["data_s", "waiting for data", "data", words.seconds],
  ["slot_s", "waiting for a slot, or space", "slot", words.seconds],
  ["moving_s", "moving", "moving", words.seconds],
  ["computing_s", "computing", "computing", words.seconds],
];
export const ORIGINS = [
  ["local", "local", "computing", words.bytes],
  ["cached", "cached", "cached", words.bytes],
  ["remote", "remote", "moving", words.bytes],
];

/** The parts of `sums` by `kinds`, one of the above: `{ field, name, tone, value, text }`. */
export function partsOf(sums, kinds) {
  return kinds.map(([field, name, tone, show]) => ({ field, name, tone, value: sums[field], text: show(sums[field]) }));
}

/** The facts in one sentence, for screen readers. */
export function spoken(model, task) {
  const node = nodeName(model, task);
  const when =
    task.start_s === null
      ? task.reused
        ? `from ${task.reused}`
        : "never ran"
      : `ran ${words.seconds(lengthOf(task))} from ${words.seconds(task.start_s)} in slot ${task.slot}${node === null ? "" : ` of ${node}`}`;
  return `${titleOf(task)}, ${statusOf(task)}, ${when}.`;
}

/** The first names of a list of references. */
export function listed(refs, most = 2) {
  if (refs.length === 0) return "nothing";
  const rest = refs.length > most ? ` and ${refs.length - most} more` : "";
  return refs.slice(0, most).map(words.dataName).join(", ") + rest;
}
