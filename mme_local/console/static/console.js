// The console: the status document draws the page, the live stream keeps it moving.

import { Seconds, sparkline } from "/_console/charts.js";
import { Fleets } from "/_console/fleets.js";
import { count, exact, percent, plural, tenantSlot, time } from "/_console/format.js";
import { Log } from "/_console/log.js";
import { colours, onTheme } from "/_console/paint.js";
import { element, fill, find } from "/_console/dom.js";

const POLL_MS = 1500;
const RECENT_SECONDS = 5;
const TENANT_ROWS = 12;
const STATES = { live: "live", connecting: "connecting", lost: "no connection" };

const seconds = new Seconds();
const log = new Log();
const fleets = new Fleets(() => residents());
let status = null;
let snapshot = 0; // the stream's items up to here are in the models that the page shows
let source = null;
let clockAhead = null; // the server's clock against this browser's, in seconds

function connected(state) {
  const live = find("live");
  if (live.dataset.state === state) return;
  live.dataset.state = state;
  find("live-text").textContent = STATES[state];
}

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

/** Every model of every instance, anew; the stream goes on from there. */
async function residents() {
  const document = await ask("/_mme/status");
  snapshot = document.sequence;
  fleets.take(document, true);
  show(document);
  return document;
}

function show(document) {
  status = document;
  clockAhead = document.now - Date.now() / 1000;
  seconds.take(document.seconds);
  fleets.take(document, false);
  showTenants(document.endpoints);
  showScaling(document);
  showFaults(document.faults);
  showFigures();
}

async function poll() {
  try {
    show(await ask("/_mme/status?models=0"));
    if (source === null) await connect();
  } catch {
    connected("lost");
  }
  setTimeout(poll, document.hidden ? 4 * POLL_MS : POLL_MS);
}

async function connect() {
  source?.close();
  source = null;
  const { sequence } = await residents();
  source = new EventSource(`/_mme/stream?after=${sequence}`);
  source.onopen = () => connected("live");
  source.onerror = () => {
    connected("lost");
    if (source.readyState === EventSource.CLOSED) source = null; // the next poll connects again
  };
  source.onmessage = (message) => take(JSON.parse(message.data), Number(message.lastEventId));
}

function take(message, last) {
  connected("live");
  seconds.take(message.seconds);
  const first = last - message.items.length + 1;
  message.items.forEach((item, index) => {
    if (first + index > snapshot) fleets.step(item);
    if (item.type === "reset") seconds.clear();
  });
  log.take(message.items, message.missed);
  if (message.missed || message.items.some((item) => item.type === "reset")) residents().catch(() => connected("lost"));
  showFigures();
}

function sum(member) {
  return (status?.endpoints ?? []).reduce((total, endpoint) => total + endpoint[member], 0);
}

function figure(id, value, unit, small, values, colour, least) {
  const holder = find(id);
  fill(holder.querySelector("output"), value, unit ? element("i", unit) : "");
  holder.querySelector("small").textContent = small;
  sparkline(holder.querySelector("canvas"), values, colour, least);
}

function rate(now, member) {
  const value = seconds.sum(now, member, RECENT_SECONDS) / RECENT_SECONDS;
  return value >= 10 || value === 0 ? exact(Math.round(value)) : value.toFixed(1);
}

function showFigures() {
  if (status === null) return;
  const now = Date.now() / 1000 + clockAhead;
  const paint = colours();
  const [requests, hits] = [seconds.values(now, "requests"), seconds.values(now, "hits")];
  const recent = seconds.sum(now, "requests", 60);
  const all = sum("requests");
  const moving = status.endpoints.flatMap((endpoint) => endpoint.instances).reduce((total, instance) => total + instance.moving.length, 0);
  const ratio = recent ? seconds.sum(now, "hits", 60) / recent : all ? sum("hits") / all : null;
  const always = all ? `${percent(sum("hits") / all)} since the start` : "no request so far";
  figure("figure-hits", percent(ratio), "", recent ? always : all ? "since the start" : always, requests.map((value, at) => (value ? hits[at] / value : null)), paint.accent, 1);
  figure("figure-requests", rate(now, "requests"), "/ s", `${count(all)} in all`, requests, paint.accent, 4);
  const under = moving ? ` · ${moving} under way` : "";
  figure("figure-loads", rate(now, "loads"), "/ s", `${count(sum("cold_loads"))} in all${under}`, seconds.values(now, "loads"), paint.good, 2);
  figure("figure-evictions", rate(now, "evictions"), "/ s", `${count(sum("evictions"))} in all`, seconds.values(now, "evictions"), paint.warn, 2);
  const failed = seconds.sum(now, "errors", 120);
  figure("figure-errors", exact(failed), "in 2 min", `${count(sum("errors"))} in all`, seconds.values(now, "errors"), paint.bad, 2);
  const scale = status.clock.scale === 1 ? "" : ` · ${status.clock.scale} × real time`;
  find("clock").textContent = `${new Date(status.clock.now * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${time(status.clock.now)}${scale}`;
}

function showTenants(endpoints) {
  const all = new Map();
  for (const tenant of endpoints.flatMap((endpoint) => endpoint.tenants)) {
    const known = all.get(tenant.tenant) ?? { requests: 0, hits: 0, errors: 0 };
    for (const member of ["requests", "hits", "errors"]) known[member] += tenant[member];
    all.set(tenant.tenant, known);
  }
  const rows = [...all].sort(([, one], [, other]) => other.requests - one.requests).slice(0, TENANT_ROWS);
  const most = rows[0]?.[1].requests ?? 1;
  const paint = colours();
  const total = endpoints.reduce((sum, endpoint) => sum + endpoint.tenant_count, 0);
  find("tenants-count").textContent = total > rows.length ? `the busiest ${rows.length} of ${exact(total)}` : "";
  find("tenants").hidden = !rows.length;
  find("tenants-none").hidden = rows.length > 0;
  fill(
    find("tenants").tBodies[0],
    ...rows.map(([name, tenant]) => {
      const swatch = element("span", "", { class: "swatch" });
      swatch.style.background = paint.tenants[tenantSlot(name)];
      const share = element("span", element("span"), { class: "share", "aria-hidden": "true" });
      share.firstChild.style.width = `${(100 * tenant.requests) / most}%`;
      return element(
        "tr",
        element("td", [swatch, name], { title: name }),
        element("td", [exact(tenant.requests), share], { class: "number" }),
        element("td", percent(tenant.requests ? tenant.hits / tenant.requests : null), { class: "number" }),
        element("td", exact(tenant.errors), { class: "number" }),
      );
    }),
  );
}

const row = (title, value, small, tone) =>
  element("li", element("span", title), element("span", value, tone ? { class: "pill", "data-tone": tone } : {}), small ? element("small", small) : "");

function showScaling({ scaling, alarms, endpoints }) {
  const counts = new Map();
  for (const endpoint of endpoints) {
    for (const variant of endpoint.variants) counts.set(`endpoint/${endpoint.name}/variant/${variant.name}`, variant.desired_count);
    for (const component of endpoint.components) counts.set(`inference-component/${component.name}`, component.copies);
  }
  fill(
    find("targets"),
    ...scaling.targets.map((target) => {
      const name = target.resource.replace(/^endpoint\/|^inference-component\//, "").replace("/variant/", " · ");
      const suspended = target.suspended.length ? `suspended: ${target.suspended.join(", ")}` : "";
      return row(name, `${counts.get(target.resource) ?? "–"} of ${target.min} to ${target.max}`, suspended);
    }),
  );
  const activities = scaling.activities ?? [];
  fill(find("activities"), ...activities.slice(0, 6).map((activity) => row(activity.description, time(activity.started), activity.status === "Successful" ? activity.cause : `${activity.status}: ${activity.message ?? activity.cause}`)));
  find("scaling-none").hidden = scaling.targets.length > 0;
  const firing = alarms.filter((alarm) => alarm.state === "ALARM");
  const blind = alarms.length - firing.length;
  fill(find("alarms"), ...firing.map((alarm) => row(alarm.name, "ALARM", alarm.reason, "bad")), blind ? row(plural(blind, "alarm"), "no data", "", "muted") : "");
  find("alarms-none").hidden = alarms.length > 0;
}

function showFaults(faults) {
  find("faults-card").hidden = faults === null;
  if (faults === null) return;
  find("faults-none").hidden = faults.length > 0;
  const common = new Set(["id", "kind", "struck", "active", "count", "probability", "seed", "expires_seconds"]);
  fill(
    find("faults"),
    ...faults
      .slice(-12)
      .reverse()
      .map((fault) => {
        const given = Object.entries(fault).filter(([name, value]) => !common.has(name) && value !== "*" && value !== null);
        const item = row(`${fault.kind} ${given.map(([name, value]) => `${name} ${value}`).join(", ")}`, fault.active ? "on" : "ended", "", fault.active ? "warn" : "muted");
        item.append(element("small", `struck ${plural(fault.struck, "time")}${fault.count ? ` of ${fault.count}` : ""}`));
        if (!fault.active) item.dataset.ended = "";
        return item;
      }),
  );
}

onTheme(() => {
  if (status !== null) show(status);
  fleets.repaint();
});
addEventListener("resize", () => showFigures());
setInterval(showFigures, 1000);
poll();
