// Choosing rows of a list: all of them at once, and no action without a choice.
const form = document.getElementById("rows");
const every = document.getElementById("every");
const all = document.getElementById("all-match");

const boxes = () => /** @type {HTMLInputElement[]} */ ([...(form?.querySelectorAll("tbody input[name=key]") ?? [])]);

/** How many rows are chosen; live updates wait while there are some. */
export function chosen() {
  return boxes().filter((box) => box.checked).length + (all instanceof HTMLInputElement && all.checked ? 1 : 0);
}

function refresh() {
  const count = boxes().filter((box) => box.checked).length;
  if (every instanceof HTMLInputElement) {
    every.checked = count > 0 && count === boxes().length;
    every.indeterminate = count > 0 && count < boxes().length;
  }
  for (const button of form?.querySelectorAll("button[name=action]") ?? []) {
    if (button instanceof HTMLButtonElement) button.disabled = chosen() === 0;
  }
}

every?.addEventListener("change", () => {
  for (const box of boxes()) box.checked = every instanceof HTMLInputElement && every.checked;
});
form?.addEventListener("change", refresh);
if (form) refresh();
