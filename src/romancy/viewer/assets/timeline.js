// In the timeline only one span is in the tab order; the arrow keys move to the others. A tooltip shows the label of a span.
const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);

const spans = () => /** @type {(HTMLElement | SVGElement)[]} */ (
  [...document.querySelectorAll(".tracks .span")].filter((one) => one.getClientRects().length > 0)
);

export function wireTimeline() {
  for (const one of document.querySelectorAll(".tracks .span")) one.setAttribute("tabindex", "-1");
  spans()[0]?.setAttribute("tabindex", "0");
}

/** @param {Element} span */
function show(span) {
  tip.textContent = span.getAttribute("aria-label");
  tip.hidden = false;
  const bounds = (span.querySelector(".reach, .owner, .mark") ?? span).getBoundingClientRect();
  const size = tip.getBoundingClientRect();
  const left = Math.min(Math.max(bounds.left, 8), innerWidth - size.width - 8);
  const above = bounds.top - size.height - 6;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 4 ? above : bounds.bottom + 6}px`;
}

document.addEventListener("focusin", (event) => {
  const span = event.target instanceof Element ? event.target.closest(".tracks .span") : null;
  if (!span) { tip.hidden = true; return; }
  for (const one of document.querySelectorAll('.tracks .span[tabindex="0"]')) one.setAttribute("tabindex", "-1");
  span.setAttribute("tabindex", "0");
  show(span);
});
document.addEventListener("pointerover", (event) => {
  const span = event.target instanceof Element ? event.target.closest(".tracks .span") : null;
  if (span) show(span);
  else if (!document.activeElement?.closest(".tracks .span")) tip.hidden = true;
});
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

const STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };
document.addEventListener("keydown", (event) => {
  const here = document.activeElement?.closest(".tracks .span");
  if (event.key === "Escape") tip.hidden = true;
  if (!here || !(event.key in STEPS)) return;
  event.preventDefault();
  const step = STEPS[/** @type {keyof typeof STEPS} */ (event.key)];
  const all = spans();
  let next = Math.min(Math.max(all.indexOf(/** @type {any} */ (here)) + step, 0), all.length - 1);
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const row = here.closest(".row");
    while (next > 0 && next < all.length - 1 && all[next].closest(".row") === row) next += step;
  }
  all[next]?.focus();
});
wireTimeline();
