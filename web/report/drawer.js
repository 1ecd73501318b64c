// The drawer: everything about one task. It opens beside the page, takes the focus, and returns it
// when it closes.

import { byId, el } from "./dom.js";
import { CAUSES, ORIGINS, partsOf, runLines, statusOf, titleOf, toneOf } from "./facts.js";
import * as words from "./format.js";
import { chainOf, neighboursOf, placesOf } from "./model.js";
import { amountsOf } from "./stacked.js";

/** Maximum number of names in a list; the rest are only counted. */
const LISTED_MAX = 40;

/** Connects the drawer; returns `open(task, opener)`. */
export function startDrawer(model, shared) {
  const drawer = byId("drawer");
  let opener = null;
  const close = () => {
    if (drawer.hidden) return;
    drawer.hidden = true;
    opener?.focus();
  };
  byId("drawer-close").addEventListener("click", close);
  document.addEventListener("keydown", (event) => event.key === "Escape" && close());
  return (task, from) => {
    if (!drawer.contains(from)) opener = from;
    const go = (id) => {
      shared.selected.set(model.tasks[id]);
      shared.open(model.tasks[id], byId("drawer-close"));
    };
    byId("drawer-title").textContent = titleOf(task);
    byId("drawer-body").replaceChildren(...contents(model, task, go));
    byId("drawer-body").scrollTop = 0;
    drawer.hidden = false;
    byId("drawer-close").focus();
  };
}

function contents(model, task, go) {
  const { before, after } = neighboursOf(model, task.id);
  return [
    el("p", { class: toneOf(task) ?? "muted" }, statusOf(task)),
    task.reason ? reasonOf(model, task, go) : null,
    facts(model, task),
    task.causes ? amountsOf("Time by cause", partsOf(task.causes, CAUSES)) : null,
    task.reads ? amountsOf("Bytes read, by where they lay", partsOf(task.reads, ORIGINS)) : null,
    commandOf(task),
    outputOf(task),
    dataOf(model, "Reads", task.inputs),
    dataOf(model, "Writes", task.outputs),
    tasksOf(model, "Waits for", before, go),
    tasksOf(model, "Waited for by", after, go),
  ].filter(Boolean);
}

function facts(model, task) {
  const more = [
    ["attempts", words.count(task.attempts)],
    ["exit code", task.exit_code === null ? "–" : String(task.exit_code)],
    ["processor", words.seconds(task.cpu_s)],
    ["memory", words.bytes(task.peak_memory_bytes ?? task.max_rss_bytes)],
    ["script", task.line > 0 ? `line ${task.line}` : "–"],
  ];
  const lines = [...runLines(model, task), ...more];
  return el(
    "dl",
    { class: "facts" },
    lines.map(([term, text]) => [el("dt", {}, term), el("dd", {}, text)]),
  );
}

/** Why the task failed; if another task caused it, the chain of tasks to that one. */
export function reasonOf(model, task, go) {
  const steps = chainOf(model, task).slice(1);
  const step = (other) => el("li", {}, taskLink(other, go), `: ${other.reason?.text ?? statusOf(other)}`);
  return el(
    "div",
    { class: "reason" },
    el("p", {}, task.reason.text),
    task.reason.kept ? el("p", {}, `It is kept in ${task.reason.kept}; ${task.reason.repeat} repeats its command.`) : null,
    steps.length > 0 ? el("ol", { class: "chain" }, steps.slice(0, LISTED_MAX).map(step)) : null,
  );
}

/** A button that opens `task`. */
export function taskLink(task, go, text = `${task.id} ${task.tool}`) {
  return el("button", { type: "button", class: "link", onclick: () => go(task.id) }, text);
}

/** A member's file: a link if it was exported to a path that the page can reach. */
export function fileOf(member, text, tabindex = null) {
  if (!member.link || !/^[\w.~%/-]+$/.test(member.link)) return text;
  return el("a", { href: member.link, title: member.exported, tabindex }, text);
}

/** The command line, as in a shell. */
export function commandOf(task) {
  const { command = [], command_cut: cut = 0 } = task;
  if (command.length === 0) return null;
  const rest = cut > 0 ? ` … ${words.plural(cut, "more argument")}` : "";
  return el("div", {}, el("h4", {}, "Command"), el("pre", { tabindex: "0", "aria-label": "Command" }, typed(command) + rest));
}

/** Quotes arguments for a shell. */
export function typed(command) {
  const quoted = (argument) => (/^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", "'\\''")}'`);
  return command.map(quoted).join(" ");
}

/** The output of a task. Standard error is first, because it usually has the cause. */
export function outputOf(task) {
  const streams = [
    ["Standard error", task.reason?.stderr ?? task.stderr],
    ["Standard output", task.reason?.stdout ?? task.stdout],
  ].filter(([, stream]) => stream);
  return streams.length === 0
    ? null
    : el(
        "div",
        {},
        streams.map(([name, stream]) => streamOf(name, stream)),
      );
}

function streamOf(name, { head, tail = "", bytes }) {
  const kept = new TextEncoder().encode(head + tail).length;
  const cut = kept < bytes ? `\n[… ${words.bytes(bytes - kept)} left out …]\n` : "";
  const text = [words.plainLines(head), cut ? el("span", { class: "cut" }, cut) : null, words.plainLines(tail)];
  return [
    el("h4", {}, `${name}, ${words.bytes(bytes)}`),
    el("pre", { tabindex: "0", "aria-label": name, class: "output" }, text.filter(Boolean)),
  ];
}

function dataOf(model, title, refs) {
  if (refs.length === 0) return null;
  const size = (ref) => {
    const [first, length] = placesOf(model, ref);
    let sum = 0;
    for (let place = first; place < first + length; place += 1) sum += model.run.data[place].bytes ?? 0;
    return sum;
  };
  const name = (ref) =>
    typeof ref === "string" ? fileOf(model.run.data[placesOf(model, ref)[0]] ?? {}, ref) : words.dataName(ref);
  const item = (ref) => el("li", {}, el("span", {}, name(ref)), el("span", { class: "number" }, words.bytes(size(ref))));
  return el(
    "div",
    {},
    el("h4", {}, title),
    el("ul", { class: "amounts" }, refs.slice(0, LISTED_MAX).map(item)),
    more(refs.length),
  );
}

function tasksOf(model, title, ids, go) {
  if (ids.length === 0) return null;
  const item = (id) => el("li", {}, taskLink(model.tasks[id], go));
  return el("div", {}, el("h4", {}, title), el("ul", { class: "tasks" }, ids.slice(0, LISTED_MAX).map(item)), more(ids.length));
}

function more(length) {
  return length > LISTED_MAX ? el("p", { class: "muted" }, `and ${words.count(length - LISTED_MAX)} more`) : null;
}
