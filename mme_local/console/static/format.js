// Numbers, bytes, times and the colours of tenants.

const numbers = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value < 10_000 ? numbers.format(value) : compact.format(value));
export const exact = (value) => numbers.format(value);
export const percent = (ratio) => (ratio === null ? "–" : `${(ratio * 100).toFixed(ratio >= 0.9995 ? 0 : 1)} %`);
export const plural = (value, word) => `${exact(value)} ${word}${value === 1 ? "" : "s"}`;

export function bytes(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size * 0.9995) return `${(value / size).toFixed(value >= size * 100 ? 0 : 1)} ${unit}`;
  }
  return `${value} B`;
}

export const time = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

export function ago(seconds) {
  if (seconds < 1.5) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}

export const tenantOf = (model) => (model.includes("/") ? model.slice(0, model.indexOf("/")) : "-");
/** A TargetModel without what all of them have in common. */
export const short = (model) => model.replace(/\.tar\.gz$/, "");

// Ten hues that stay apart on light and dark ground; the first tenants get one each, by name where it is free.
const HUES = [196, 38, 276, 142, 352, 228, 78, 312, 12, 166];
const slots = new Map();
const hash = (text) => [...text].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) >>> 0, 7);

/** A number for the tenant's colour. */
export function tenantSlot(tenant) {
  let slot = slots.get(tenant);
  if (slot === undefined) {
    slot = hash(tenant) % HUES.length;
    if (slots.size < HUES.length) {
      const taken = new Set(slots.values());
      while (taken.has(slot)) slot = (slot + 1) % HUES.length;
    }
    slots.set(tenant, slot);
  }
  return slot;
}

/** The colours by slot, for the colours of the page that hold now. */
export function palette(dark) {
  return HUES.map((hue, slot) => `oklch(${dark ? 0.72 - (slot % 2) * 0.05 : 0.62 + (slot % 2) * 0.06} 0.105 ${hue})`);
}
