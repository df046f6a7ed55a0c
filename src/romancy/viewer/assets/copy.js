// Copy buttons. Pages served over plain HTTP have no clipboard API, so they select the text and use execCommand.
import { announce } from "./formatters.js";

/** @param {string} text */
async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
  } else {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce("Copied.");
}

export function wireCopies(within = document) {
  for (const button of within.querySelectorAll("[data-copy], [data-copy-text]")) button.hidden = false;
}

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("[data-copy], [data-copy-text]") : null;
  if (!button) return;
  const text = button.getAttribute("data-copy-text") ?? document.getElementById(button.getAttribute("data-copy") ?? "")?.textContent ?? "";
  copy(text).catch(() => announce("The text could not be copied."));
});
wireCopies();
