// Measures how long the page of a large run takes to open: `node bench/open.js [TASKS] [TIMES]`.
// Prints JSON, in seconds.
//
// The time is from the navigation to the second frame after everything is built, in a new page each
// time.

import { browser, folder, opened, sample } from "../tests/browser.js";

const tasks = Number(process.argv[2] ?? 10_000);
const times = Number(process.argv[3] ?? 5);
const pages = folder();
const chrome = await browser();
try {
  const { url } = sample(pages.path, tasks, "failed");
  const seconds = [];
  for (let time = 0; time < times; time += 1) {
    const page = await opened(chrome, url);
    // `opened` returns after the frame. The page's own clock excludes the driver's messages.
    seconds.push((await page.evaluate(() => performance.now())) / 1000);
    await page.close();
  }
  seconds.sort((a, b) => a - b);
  process.stdout.write(
    `${JSON.stringify({ name: "report opens", tasks, median_s: seconds[times >> 1], worst_s: seconds.at(-1), at_most_s: 2 })}\n`,
  );
} finally {
  await chrome.close();
  pages.remove();
}
