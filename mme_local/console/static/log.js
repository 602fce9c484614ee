// What happened, newest first. However much comes, a few rows are drawn at a time and the rest is summed up.

import { element, find } from "/_console/dom.js";
import { exact, plural, short, time } from "/_console/format.js";

const ROWS = 200;
const ROWS_AT_ONCE = 12;
const DRAW_MS = 250;
const WAITING = 2000;

const KINDS = {
  loads: ["Loads", ["loaded", "unloaded"]],
  evictions: ["Evictions", ["evicted"]],
  errors: ["Errors", ["error", "load-failed"]],
  instances: ["Instances", ["instance-up", "instance-lost", "instance-draining", "instance-gone", "reset"]],
  events: ["Events", ["event"]],
  scaling: ["Scaling", ["scaling"]],
  alarms: ["Alarms", ["alarm"]],
};
const KIND_OF = Object.fromEntries(Object.entries(KINDS).flatMap(([kind, [, types]]) => types.map((type) => [type, kind])));

const b = (text) => element("b", text);
const quiet = (text) => element("span", text);
/** An instance's name, in one piece. */
const solid = (name) => name.replaceAll("-", "\u2011");

/** A row's tone and its words. */
const WORDS = {
  loaded: (item) => ["good", [b(short(item.model)), " loaded ", quiet(`${solid(item.instance)}${item.seconds === null ? "" : `\u00a0·\u00a0${item.seconds.toFixed(2)}\u00a0s`}`)]],
  evicted: (item) => ["warn", [b(short(item.model)), " evicted ", quiet(solid(item.instance))]],
  unloaded: (item) => ["", [b(short(item.model)), " unloaded ", quiet(solid(item.instance))]],
  "load-failed": (item) => ["bad", [b(short(item.model)), ` not loaded: ${item.reason} `, quiet(item.message || item.instance)]],
  error: (item) => ["bad", [b(item.code), ` ${item.status} `, quiet(`${short(item.model)} · ${item.message}`)]],
  "instance-up": (item) => ["accent", [b(solid(item.instance)), " is up ", quiet(item.endpoint)]],
  "instance-lost": (item) => ["bad", [b(solid(item.instance)), " was lost ", quiet(item.endpoint)]],
  "instance-draining": (item) => ["", [b(solid(item.instance)), " takes no more requests ", quiet(item.endpoint)]],
  "instance-gone": (item) => ["", [b(solid(item.instance)), " is gone ", quiet(item.endpoint)]],
  reset: () => ["", ["The cloud was reset"]],
  event: (item) => ["accent", [b(item.status ?? item.detail_type), ` ${item.endpoint ?? ""} `, quiet(`${item.detail_type}${item.message ? ` · ${item.message}` : ""}`)]],
  scaling: (item) => [item.status === "Failed" ? "bad" : "accent", [b(item.description), ` ${item.status.toLowerCase()} `, quiet(item.message || item.cause)]],
  alarm: (item) => [item.new === "ALARM" ? "bad" : item.new === "OK" ? "good" : "", [b(item.name), ` is ${item.new} `, quiet(item.reason)]],
};

/** What somebody who does not see the page should hear at once. */
const SPOKEN = {
  "instance-lost": (item) => `Instance ${item.instance} of ${item.endpoint} was lost`,
  alarm: (item) => (item.new === "ALARM" ? `Alarm ${item.name}` : null),
  event: (item) => (item.detail_type.endsWith("Endpoint State Change") ? `Endpoint ${item.endpoint} is ${item.status.toLowerCase().replaceAll("_", " ")}` : null),
};

export class Log {
  constructor() {
    this.list = find("log");
    this.waiting = [];
    this.missed = 0;
    this.hidden = new Set();
    this.paused = false;
    this.timer = null;
    for (const [kind, [title]] of Object.entries(KINDS)) {
      const button = element("button", title, { type: "button", "aria-pressed": "true" });
      button.addEventListener("click", () => this.toggle(kind, button));
      find("filters").append(button);
    }
    const pause = find("pause");
    pause.addEventListener("click", () => {
      this.paused = !this.paused;
      pause.setAttribute("aria-pressed", String(this.paused));
      pause.textContent = this.paused ? "Resume" : "Pause";
      this.soon();
    });
  }

  toggle(kind, button) {
    const shown = this.hidden.has(kind);
    if (shown) this.hidden.delete(kind);
    else this.hidden.add(kind);
    button.setAttribute("aria-pressed", String(shown));
    for (const row of this.list.children) row.hidden = this.hidden.has(row.dataset.kind);
  }

  take(items, missed) {
    this.missed += missed;
    for (const item of items) {
      if (item.type in WORDS) this.waiting.push(item);
      const spoken = SPOKEN[item.type]?.(item);
      if (spoken) find("announce").textContent = spoken;
    }
    if (this.waiting.length > WAITING) this.missed += this.waiting.splice(0, this.waiting.length - WAITING).length;
    this.soon();
  }

  soon() {
    if (this.timer === null && !this.paused && (this.waiting.length || this.missed)) this.timer = setTimeout(() => this.draw(), DRAW_MS);
  }

  draw() {
    this.timer = null;
    if (this.paused) return;
    const shown = this.waiting.filter((item) => !this.hidden.has(KIND_OF[item.type]));
    const rest = shown.splice(0, Math.max(0, shown.length - ROWS_AT_ONCE));
    const rare = rest.filter((item) => !["loaded", "unloaded", "evicted", "error", "load-failed"].includes(item.type));
    const rows = [...rare.slice(-ROWS_AT_ONCE), ...shown].map((item) => this.row(item));
    const summed = rest.length - rare.length;
    if (summed || this.missed) rows.unshift(this.sum(rest, shown[0]?.time ?? rest.at(-1)?.time));
    this.waiting = [];
    this.missed = 0;
    this.list.prepend(...rows.reverse());
    while (this.list.children.length > ROWS) this.list.lastChild.remove();
    find("log-none").hidden = this.list.children.length > 0;
  }

  row(item) {
    const [tone, words] = WORDS[item.type](item);
    return this.line(item.time, tone, words, KIND_OF[item.type]);
  }

  sum(rest, at) {
    const parts = [["loaded", "load"], ["unloaded", "unload"], ["evicted", "eviction"], ["error", "error"], ["load-failed", "failed load"]]
      .map(([type, word]) => [rest.filter((item) => item.type === type).length, word])
      .filter(([number]) => number)
      .map(([number, word]) => plural(number, word));
    if (this.missed) parts.push(`${exact(this.missed)} that were too many to show`);
    return this.line(at, "", [quiet(`and ${parts.join(", ")}`)], "loads");
  }

  line(at, tone, words, kind) {
    const row = element("li", element("time", at ? time(at) : ""), element("i", { class: "mark", "aria-hidden": "true" }), element("p", words));
    row.dataset.tone = tone;
    row.dataset.kind = kind;
    return row;
  }
}
