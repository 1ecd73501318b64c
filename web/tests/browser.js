// Shared parts of the browser tests: generated runs, and Chromium with pages that collect errors,
// warnings and requests.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const OUTPUT_BYTES_MAX = 256 << 20;

/** A generated run of `tasks` tasks, as `{ run, url }`: its run.json, and its page as a file. */
export function sample(folder, tasks, story) {
  const make = (form) => {
    const command = ["run", "--quiet", "--package", "report", "--example", "sample", "--", String(tasks), story, form];
    return execFileSync("cargo", command, {
      cwd: ROOT,
      encoding: "utf8",
      maxBuffer: OUTPUT_BYTES_MAX,
      stdio: ["ignore", "pipe", "pipe"],
    });
  };
  const path = join(folder, `${story}-${tasks}.html`);
  writeFileSync(path, make("html"));
  return { run: JSON.parse(make("json")), url: pathToFileURL(path).href };
}

/** A directory for pages, and a function that removes it. */
export function folder() {
  const path = mkdtempSync(join(tmpdir(), "tidemill-report-"));
  return { path, remove: () => rmSync(path, { recursive: true }) };
}

/** Chromium, or an error that says what to do. */
export async function browser() {
  if (!existsSync(CHROMIUM)) {
    throw new Error(`there is no Chromium at ${CHROMIUM}; install the Debian package chromium, or set CHROMIUM to its path`);
  }
  return chromium.launch({ executablePath: CHROMIUM, args: ARGUMENTS });
}

/** The page at `url`, drawn; `page.complaints` collects errors, warnings and requests. */
export async function opened(chrome, url, options = {}) {
  const page = await chrome.newPage({ viewport: { width: 1280, height: 900 }, ...options });
  page.complaints = [];
  page.on("console", (message) => page.complaints.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => page.complaints.push(`error: ${error.message}`));
  page.on("request", (request) => request.url() !== url && page.complaints.push(`request: ${request.url()}`));
  await page.goto(url);
  await page.waitForSelector("html[data-ready]");
  await drawn(page);
  return page;
}

/** Waits until the requested changes are painted. */
export function drawn(page) {
  return page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}
