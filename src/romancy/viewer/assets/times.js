// Clocks tick here, so that pages need not be asked again for them. The server's clock is the one that counts.
import { duration } from "./formatters.js";

/** How far this machine's clock is ahead of the server's, in milliseconds. */
let ahead = 0;

/** @param {string | null} served the header Date of an answer */
export function setClock(served) {
  const at = served ? Date.parse(served) : NaN;
  // The header has whole seconds: a difference of less says nothing.
  if (!Number.isNaN(at)) ahead = Math.abs(Date.now() - at) < 2000 ? 0 : Date.now() - at;
}

function tick() {
  const now = Date.now() - ahead;
  for (const one of document.querySelectorAll("time[data-how]")) {
    const distance = (Date.parse(one.getAttribute("datetime") ?? "") - now) / 1000;
    const span = duration(Math.max(Math.abs(distance), 0.001));
    const how = one.getAttribute("data-how");
    const said = how === "ago" ? `${span} ago` : how === "age" ? span : distance >= 0 ? `in ${span}` : `${span} overdue`;
    if (one.textContent !== said && Math.abs(distance) >= 1) one.textContent = said;
  }
}

setInterval(() => { if (!document.hidden) tick(); }, 1000);
