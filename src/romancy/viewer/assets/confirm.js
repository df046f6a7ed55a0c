// Shows the confirmation in a dialog instead of a separate page: fetches the page and shows its form.
const dialog = document.getElementById("dialog");

/** @param {string} address @param {URLSearchParams} [body] */
async function open(address, body) {
  const response = await fetch(address, {
    method: body ? "POST" : "GET",
    headers: { "X-Romancy-Request": "1", Accept: "text/html" },
    body,
  });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const form = page.getElementById("confirm") ?? page.querySelector("main");
  if (!(dialog instanceof HTMLDialogElement) || !form) return;
  dialog.replaceChildren(document.adoptNode(form));
  dialog.showModal();
  const first = dialog.querySelector("input:not([type=hidden])");
  if (first instanceof HTMLElement) first.focus();
}

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const link = target?.closest("a[data-dialog]");
  if (link instanceof HTMLAnchorElement && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    open(link.href).catch(() => location.assign(link.href));
  }
  if (target?.closest("[data-close]") && dialog instanceof HTMLDialogElement && dialog.open) {
    event.preventDefault();
    dialog.close();
  }
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!(form instanceof HTMLFormElement) || !form.matches("[data-dialog]") || !(event instanceof SubmitEvent)) return;
  event.preventDefault();
  const values = new FormData(form);
  if (event.submitter instanceof HTMLButtonElement) values.append(event.submitter.name, event.submitter.value);
  const body = new URLSearchParams();
  for (const [name, value] of values) if (typeof value === "string") body.append(name, value);
  open(form.getAttribute("action") ?? "", body).catch(() => form.submit());
});
