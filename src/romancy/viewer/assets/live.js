// Live updates: a stream announces changes, then the page is fetched again and its changed parts are replaced.
// A part that contains the focus or a selection is not replaced; rows of a list never move.
import { selected } from "./choose.js";
import { wireCopies } from "./copy.js";
import { setClock } from "./times.js";
import { wireTimeline } from "./timeline.js";
import { announce } from "./formatters.js";

const GAP = 2000; // milliseconds between two updates
const button = document.getElementById("live");
const parts = document.querySelectorAll("[data-live], [data-rows]");
const instance = document.body.dataset.instance;
const past = new URLSearchParams(location.search).has("gen") || "ended" in document.body.dataset;

/** @type {EventSource | null} */
let stream = null;
let paused = false;
let timer = 0;
let last = 0;

function connect() {
  if (stream || paused || document.hidden) return;
  stream = new EventSource(instance === undefined ? "../api/v1/stream" : `../api/v1/stream?id=${instance.replaceAll("/", "%2F")}`);
  stream.addEventListener("changed", () => schedule());
  stream.addEventListener("error", () => {
    if (stream?.readyState !== EventSource.CLOSED) return;
    stream = null; // refused, perhaps because there are too many streams: poll instead
    timer ||= setTimeout(() => { timer = 0; refresh().finally(connect); }, 15000);
  });
  updateButton();
}

function disconnect() {
  stream?.close();
  stream = null;
  clearTimeout(timer);
  timer = 0;
  updateButton();
}

function schedule() {
  timer ||= setTimeout(() => { timer = 0; last = Date.now(); refresh().catch(() => {}); }, Math.max(0, last + GAP - Date.now()));
}

async function refresh() {
  if (document.hidden || paused) return;
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!response.ok) return;
  setClock(response.headers.get("date"));
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const before = document.querySelector("h1 .status")?.textContent?.trim();
  for (const part of document.querySelectorAll("[data-live]")) replace(part, page.querySelector(`[data-live="${part.getAttribute("data-live")}"]`));
  const rows = document.querySelector("[data-rows]");
  if (rows) updateRows(rows, page.querySelector("[data-rows]"));
  const after = document.querySelector("h1 .status")?.textContent?.trim();
  if (before !== after && after) announce(`Status: ${after}.`);
}

/** @param {Element} part */
function busy(part) {
  const selection = getSelection();
  return part.contains(document.activeElement)
    || (selection && !selection.isCollapsed && selection.anchorNode && part.contains(selection.anchorNode))
    || document.querySelector("dialog[open]") !== null;
}

/** @param {Element} part @param {Element | null} fresh */
function replace(part, fresh) {
  if (!fresh || busy(part) || same(part, fresh)) return;
  const open = [...part.querySelectorAll("details")].map((one) => one.open);
  part.replaceChildren(...fresh.childNodes);
  part.className = fresh.className;
  const now = part.querySelectorAll("details");
  if (now.length === open.length) now.forEach((one, number) => { one.open = open[number]; });
  wireCopies(part);
  if (part.querySelector(".tracks")) wireTimeline();
}

/** Compare two parts, without relative times and states of the user interface. @param {Element} one @param {Element} other */
function same(one, other) {
  const plain = (/** @type {Element} */ element) => {
    const copy = /** @type {Element} */ (element.cloneNode(true));
    for (const time of copy.querySelectorAll("time[data-how]")) time.textContent = "";
    for (const details of copy.querySelectorAll("details")) details.removeAttribute("open");
    for (const node of copy.querySelectorAll("[tabindex], [hidden]")) { node.removeAttribute("tabindex"); node.removeAttribute("hidden"); }
    return copy.innerHTML;
  };
  return plain(one) === plain(other);
}

/** @param {Element} rows @param {Element | null} fresh */
function updateRows(rows, fresh) {
  if (!fresh) return;
  const known = new Map([...rows.children].map((row) => [row.getAttribute("data-row"), row]));
  let added = 0;
  for (const row of fresh.children) {
    const own = known.get(row.getAttribute("data-row"));
    if (!own) { added += 1; continue; }
    for (const cell of own.querySelectorAll("[data-cell]")) {
      const other = row.querySelector(`[data-cell="${cell.getAttribute("data-cell")}"]`);
      if (other && !busy(cell) && !same(cell, other)) cell.replaceChildren(...other.childNodes);
    }
  }
  const pill = document.getElementById("new");
  if (!pill || new URLSearchParams(location.search).has("after")) return;
  pill.hidden = added === 0;
  pill.textContent = `+${added}${added >= 50 ? " or more" : ""} new`;
  if (added && !selected()) announce(`${added} new ${added === 1 ? "instance" : "instances"}`);
}

function updateButton() {
  if (!button) return;
  button.setAttribute("aria-pressed", String(paused));
  button.classList.toggle("on", stream !== null);
  const word = button.querySelector("span");
  if (word) word.textContent = paused ? "Paused" : "Live";
}

if (button && parts.length && !past) {
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    if (paused) disconnect();
    else { connect(); schedule(); }
    updateButton();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else { connect(); schedule(); }
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  connect();
}
