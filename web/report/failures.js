// Failures: each task that failed by itself, with its command, its output, and the tasks that could not run because of it.

import { byId, el } from "./dom.js";
import { commandOf, outputOf, taskLink } from "./drawer.js";
import { statusOf, titleOf } from "./facts.js";
import { count, plural } from "./format.js";
import { chainOf, followersOf, isRootFailure } from "./model.js";

/** Failures shown at once; a hundred of them are mostly the same one. */
const SHOWN_STEP = 10;
const FOLLOWERS_MAX = 30;

/** Fills the section, or leaves it hidden if nothing failed. */
export function startFailures(model, shared) {
  const roots = model.tasks.filter(isRootFailure);
  const cancelled = model.tasks.filter((task) => task.reason?.kind === "cancelled").length;
  const { problem } = model.run;
  if (roots.length === 0 && cancelled === 0 && !problem) return;
  byId("failures").hidden = false;
  for (const link of document.querySelectorAll('a[href="#failures"]')) link.hidden = false;
  const list = byId("failure-list");
  if (problem) list.append(el("p", { class: "reason" }, problem));
  showMore(list, roots, model, shared);
  if (cancelled > 0) list.append(el("p", { class: "muted" }, `${plural(cancelled, "task")} had not finished when the run ended.`));
}

function showMore(list, roots, model, shared) {
  const [now, later] = [roots.slice(0, SHOWN_STEP), roots.slice(SHOWN_STEP)];
  list.append(...now.map((task) => failure(task, model, shared)));
  if (later.length === 0) return;
  const button = el("button", { type: "button", class: "more" }, `Show ${count(Math.min(SHOWN_STEP, later.length))} of ${plural(later.length, "more failure")}`);
  button.addEventListener("click", () => {
    const place = button.previousElementSibling;
    button.remove();
    showMore(list, later, model, shared);
    place.nextElementSibling?.querySelector("button")?.focus();
  });
  list.append(button);
}

function failure(task, model, shared) {
  const go = (id) => {
    shared.selected.set(model.tasks[id]);
    shared.open(model.tasks[id], document.activeElement);
  };
  const tries = task.attempts > 1 ? `, after ${count(task.attempts)} attempts` : "";
  const line = task.line > 0 ? `${model.run.workflow.source}, line ${task.line}` : "";
  return el(
    "article",
    { class: "failure", "data-task": task.id },
    el("h3", {}, el("button", { type: "button", class: "link", onclick: () => go(task.id) }, titleOf(task)), el("span", { class: "where" }, line)),
    el("p", { class: "reason" }, task.reason?.text ?? statusOf(task), tries),
    commandOf(task),
    outputOf(task),
    followers(task, model, go),
  );
}

function followers(task, model, go) {
  const all = followersOf(model, task);
  if (all.length === 0) return null;
  const way = (other) => chainOf(model, other).slice(1).map((step, at) => [at === 0 ? " needs " : ", which needs ", taskLink(step, go)]);
  const item = (other) => el("li", {}, taskLink(other, go), way(other));
  const rest = all.length > FOLLOWERS_MAX ? el("p", { class: "muted" }, `and ${count(all.length - FOLLOWERS_MAX)} more, in the table of tasks`) : null;
  const summary = el("summary", {}, `${plural(all.length, "task")} could not run because of it`);
  return el("details", {}, summary, el("ul", { class: "chain" }, all.slice(0, FOLLOWERS_MAX).map(item)), rest);
}
