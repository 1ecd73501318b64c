// Makes the picture of a report in README, after `make demo`:
// `node bench/picture.js ../build/demo/report/report.html ../docs/report.png`.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { browser, opened } from "../tests/browser.js";

const [page, picture] = process.argv.slice(2);
const chrome = await browser();
const shown = await opened(chrome, pathToFileURL(resolve(page)).href, {
  viewport: { width: 1280, height: 1640 },
  colorScheme: "light",
});
await shown.screenshot({ path: picture });
await chrome.close();
