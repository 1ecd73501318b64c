// Failures: tasks that failed on their own, with their command, their output, and the tasks that
// could not run because of them.
//
// Tasks with the same failure share an entry with the numbers of all, because a hundred copies of
// one message would hide the second message.

import { byId, el } from "./dom.js";
import { commandOf, outputOf, taskLink } from "./drawer.js";
import { statusOf, titleOf } from "./facts.js";
import { count, plural } from "./format.js";
import { chainOf, failureGroups, followersOf } from "./model.js";

/** Failures shown at a time. */
const SHOWN_STEP = 10;
/** Maximum number of links in a list; the rest are only counted. */
const LINKS_MAX = 30;

/** Fills the section, or leaves it hidden if nothing failed. */
export function startFailures(model, shared) {
  const groups = failureGroups(model.tasks);
  const { problem } = model.run;
  if (groups.length === 0 && !problem) return;
  byId("failures").hidden = false;
  const list = byId("failure-list");
  if (problem) list.append(el("p", { class: "reason" }, problem));
  showMore(list, groups, model, shared);
  // All entries are open in print, because nothing can be opened on paper.
  const opened = new Set();
  addEventListener("beforeprint", () => {
    for (const details of list.querySelectorAll("details:not([open])")) opened.add(details).forEach((each) => (each.open = true));
  });
  addEventListener("afterprint", () => {
    opened.forEach((details) => (details.open = false));
    opened.clear();
  });
}

function showMore(list, groups, model, shared) {
  const [now, later] = [groups.slice(0, SHOWN_STEP), groups.slice(SHOWN_STEP)];
  list.append(...now.map((group) => failure(group, model, shared)));
  if (later.length === 0) return;
  const button = el(
    "button",
    { type: "button", class: "more" },
    `Show ${count(Math.min(SHOWN_STEP, later.length))} of ${plural(later.length, "more failure")}`,
  );
  button.addEventListener("click", () => {
    const place = button.previousElementSibling;
    button.remove();
    showMore(list, later, model, shared);
    place.nextElementSibling?.querySelector("button")?.focus();
  });
  list.append(button);
}

function failure(group, model, shared) {
  const [task, ...others] = group;
  const go = (id) => {
    shared.selected.set(model.tasks[id]);
    shared.open(model.tasks[id], document.activeElement);
  };
  const tries = task.attempts > 1 ? `, after ${count(task.attempts)} attempts` : "";
  const line = task.line > 0 ? `${model.run.workflow.source}, line ${task.line}` : "";
  return el(
    "article",
    { class: "failure", "data-task": task.id },
    el(
      "h3",
      {},
      el("button", { type: "button", class: "link", onclick: () => go(task.id) }, titleOf(task)),
      el("span", { class: "where" }, line),
    ),
    el("p", { class: "reason" }, task.reason?.text ?? statusOf(task), tries),
    commandOf(task),
    outputOf(task),
    others.length > 0 ? alike(task, others, go) : null,
    followers(group, model, go),
  );
}

function alike(task, others, go) {
  const links = others
    .slice(0, LINKS_MAX)
    .map((other) => [el("button", { type: "button", class: "link", onclick: () => go(other.id) }, String(other.id)), " "]);
  const rest = others.length > LINKS_MAX ? `and ${count(others.length - LINKS_MAX)} more, in the table of tasks` : null;
  return el("p", { class: "same" }, `${plural(others.length, "more task")} of ${task.tool} failed alike: `, links, rest);
}

function followers(group, model, go) {
  const all = followersOf(model, group);
  if (all.length === 0) return null;
  const way = (other) =>
    chainOf(model, other)
      .slice(1)
      .map((step, at) => [at === 0 ? " needs " : ", which needs ", taskLink(step, go)]);
  const item = (other) => el("li", {}, taskLink(other, go), way(other));
  const rest =
    all.length > LINKS_MAX
      ? el("p", { class: "muted" }, `and ${count(all.length - LINKS_MAX)} more, in the table of tasks`)
      : null;
  const summary = el("summary", {}, `${plural(all.length, "task")} could not run because of ${group.length > 1 ? "them" : "it"}`);
  return el("details", {}, summary, el("ul", { class: "chain" }, all.slice(0, LINKS_MAX).map(item)), rest);
}
