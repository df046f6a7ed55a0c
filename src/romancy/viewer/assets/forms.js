// Lists in forms: adds and removes items. A new item is a copy of the template, with its index in all names.

/** @param {Element} list */
function add(list) {
  const items = list.querySelector(":scope > [data-items]");
  const template = list.querySelector(":scope > template");
  if (!items || !(template instanceof HTMLTemplateElement)) return;
  const number = Number(list.getAttribute("data-next") ?? items.children.length);
  list.setAttribute("data-next", String(number + 1));
  const item = document.createElement("li");
  item.innerHTML = template.innerHTML.replaceAll(`__n${list.getAttribute("data-list")}__`, String(number));
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "quiet";
  remove.dataset.remove = "";
  remove.textContent = "Remove";
  item.append(remove);
  items.append(item);
  wire(item);
  const first = item.querySelector("input, select, textarea");
  if (first instanceof HTMLElement) first.focus();
}

/** @param {ParentNode} within */
function wire(within) {
  for (const button of within.querySelectorAll("[data-add], [data-remove]")) button.hidden = false;
  for (const box of within.querySelectorAll("[data-given]")) show(box);
}

/** Hide the fields of an optional object that is not included. @param {Element} box */
function show(box) {
  const frame = box.closest("fieldset");
  if (!(box instanceof HTMLInputElement) || !frame) return;
  for (const part of frame.children) {
    if (part.tagName !== "LEGEND" && !part.contains(box)) part.hidden = !box.checked;
  }
}

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const list = target?.closest("[data-add]")?.parentElement;
  if (list) add(list);
  const item = target?.closest("[data-remove]")?.closest("li");
  if (item) {
    const frame = item.closest("fieldset");
    item.remove();
    const button = frame?.querySelector(":scope > [data-add]");
    if (button instanceof HTMLElement) button.focus();
  }
});
document.addEventListener("change", (event) => {
  if (event.target instanceof Element && event.target.matches("[data-given]")) show(event.target);
});
wire(document);
document.getElementById("summary")?.focus();
