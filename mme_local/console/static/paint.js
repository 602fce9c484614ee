// The colours of the page as canvases need them, and the switch between light and dark.

import { palette } from "/_console/format.js";

const NAMES = { cell: "--cell", warn: "--warn", good: "--good", bad: "--bad", accent: "--accent", flash: "--surface" };
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = [];
let known = null;

const isDark = () => {
  const { theme } = document.documentElement.dataset;
  return theme === "auto" ? system.matches : theme === "dark";
};

/** The colours that hold now. */
export function colours() {
  if (known === null) {
    const probe = document.body.appendChild(document.createElement("span"));
    known = { tenants: palette(isDark()) };
    for (const [name, property] of Object.entries(NAMES)) {
      probe.style.color = `var(${property})`;
      known[name] = getComputedStyle(probe).color;
    }
    probe.remove();
  }
  return known;
}

export function onTheme(listener) {
  listeners.push(listener);
}

function changed() {
  known = null;
  for (const listener of listeners) listener();
}

system.addEventListener("change", changed);
for (const radio of document.querySelectorAll("#theme input")) {
  radio.checked = radio.value === document.documentElement.dataset.theme;
  radio.addEventListener("change", () => {
    document.documentElement.dataset.theme = radio.value;
    try {
      localStorage.setItem("mme-console-theme", radio.value);
    } catch {
      // Storage may be off: the choice then lasts as long as the page.
    }
    changed();
  });
}
