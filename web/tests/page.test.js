// The page in Chromium: its numbers are those of run.json, the keyboard alone is sufficient, and no
// content of a run breaks it.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import test, { after, before } from "node:test";
import { pathToFileURL } from "node:url";
import * as words from "../report/format.js";
import { browser, drawn, folder, opened, sample } from "./browser.js";

const pages = folder();
let chrome;
let done;
let failed;
let interrupted;
let cluster;

before(async () => {
  chrome = await browser();
  done = sample(pages.path, 223, "done");
  failed = sample(pages.path, 223, "failed");
  interrupted = sample(pages.path, 223, "interrupted");
  cluster = sample(pages.path, 60, "cluster");
});

after(async () => {
  await chrome?.close();
  pages.remove();
});

const focused = (page) =>
  page.evaluate(
    () => document.activeElement?.id || document.activeElement?.getAttribute("aria-label") || document.activeElement?.textContent,
  );
const said = (page) => page.locator("#announcer").textContent();
const focus = (page, selector) => page.locator(selector).evaluate((element) => element.focus({ focusVisible: true }));

/** True if a canvas has more than one colour, so something was drawn. */
const isPainted = (page, selector) =>
  page.locator(selector).evaluate((canvas) => {
    const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return new Set(pixels).size > 4;
  });

test("numbers on the page are those of run.json", async () => {
  for (const { run, url } of [done, failed, cluster]) {
    const page = await opened(chrome, url);
    const fields = await page
      .locator("[data-field]")
      .evaluateAll((all) => all.map(({ dataset }) => [dataset.field, dataset.value]));
    assert.ok(fields.length >= 7);
    for (const [field, value] of fields) {
      const truth = field.split(".").reduce((part, name) => part[name], run);
      assert.equal(value, String(truth), field);
    }
    const bars = await page
      .locator("[data-element]")
      .evaluateAll((all) => all.map(({ dataset }) => [dataset.element, Number(dataset.value)]));
    assert.deepEqual(
      bars,
      [...run.elements].sort((a, b) => b.bytes - a.bytes).map(({ name, bytes }) => [name, bytes]),
    );
    assert.equal(await page.locator("#tasks-count").textContent(), `${run.tasks.length} of ${run.tasks.length} tasks`);
    await page.close();
  }
});

test("the table by tool is the one of run.json, in words", async () => {
  const { run, url } = failed;
  const page = await opened(chrome, url);
  const rows = await page
    .locator("#tool-rows .grid-body > [role=row]")
    .evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
  assert.deepEqual(
    rows.map(([tool]) => tool),
    run.by_tool.map(({ tool }) => tool),
  );
  const predict = run.by_tool.find(({ tool }) => tool === "Predict");
  const [, tasks, runs, retries, failures, least, median, longest, , , , cpu, memory] = rows.find(([tool]) => tool === "Predict");
  assert.deepEqual([tasks, runs, retries, failures].map(Number), [112, predict.runs, predict.retries, predict.failed]);
  const times = [predict.shortest_s, predict.median_s, predict.longest_s].map(words.seconds);
  assert.deepEqual([least, median, longest, cpu, memory], [...times, "93 %", words.bytes(predict.peak_memory_bytes)]);
  await page.click("#tool-rows-6");
  assert.equal(await page.locator("#tasks-count").textContent(), "112 of 223 tasks");
  await page.close();
});

test("the critical path is listed from the start of the run to its last task", async () => {
  const { run, url } = done;
  const page = await opened(chrome, url);
  const rows = page.locator("#critical-table tbody tr");
  const tools = run.critical_path.steps.map(({ task }) => run.tasks[task].tool);
  assert.equal(await rows.count(), tools.filter((tool, at) => tool !== tools[at - 1]).length);
  assert.match(await rows.first().textContent(), /^21 ms.*Partition0the start of the run$/);
  const last = run.critical_path.steps.at(-1);
  await rows.last().locator("button").last().click();
  assert.equal(await page.locator("#drawer-title").textContent(), `Task ${last.task} · ${run.tasks[last.task].tool}`);
  await page.close();
});

test("outputs are links to their files, and nothing else is", async () => {
  const { run, url } = done;
  const page = await opened(chrome, url);
  const output = run.data.findLast(({ link }) => link);
  await page.fill("#data-filter", output.name);
  const link = page.locator("#data-rows a");
  assert.equal(await link.getAttribute("href"), output.link);
  assert.equal(await link.textContent(), output.exported);
  await page.fill("#data-filter", "Train");
  assert.equal(await link.count(), 0);
  const hostile = run.data.map((member) => ({ ...member, link: "javascript:alert(1)" }));
  const spoilt = await opened(chrome, altered("links", { data: hostile }));
  assert.equal(await spoilt.locator("#data-rows a").count(), 0);
  await page.close();
  await spoilt.close();
});

test("totals are the sums of the tasks and the data they sum up", () => {
  for (const { run } of [done, failed]) {
    assert.equal(run.totals.tasks_done, run.tasks.filter(({ status }) => status === "done").length);
    assert.equal(run.totals.tasks_failed, run.tasks.filter(({ status }) => status === "failed").length);
    assert.equal(
      run.totals.written_bytes,
      run.data.reduce((sum, { writer, bytes }) => sum + (writer === null ? 0 : (bytes ?? 0)), 0),
    );
    assert.equal(run.totals.pool_peak_bytes, Math.max(...run.pool.samples.map(([, used]) => used)));
  }
});

test("the page is silent, asks for nothing, and fits narrow and wide screens, dark and light", async () => {
  for (const [{ url }, colorScheme, width] of [
    [done, "light", 1280],
    [failed, "dark", 1280],
    [failed, "light", 400],
    [interrupted, "dark", 400],
    [done, "dark", 1920],
    [interrupted, "light", 1920],
    [cluster, "light", 400],
    [cluster, "dark", 1280],
  ]) {
    const page = await opened(chrome, url, { colorScheme, viewport: { width, height: 900 } });
    assert.deepEqual(page.complaints, []);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
    for (const chart of ["timeline", "load", "memory", "cpus", "machine", "graph"])
      assert.ok(await isPainted(page, `#${chart}-chart canvas`), chart);
    await page.close();
  }
});

test("failures come first, with their command, their output and what followed from them", async () => {
  const { run, url } = failed;
  const page = await opened(chrome, url);
  assert.equal(await page.locator("main > section:visible").first().getAttribute("id"), "failures");
  const roots = run.tasks.filter(({ status, reason }) => status === "failed" && reason.kind !== "upstream");
  const shown = await page.locator(".failure").evaluateAll((all) => all.map(({ dataset }) => Number(dataset.task)));
  const alike = await page.locator(".same button").allTextContents();
  const ids = [...shown, ...alike.map(Number)].sort((a, b) => a - b);
  assert.deepEqual(
    ids,
    roots.map(({ id }) => id),
  );
  const last = roots.find(({ id, reason }) => reason.kind === "exit" && shown.includes(id));
  const text = await page.locator(`.failure[data-task="${last.id}"]`).textContent();
  for (const part of [last.reason.text, last.reason.stderr.head, last.command[1]]) assert.ok(text.includes(part), part);
  const follower = run.tasks.find(({ reason }) => reason?.kind === "upstream");
  const chains = (await page.locator(".failure .chain").allTextContents()).join("\n");
  assert.ok(chains.includes(`${follower.id} ${follower.tool} needs ${follower.reason.via} `), chains);
  await page.close();
});

test("a run without failures does not speak of them", async () => {
  const page = await opened(chrome, done.url);
  assert.equal(await page.locator("#failures").isVisible(), false);
  assert.equal(await page.locator('a[href="#failures"]').isVisible(), false);
  await page.close();
});

test("the whole page can be walked with the Tab key, and the focus is always seen", async () => {
  const page = await opened(chrome, failed.url);
  const seen = [];
  for (let step = 0; step < 120; step += 1) {
    await page.keyboard.press("Tab");
    const where = await page.evaluate(() => {
      const at = document.activeElement;
      if (!at || at === document.body) return null;
      const style = getComputedStyle(at);
      return {
        name: at.id || at.getAttribute("aria-label") || at.textContent,
        ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
      };
    });
    if (where === null) break;
    assert.ok(where.ring, `no focus ring on ${where.name}`);
    seen.push(where.name);
  }
  const order = [
    "Skip to the timeline",
    "theme",
    "zoom-in",
    "graph-level",
    "data-filter",
    "data-rows",
    "tasks-filter",
    "task-rows",
    "command-line",
  ];
  const places = order.map((name) => seen.indexOf(name));
  assert.ok(
    places.every((place, at) => place >= 0 && (at === 0 || place > places[at - 1])),
    `${order} in ${seen}`,
  );
  assert.ok(seen.some((name) => name.startsWith("Timeline:")) && seen.some((name) => name.startsWith("Graph of")));
  await page.close();
});

test("arrow keys walk the timeline, Enter opens a task, Escape gives the focus back", async () => {
  const { run, url } = done;
  const page = await opened(chrome, url);
  const chart = "#timeline-chart canvas";
  await focus(page, chart);
  assert.match(await said(page), /^Task 0 · Partition, done/);
  await page.keyboard.press("ArrowRight");
  const sentence = await said(page);
  const id = Number(/^Task (\d+)/.exec(sentence)[1]);
  const inLane = run.tasks.filter(({ slot }) => slot === run.tasks[0].slot).sort((a, b) => a.start_s - b.start_s);
  assert.equal(id, inLane[1].id);
  assert.ok(await page.locator("#card").isVisible());
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("#drawer-title").textContent(), `Task ${id} · ${run.tasks[id].tool}`);
  assert.equal(await focused(page), "drawer-close");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#drawer").isVisible(), false);
  assert.match(await focused(page), /^Timeline:/);
  await page.close();
});

test("plus, drag and All change the span of both charts", async () => {
  const page = await opened(chrome, done.url);
  const picture = () => page.locator("#memory-chart canvas").evaluate((canvas) => canvas.toDataURL());
  const whole = await picture();
  await focus(page, "#timeline-chart canvas");
  await page.keyboard.press("+");
  await drawn(page);
  const close = await picture();
  assert.notEqual(close, whole);
  await page.click("#zoom-all");
  await drawn(page);
  assert.equal(await picture(), whole);
  const box = await page.locator("#timeline-chart canvas").boundingBox();
  await page.mouse.move(box.x + 300, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + 500, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await drawn(page);
  assert.notEqual(await picture(), whole);
  await page.close();
});

test("arrow keys walk the graph; Enter on a group shows its tasks in the table", async () => {
  const { run, url } = done;
  const page = await opened(chrome, url);
  await focus(page, "#graph-chart canvas");
  assert.match(await said(page), /^Task 0 · Partition/);
  await page.keyboard.press("ArrowRight");
  const [, tool, count] = /^(\w+), (\d+) tasks/.exec(await said(page));
  assert.equal(Number(count), run.tasks.filter((task) => task.tool === tool).length);
  await page.keyboard.press("Enter");
  assert.equal(await focused(page), "task-rows");
  assert.equal(await page.locator("#tasks-count").textContent(), `${count} of ${run.tasks.length} tasks`);
  await page.click("#tasks-limit");
  assert.equal(await page.locator("#tasks-count").textContent(), `${run.tasks.length} of ${run.tasks.length} tasks`);
  await page.close();
});

test("the table of tasks is filtered, sorted and walked by keys", async () => {
  const { run, url } = failed;
  const page = await opened(chrome, url);
  await page.fill("#tasks-filter", "exit code 1");
  const exits = run.tasks.filter(({ reason }) => reason?.kind === "exit");
  assert.equal(await page.locator("#tasks-count").textContent(), `${exits.length} of ${run.tasks.length} tasks`);
  await page.fill("#tasks-filter", "");
  await page.click('#task-rows [role="columnheader"]:has-text("ran") button');
  const longest = [...run.tasks].sort((a, b) => b.end_s - b.start_s - (a.end_s - a.start_s))[0];
  assert.equal(await page.locator("#task-rows .grid-body > [role=row]").first().getAttribute("id"), `task-rows-${longest.id}`);
  await focus(page, "#task-rows");
  await page.keyboard.press("End");
  const active = await page.locator("#task-rows").getAttribute("aria-activedescendant");
  assert.ok(await page.locator(`#${active}`).isVisible());
  assert.equal(await page.locator(`#${active}`).getAttribute("aria-rowindex"), String(run.tasks.length + 1));
  assert.equal(await page.locator(`#${active}`).getAttribute("aria-selected"), "true");
  assert.notEqual(await page.locator(`#${active}`).evaluate((row) => getComputedStyle(row).boxShadow), "none");
  await page.keyboard.press("Enter");
  assert.ok(await page.locator("#drawer").isVisible());
  await page.close();
});

test("text has the contrast that WCAG AA asks for, dark and light", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const page = await opened(chrome, failed.url, { colorScheme });
    await page.evaluate(measures);
    assert.deepEqual(await page.evaluate(poorContrast), [], colorScheme);
    assert.deepEqual(await page.evaluate(poorFills), [], colorScheme);
    await page.close();
  }
});

test("the theme can be chosen, and the choice outlives the page", async () => {
  const context = await chrome.newContext({ colorScheme: "light" });
  const page = await opened(context, done.url);
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  assert.equal(await theme(), "light");
  await page.click("#theme");
  await page.click("#theme");
  assert.equal(await theme(), "dark");
  await page.reload();
  await page.waitForSelector("html[data-ready]");
  assert.equal(await theme(), "dark");
  await context.close();
});

test("names and outputs that try to break out are shown as they are", async () => {
  const { run, url } = sample(pages.path, 223, "hostile");
  const page = await opened(chrome, url);
  assert.deepEqual(page.complaints, []);
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert.equal(await page.locator("img, iframe, main script").count(), 0);
  assert.equal(
    await page.locator("#name").textContent(),
    run.workflow.name.replace("\u2028", "\\u2028").replace("\u202e", "\\u202e"),
  );
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 1280);
  assert.doesNotMatch(await page.locator("body").innerText(), /[\u202a-\u202e\u2066-\u2069]/);
  await page.close();
});

test("on paper the page is light, and tables are written out", async () => {
  const page = await opened(chrome, done.url, { colorScheme: "dark" });
  const pdf = await page.pdf({ format: "A4" });
  assert.ok(pdf.length > 20_000);
  await page.emulateMedia({ media: "print", colorScheme: "dark" });
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light");
  assert.equal(await page.locator("#task-rows .grid-body > [role=row]").count(), 223);
  assert.equal(await page.locator("#timeline-chart canvas").evaluate((canvas) => parseFloat(canvas.style.width)), 700);
  assert.equal(await page.locator("nav").isVisible(), false);
  await page.close();
});

test("ten thousand tasks open, complete and usable", async () => {
  const { run, url } = sample(pages.path, 10_000, "failed");
  const page = await opened(chrome, url);
  assert.deepEqual(page.complaints, []);
  assert.equal(await page.locator('[data-field="totals.tasks_done"]').getAttribute("data-value"), String(run.totals.tasks_done));
  assert.ok((await page.locator("#task-rows .grid-body > [role=row]").count()) < 60);
  assert.ok((await page.locator(".failure").count()) <= 10);
  await page.fill("#tasks-filter", "9999");
  assert.equal(await page.locator("#tasks-count").textContent(), "1 of 10,000 tasks");
  await page.click("#graph-level");
  await drawn(page);
  assert.ok(await isPainted(page, "#graph-chart canvas"));
  assert.equal(await page.locator("#graph-note").textContent(), "10,000 tasks");
  await page.close();
});

test("a run of nothing still has its page", async () => {
  const totals = { ...done.run.totals, tasks: 0, tasks_done: 0, makespan_s: 0 };
  const page = await opened(
    chrome,
    altered("empty", {
      tasks: [],
      data: [],
      elements: [],
      pool: { peak_bytes: 0, samples: [] },
      machine_use: undefined,
      load: { running_max: 0, waiting_max: 0, samples: [] },
      critical_path: { ran_s: 0, chain_s: 0, steps: [], steps_cut: 0 },
      by_tool: [],
      totals,
    }),
  );
  for (const chart of ["#timeline-chart canvas", "#memory-chart canvas", "#graph-chart canvas", "#task-rows"]) {
    await focus(page, chart);
    for (const key of ["ArrowRight", "ArrowDown", "Enter", "+", "0", "End"]) await page.keyboard.press(key);
  }
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test("an interrupted run says how far it came, and does not call that a failure", async () => {
  const { run, url } = interrupted;
  const page = await opened(chrome, url);
  const { tasks_done: finished, tasks_cancelled: left } = run.totals;
  const verdict = await page.locator("#verdict").textContent();
  assert.match(verdict, new RegExp(`^Interrupted\\. After .*, ${finished} of 223 tasks were done; ${left} had not finished\\.$`));
  assert.equal(await page.locator("#failures").isVisible(), false);
  assert.equal(await page.locator('[data-field="totals.tasks_cancelled"]').textContent(), String(left));
  assert.equal(await page.locator(".bad:visible").count(), 0);
  assert.match(await page.locator("#marks").textContent(), /not finished: the run ended first/);
  await page.fill("#tasks-filter", "not run: the run ended first");
  const never = run.tasks.filter(({ attempts }) => attempts === 0).length;
  assert.equal(await page.locator("#tasks-count").textContent(), `${never} of 223 tasks`);
  await page.close();
});

test("a run that failed although its tasks did not says why", async () => {
  const problem = "the outputs could not be exported to out: no space left on the device; free some, or choose another --out";
  const page = await opened(chrome, altered("problem", { outcome: "failed", exit_code: 1, problem }));
  assert.equal(await page.locator("main > section:visible p").first().textContent(), problem);
  await page.close();
});

/** The address of the page of the run `of` with some fields changed. */
function altered(name, changes, of = done) {
  const json = JSON.stringify({ ...of.run, ...changes }).replaceAll("<", "\\u003c");
  const [top, rest] = readFileSync(new URL(of.url), "utf8").split('id="run">');
  const path = `${pages.path}/${name}.html`;
  writeFileSync(path, `${top}id="run">${json}${rest.slice(rest.indexOf("</script>"))}`);
  return pathToFileURL(path).href;
}

/**
 * Adds functions for contrast to the page, by the formula of WCAG 2: `contrast(colour, ground)` and
 * `opaque(colour)`.
 */
function measures() {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return context.getImageData(0, 0, 1, 1).data;
  };
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  window.opaque = (colour) => rgba(colour)[3] === 255;
  window.contrast = (colour, ground) => {
    const [light, dark] = [luminance(rgba(colour)), luminance(rgba(ground))].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
}

/** In the page: texts whose contrast with their background is below 4.5 (3 if large). */
function poorContrast() {
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (window.opaque(colour)) return colour;
    }
    return "white";
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes]
      .filter((node) => node.nodeType === 3)
      .map((node) => node.data)
      .join("")
      .trim();
    if (!text || !element.checkVisibility() || element.closest("script, noscript")) continue;
    const style = getComputedStyle(element);
    const ratio = window.contrast(style.color, ground(element));
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5))
      poor.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)} ${text.slice(0, 30)}`);
  }
  return poor;
}

/**
 * In the page: hues with which a tool's name is unreadable on its bar, or the bar's edge does not
 * stand out.
 */
function poorFills() {
  const style = getComputedStyle(document.documentElement);
  const token = (name) => style.getPropertyValue(`--${name}`).trim();
  const poor = [];
  for (let hue = 0; hue < 360; hue += 5) {
    const colour = (light) => `oklch(${token(light)} ${token("fill-chroma")} ${hue})`;
    const [name, edge] = [
      window.contrast(token("fill-ink"), colour("fill-light")),
      window.contrast(colour("edge-light"), token("paper")),
    ];
    if (name < 4.5 || edge < 3) poor.push(`hue ${hue}: name ${name.toFixed(2)}, edge ${edge.toFixed(2)}`);
  }
  return poor;
}

// ---- runs on a cluster ----

/** The amounts of a list of the drawer, by name. */
const amounts = (page, title) =>
  page
    .locator(`#drawer-body div:has(> h4:text-is("${title}")) li`)
    .evaluateAll((all) => Object.fromEntries(all.map(({ children: [name, amount] }) => [name.textContent, amount.textContent])));

test("a task tells its node, what its time was spent on, and where its bytes lay", async () => {
  const { run, url } = cluster;
  const page = await opened(chrome, url);
  const task = run.tasks.find(({ reads }) => reads.local > 0 && reads.cached > 0);
  await page.fill("#tasks-filter", `${task.tool} ${run.nodes[task.node].name}`);
  const shown = run.tasks.filter(({ tool, node }) => tool === task.tool && node === task.node).length;
  assert.equal(await page.locator("#tasks-count").textContent(), `${shown} of 60 tasks`);
  const row = page.locator(`#task-rows-${task.id}`);
  const cells = await row.locator("[role=gridcell]").allTextContents();
  assert.deepEqual(cells.slice(6, 8), [run.nodes[task.node].name, String(task.slot)]);
  assert.deepEqual(cells.slice(10, 13), [task.reads.local, task.reads.cached, task.reads.remote].map(words.bytes));
  await row.click();
  assert.deepEqual(await amounts(page, "Time by cause"), {
    "waiting for data": words.seconds(task.causes.data_s),
    "waiting for a slot, or space": words.seconds(task.causes.slot_s),
    moving: words.seconds(task.prepared_s),
    computing: words.seconds(task.causes.computing_s),
  });
  assert.deepEqual(await amounts(page, "Bytes read, by where they lay"), {
    local: words.bytes(task.reads.local),
    cached: words.bytes(task.reads.cached),
    remote: words.bytes(task.reads.remote),
  });
  await page.close();
});

test("the sums by cause are those of all tasks, of the critical path, and of each tool", async () => {
  const { run, url } = cluster;
  const page = await opened(chrome, url);
  const names = await page.locator("#causes-table .row-name").allTextContents();
  assert.deepEqual(names.slice(0, 2), ["all tasks", "critical path"]);
  assert.deepEqual(names.slice(2).sort(), run.by_tool.map(({ tool }) => tool).sort());
  const parts = page.locator("#causes-table tbody tr:first-child .part");
  const widths = await parts.evaluateAll((all) => all.map(({ style }) => parseFloat(style.width)));
  assert.equal(widths.length, 4);
  assert.ok(Math.abs(widths.reduce((sum, width) => sum + width, 0) - 100) < 0.1);
  const path = await page.locator("#critical-table tbody tr:last-child td").allTextContents();
  const last = run.critical_path.steps.at(-1).causes;
  assert.deepEqual(path.slice(-3), [last.slot_s, last.moving_s, last.computing_s].map(words.seconds));
  await page.close();
});

test("slots are under the name of their node, and the node that was lost says so", async () => {
  const { run, url } = cluster;
  const page = await opened(chrome, url);
  const canvas = page.locator("#timeline-chart canvas");
  assert.equal(await canvas.getAttribute("aria-label"), "Timeline: 62 attempts in 12 slots of 3 nodes");
  assert.match(await page.locator("#marks").textContent(), /node lost/);
  await canvas.scrollIntoViewIfNeeded();
  // The second heading, below that of the first node and its four slots.
  await canvas.hover({ position: { x: 20, y: 26 + 14 + 20 + 4 * 28 + 10 } });
  assert.equal(await page.locator("#card .card-title").textContent(), run.nodes[1].name);
  assert.match(await page.locator("#card").textContent(), /slots4 to 7.*lost at 4\.00 s/);
  const again = run.tasks.find(({ earlier }) => earlier);
  await focus(page, "#timeline-chart canvas");
  await page.keyboard.press("ArrowRight");
  assert.match(await said(page), /in slot 0 of heron\.$/);
  assert.equal(again.earlier[0].node, 1);
  await page.close();
});

test("many nodes scroll below the axis of time, and the keyboard reaches them", async () => {
  const { url } = sample(pages.path, 700, "large");
  const page = await opened(chrome, url);
  assert.deepEqual(page.complaints, []);
  const chart = page.locator("#timeline-chart");
  const { height, whole } = await chart.evaluate((holder) => ({ height: holder.clientHeight, whole: holder.scrollHeight }));
  assert.ok(height < 900 && whole > 2_000, `${height} of ${whole}`);
  await focus(page, "#timeline-chart canvas");
  for (let step = 0; step < 200; step += 1) await page.keyboard.press("ArrowDown");
  await drawn(page);
  assert.ok((await chart.evaluate((holder) => holder.scrollTop)) > 500);
  assert.match(await said(page), /of wader-(2|3)\d/);
  await page.close();
});

test("nodes of any name are shown as they are, and what is not known of a cluster is left out", async () => {
  const name = `</script><img src=x onerror="window.broken=1">\u202e${"long".repeat(80)}`;
  const nodes = cluster.run.nodes.map((node) => ({ ...node, name }));
  const tasks = cluster.run.tasks.map(({ causes, reads, prepared_s, ...task }) => task);
  const totals = { ...cluster.run.totals, causes: undefined, reads: undefined };
  const bare = ({ causes, ...rest }) => rest;
  const path = { ...bare(cluster.run.critical_path), steps: cluster.run.critical_path.steps.map(bare) };
  const changes = { nodes, tasks, totals, critical_path: path, by_tool: cluster.run.by_tool.map(bare) };
  const page = await opened(chrome, altered("nodes", changes, cluster));
  assert.deepEqual(page.complaints, []);
  assert.ok(await page.locator("#causes").isHidden());
  await page.locator("#timeline-chart canvas").hover({ position: { x: 20, y: 26 + 14 + 10 } });
  assert.equal(await page.locator("#card .card-title").textContent(), name.replace("\u202e", "\\u202e"));
  await page.click("#task-rows-1");
  assert.equal(await page.locator("#drawer-title").textContent(), "Task 1 · C45");
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 1280);
  await page.close();
});

test("a run on one host has nothing of nodes", async () => {
  const page = await opened(chrome, done.url);
  assert.ok(await page.locator("#causes").isHidden());
  const columns = await page.locator('#task-rows [role="columnheader"]').allTextContents();
  assert.deepEqual(columns, ["task", "tool", "status", "start", "ran", "waited", "slot", "read", "wrote", "outputs"]);
  assert.match(await page.locator("#timeline-chart canvas").getAttribute("aria-label"), /in 4 slots$/);
  assert.equal(await page.locator("#marks").textContent(), "critical path");
  await page.close();
});
