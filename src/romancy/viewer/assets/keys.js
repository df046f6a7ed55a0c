// Keyboard shortcuts. They can be turned off, and are ignored while the user types in a field.
const dialog = document.getElementById("keys-dialog");
const button = document.getElementById("keys");
const box = document.getElementById("keys-on");
const STORED = "romancy-keys";

function stored() {
  try { return localStorage.getItem(STORED); } catch { return null; }
}

let on = stored() !== "off";
if (box instanceof HTMLInputElement) {
  box.checked = on;
  box.addEventListener("change", () => {
    on = box.checked;
    try { localStorage.setItem(STORED, on ? "on" : "off"); } catch { /* no storage: the setting lasts for this page */ }
  });
}
if (button) {
  button.hidden = false;
  button.addEventListener("click", help);
}

function help() {
  if (dialog instanceof HTMLDialogElement) dialog.showModal();
}

/** @param {number} step */
function move(step) {
  const rows = [...document.querySelectorAll("main tbody tr")];
  if (!rows.length) return;
  const here = rows.findIndex((row) => row.classList.contains("here"));
  const next = rows[Math.min(Math.max(here + step, 0), rows.length - 1)];
  rows[here]?.classList.remove("here");
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
  const link = next.querySelector("th a") ?? next.querySelector("a");
  if (link instanceof HTMLElement) link.focus({ preventScroll: true });
}

/** @param {string} query */
function press(query) {
  const found = document.querySelector(query);
  if (found instanceof HTMLElement) found.click();
}

/** @param {string} id */
function go(id) {
  const found = document.getElementById(id);
  found?.scrollIntoView({ block: "start" });
  found?.focus({ preventScroll: true });
}

/** @param {number} step */
function neighbour(step) {
  const here = document.querySelector(".ribbon a[aria-current]")?.closest("li");
  const next = step > 0 ? here?.nextElementSibling : here?.previousElementSibling;
  const link = next?.querySelector("a");
  if (link) link.click();
  else press(step > 0 ? ".pager [rel=next]" : ".pager [rel=first]");
}

/** @type {Record<string, () => void>} */
const KEYS = {
  "/": () => document.getElementById("q")?.focus(),
  j: () => move(1),
  k: () => move(-1),
  x: () => press("tr.here input[type=checkbox]"),
  "[": () => neighbour(-1),
  "]": () => neighbour(1),
  e: () => go("explain"),
  t: () => go("timeline"),
  h: () => press("#view-history"),
  d: () => press("#view-diagram"),
  z: () => press("#gaps"),
  p: () => press("#live"),
  "?": help,
};

document.addEventListener("keydown", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const left = target?.closest("dialog:not([open])"); // just closed: it keeps the focus until the next rendering
  const typing = !left && target?.closest("input:not([type=checkbox]), textarea, select, dialog");
  if (event.key === "Escape" && target instanceof HTMLElement && target.id === "q") target.blur();
  if (!on || typing || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});
