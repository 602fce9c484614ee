// Endpoints and their instances: a card an endpoint, a row an instance, a cell map a memory.

import { element, fill, find } from "/_console/dom.js";
import { ago, bytes, exact, percent, plural, short, tenantOf, tenantSlot } from "/_console/format.js";
import { MemoryMap } from "/_console/memory.js";
import { colours } from "/_console/paint.js";

const LISTED = 200;
const REFRESH_MS = 3000;
const TONES = { InService: "good", Failed: "bad", Updating: "accent", Creating: "accent", RollingBack: "warn", Deleting: "warn" };
const STATES = { up: "good", down: "bad", draining: "warn", starting: "accent" };

export class Fleets {
  /** @param {() => Promise} refresh asks for all models anew */
  constructor(refresh) {
    this.refresh = refresh;
    this.endpoints = new Map();
    this.instances = new Map();
    this.awake = new Set();
    this.frame = null;
    this.timer = null;
    this.sizes = new ResizeObserver((entries) => entries.forEach((entry) => this.byCanvas(entry.target)?.map.layout()));
  }

  /** Take a status document; `full` says that it holds the models. */
  take(document, full) {
    find("empty").hidden = document.endpoints.length > 0;
    const names = new Set(document.endpoints.map((endpoint) => endpoint.name));
    for (const [name, view] of this.endpoints) {
      if (names.has(name)) continue;
      view.remove();
      this.endpoints.delete(name);
    }
    const seen = new Set();
    for (const endpoint of document.endpoints) {
      if (!this.endpoints.has(endpoint.name)) this.endpoints.set(endpoint.name, this.openEndpoint(endpoint.name));
      const view = this.endpoints.get(endpoint.name);
      showEndpoint(view, endpoint);
      for (const instance of endpoint.instances) {
        const key = `${instance.fleet}/${instance.id}`;
        seen.add(key);
        let row = this.instances.get(key);
        if (!row) {
          row = new InstanceRow(instance.id, (map) => this.wake(map), () => this.opened());
          this.instances.set(key, row);
          view.querySelector(".instances").append(row.node);
          this.sizes.observe(row.canvas);
        }
        row.take(instance, endpoint, document.now, full);
      }
    }
    for (const [key, row] of this.instances) {
      if (seen.has(key)) continue;
      this.sizes.unobserve(row.canvas);
      row.node.remove();
      this.awake.delete(row.map);
      this.instances.delete(key);
    }
  }

  /** Take an item of the stream. */
  step(item) {
    const row = this.instances.get(`${item.fleet}/${item.instance}`);
    if (!row) return;
    if (item.type === "loaded") row.map.add(item.model, item.bytes ?? row.usual(), tenantSlot(tenantOf(item.model)));
    else if (item.type === "evicted" || item.type === "unloaded") row.map.remove(item.model);
    else if (item.type === "instance-up" || item.type === "instance-lost") row.map.reset(row.map.budget, []);
  }

  repaint() {
    for (const row of this.instances.values()) this.wake(row.map);
  }

  byCanvas(canvas) {
    return [...this.instances.values()].find((row) => row.canvas === canvas);
  }

  openEndpoint(name) {
    const view = element(
      "section",
      element("header", element("h2", name), element("span", { class: "pill" }), element("span", { class: "facts" }), element("p", { class: "why" })),
      element("div", { class: "instances" }),
      { class: "endpoint", "aria-label": `Endpoint ${name}` },
    );
    find("fleets").append(view);
    return view;
  }

  wake(map) {
    this.awake.add(map);
    this.frame ??= requestAnimationFrame((now) => this.draw(now));
  }

  draw(now) {
    this.frame = null;
    const paint = colours();
    for (const map of this.awake) {
      if (!map.draw(now, paint)) this.awake.delete(map);
    }
    if (this.awake.size) this.frame = requestAnimationFrame((next) => this.draw(next));
  }

  /** While a list of models is open, it is kept fresh. */
  opened() {
    if (this.timer !== null || ![...this.instances.values()].some((row) => row.details.open)) return;
    this.refresh().catch(() => {});
    this.timer = setTimeout(() => {
      this.timer = null;
      this.opened();
    }, REFRESH_MS);
  }
}

function showEndpoint(view, endpoint) {
  const pill = view.querySelector(".pill");
  pill.textContent = endpoint.status;
  pill.dataset.tone = TONES[endpoint.status] ?? "";
  const variants = endpoint.variants.map((variant) => {
    const wanted = variant.desired_count === variant.current_count ? "" : ` → ${variant.desired_count}`;
    return `${variant.name} ${variant.current_count}${wanted}${variant.instance_type ? ` × ${variant.instance_type}` : ""}`;
  });
  const components = endpoint.components.map(
    (component) => `${component.name} × ${component.copies}${component.status === "InService" ? "" : ` ${component.status}`}`,
  );
  view.querySelector(".facts").textContent = [...variants, ...components, percent(endpoint.hit_ratio) + " hits"].join(" · ");
  const why = view.querySelector(".why");
  why.hidden = !endpoint.failure_reason;
  why.textContent = endpoint.failure_reason ?? "";
}

const generation = (fleet) => Number(fleet.split(".")[1] ?? 0);

class InstanceRow {
  constructor(name, wake, opened) {
    this.name = name;
    this.models = [];
    this.canvas = element("canvas", { tabindex: "0", role: "img" });
    this.tip = element("div", { class: "tip", role: "tooltip" });
    this.tip.hidden = true;
    this.state = element("span", { class: "pill" });
    this.part = element("span", { class: "pill" });
    this.zone = element("span", { class: "zone" });
    this.text = element("span", { class: "memory-text" });
    this.moving = element("span", { class: "moving" });
    this.facts = element("span");
    this.diskBar = element("span");
    this.disk = element("span", { class: "disk" }, element("span"), element("span", this.diskBar, { class: "track", "aria-hidden": "true" }));
    this.filter = element("input", { type: "search", placeholder: "Filter models", "aria-label": `Filter the models of ${name}` });
    this.list = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Models of ${name}` });
    this.summary = element("summary", "Models");
    this.details = element("details", this.summary, element("div", this.filter, this.list, { class: "models" }));
    this.node = element(
      "article",
      element("header", element("h3", name), this.state, this.part, this.zone, this.text),
      element("div", this.canvas, this.tip, { class: "memory" }),
      element("div", this.moving, this.facts, this.disk, this.details, { class: "under" }),
      { class: "instance", "aria-label": `Instance ${name}` },
    );
    this.map = new MemoryMap(this.canvas, wake);
    this.details.addEventListener("toggle", () => this.details.open && opened());
    this.filter.addEventListener("input", () => this.showModels());
    this.canvas.addEventListener("pointermove", (event) => this.point(this.map.at(event.offsetX, event.offsetY), event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.point([], 0));
    this.canvas.addEventListener("blur", () => this.point([], 0));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** What a model of this instance usually takes. */
  usual() {
    return this.map.size ? (this.map.budget - this.map.cells.reduce((free, cell) => free + cell.free, 0)) / this.map.size : this.map.budget / 100;
  }

  take(instance, endpoint, now, full) {
    this.instance = instance;
    this.now = now;
    const sameBudget = this.map.budget === instance.memory_budget_bytes;
    if (full) {
      this.models = instance.models;
      const models = instance.models.map((model) => [model.target_model, model.bytes, tenantSlot(tenantOf(model.target_model))]);
      if (!sameBudget || !sameModels(this.map.models, instance.models)) this.map.reset(instance.memory_budget_bytes, models);
      if (this.details.open) this.showModels();
    }
    const count = instance.model_count;
    this.state.textContent = instance.state;
    this.state.dataset.tone = STATES[instance.state] ?? "";
    const newer = endpoint.instances.some((other) => other.current && generation(other.fleet) > generation(instance.fleet));
    this.part.hidden = instance.current || endpoint.status === "Creating";
    this.part.textContent = newer ? "outgoing" : "incoming";
    this.zone.textContent = [instance.component, instance.zone].filter(Boolean).join(" · ");
    fill(this.text, element("b", bytes(instance.memory_bytes)), ` of ${bytes(instance.memory_budget_bytes)} · ${plural(count, "model")}`);
    this.canvas.setAttribute(
      "aria-label",
      `Memory of ${this.name}: ${bytes(instance.memory_bytes)} of ${bytes(instance.memory_budget_bytes)}, ${plural(count, "model")}. Arrow keys name them.`,
    );
    const states = new Map();
    for (const model of instance.moving) states.set(model.state, (states.get(model.state) ?? 0) + 1);
    this.moving.textContent = [...states].map(([state, number]) => `${number} ${state}`).join(", ");
    this.moving.hidden = !states.size;
    const facts = [`${exact(instance.requests)} requests`, `${exact(instance.loads)} loads`, `${exact(instance.evictions)} evictions`];
    if (instance.in_flight) facts.push(`${instance.in_flight} in flight`);
    if (instance.restarts) facts.push(plural(instance.restarts, "restart"));
    this.facts.textContent = facts.join(" · ");
    this.disk.firstChild.textContent = `disk ${bytes(instance.disk_bytes)}`;
    this.diskBar.style.width = `${Math.min(100, (100 * instance.disk_bytes) / instance.disk_budget_bytes)}%`;
  }

  showModels() {
    const wanted = this.filter.value.trim().toLowerCase();
    const models = this.models.filter((model) => model.target_model.toLowerCase().includes(wanted)).reverse();
    const rows = models.slice(0, LISTED).map((model) =>
      element(
        "tr",
        element("td", short(model.target_model)),
        element("td", bytes(model.bytes), { class: "number" }),
        element("td", model.in_flight ? `${model.in_flight} in flight` : model.last_used === null ? "never" : ago(this.now - model.last_used), { class: "number" }),
      ),
    );
    const more = models.length > LISTED ? element("p", `and ${exact(models.length - LISTED)} more: filter to find them`, { class: "none" }) : "";
    fill(this.list, rows.length ? element("table", element("tbody", rows)) : element("p", "No model.", { class: "none" }), more);
  }

  point(names, x) {
    this.map.select(names.length === 1 ? names[0] : null);
    this.tip.hidden = !names.length;
    if (!names.length) return;
    const first = element("b", short(names.at(-1)));
    const size = this.map.models.get(names.at(-1))?.size ?? 0;
    fill(this.tip, first, ` ${bytes(size)}`, names.length > 1 ? ` and ${plural(names.length - 1, "other")} in this cell` : "");
    const room = this.canvas.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, x - 20))}px`;
  }

  key(event) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      const name = this.map.step(by);
      if (name === null) return;
      this.point([name], this.map.left(name) + 20);
      find("announce").textContent = `${short(name)}, ${bytes(this.map.models.get(name).size)}`;
    } else if (event.key === "Escape") this.point([], 0);
    else if (event.key === "Enter") this.details.open = !this.details.open;
  }
}

function sameModels(shown, models) {
  return shown.size === models.length && models.every((model) => shown.get(model.target_model)?.size === model.bytes);
}
