// Selection of rows in a list: a check box for all of them, and no action without a selection.
const form = document.getElementById("rows");
const every = document.getElementById("every");
const all = document.getElementById("all-match");

const boxes = () => /** @type {HTMLInputElement[]} */ ([...(form?.querySelectorAll("tbody input[name=key]") ?? [])]);

/** Number of selected rows. New rows are not announced while there are any. */
export function selected() {
  return boxes().filter((box) => box.checked).length + (all instanceof HTMLInputElement && all.checked ? 1 : 0);
}

function refresh() {
  const count = boxes().filter((box) => box.checked).length;
  if (every instanceof HTMLInputElement) {
    every.checked = count > 0 && count === boxes().length;
    every.indeterminate = count > 0 && count < boxes().length;
  }
  for (const button of form?.querySelectorAll("button[name=action]") ?? []) {
    if (button instanceof HTMLButtonElement) button.disabled = selected() === 0;
  }
}

every?.addEventListener("change", () => {
  for (const box of boxes()) box.checked = every instanceof HTMLInputElement && every.checked;
});
form?.addEventListener("change", refresh);
if (form) refresh();
