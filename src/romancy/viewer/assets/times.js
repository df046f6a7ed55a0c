// Updates relative times in the page, by the clock of the server.
import { duration } from "./formatters.js";

/** How far the clock of this machine is ahead of the server's, in milliseconds. */
let ahead = 0;

/** @param {string | null} served the header Date of a response */
export function setClock(served) {
  const at = served ? Date.parse(served) : NaN;
  // The header has whole seconds, so a difference below two seconds is not significant.
  if (!Number.isNaN(at)) ahead = Math.abs(Date.now() - at) < 2000 ? 0 : Date.now() - at;
}

function tick() {
  const now = Date.now() - ahead;
  for (const one of document.querySelectorAll("time[data-how]")) {
    const distance = (Date.parse(one.getAttribute("datetime") ?? "") - now) / 1000;
    const span = duration(Math.max(Math.abs(distance), 0.001));
    const how = one.getAttribute("data-how");
    const text = how === "ago" ? `${span} ago` : how === "age" ? span : distance >= 0 ? `in ${span}` : `${span} overdue`;
    if (one.textContent !== text && Math.abs(distance) >= 1) one.textContent = text;
  }
}

setInterval(() => { if (!document.hidden) tick(); }, 1000);
