// The theme: light, dark, or the system's; always light in print.

import { byId } from "./dom.js";
import { forgetColours } from "./paint.js";

const CHOICES = ["auto", "light", "dark"];
const KEY = "tidemill-report-theme";

/** Connects the button and the system's preference. */
export function startTheme() {
  let chosen = remembered();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = (printing = false) => {
    const theme = printing ? "light" : chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
    document.documentElement.dataset.theme = theme;
    byId("theme").textContent = `Theme: ${chosen}`;
    forgetColours();
    document.dispatchEvent(new Event("themechange"));
  };
  byId("theme").addEventListener("click", () => {
    chosen = CHOICES[(CHOICES.indexOf(chosen) + 1) % CHOICES.length];
    remember(chosen);
    apply();
  });
  dark.addEventListener("change", () => apply());
  addEventListener("beforeprint", () => apply(true));
  addEventListener("afterprint", () => apply());
  apply();
}

// A page opened from a file may have no storage; then the choice is lost when the page is closed.
function remembered() {
  try {
    const choice = localStorage.getItem(KEY);
    return CHOICES.includes(choice) ? choice : "auto";
  } catch {
    return "auto";
  }
}

function remember(choice) {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // Nothing to do: see above.
  }
}
