// Checks the page in which it is evaluated, and returns a list of faults.
() => {
  const wrong = [];
  const say = (what, element) => wrong.push(`${what}: ${(element?.outerHTML ?? "").slice(0, 160)}`);
  const seen = (element) => element.getClientRects().length > 0 && getComputedStyle(element).visibility !== "hidden"
    && !element.closest(".unseen, [hidden], [aria-hidden=true]");
  const named = (element) => (element.getAttribute("aria-label") || element.textContent || element.title
    || element.querySelector("[aria-label]")?.getAttribute("aria-label") || "").trim() !== "";

  if (!document.documentElement.lang) say("no language");
  if (!document.title.trim()) say("no title");
  if (document.querySelectorAll("h1").length !== 1) say(`${document.querySelectorAll("h1").length} h1`);
  if (document.querySelectorAll("main").length !== 1) say("not one main");
  for (const nav of document.querySelectorAll("nav")) if (!nav.getAttribute("aria-label")) say("nav without a name", nav);

  let level = 1;
  for (const heading of document.querySelectorAll("main h1, main h2, main h3, main h4")) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) say(`heading skips from ${level} to ${next}`, heading);
    level = next;
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids)) if (ids.filter((one) => one === id).length > 1) say(`id ${id} twice`);
  for (const element of document.querySelectorAll("[aria-describedby], [aria-labelledby]")) {
    const wanted = `${element.getAttribute("aria-describedby") ?? ""} ${element.getAttribute("aria-labelledby") ?? ""}`;
    for (const id of wanted.split(" ").filter(Boolean)) {
      if (!document.getElementById(id) && !["dialog-title"].includes(id)) say(`refers to ${id}, which is not there`, element);
    }
  }
  for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
    if (!field.labels?.length && !field.getAttribute("aria-label")) say("field without a label", field);
  }
  for (const element of document.querySelectorAll("a[href], button, summary")) if (seen(element) && !named(element)) say("no name", element);
  for (const element of document.querySelectorAll("[role=img]")) if (!named(element)) say("picture without a name", element);
  for (const table of document.querySelectorAll("main table")) {
    if (!table.caption) say("table without a caption", table);
    for (const th of table.querySelectorAll("th")) if (!th.scope) say("th without a scope", th);
  }
  for (const element of document.querySelectorAll("button, .button, .chip, input:not([type=hidden]), select, nav a")) {
    if (!seen(element)) continue;
    const box = (element.closest("label") ?? element).getBoundingClientRect();
    if (box.height < 24 || box.width < 24) say(`target of ${Math.round(box.width)} × ${Math.round(box.height)}`, element);
  }
  for (const element of document.querySelectorAll("[style], script:not([src]), style, [onclick], [onerror]")) say("inline", element);

  const rgb = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => {
    const part = (value) => { const c = value / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = rgb(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const told = new Set();
  for (const element of document.querySelectorAll("body *")) {
    if (!seen(element) || element.closest("button[disabled]") || element.closest(".diagram")) continue;
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const style = getComputedStyle(element);
    const ink = rgb(element instanceof SVGElement ? style.fill : style.color);
    const [one, other] = [light(ink), light(ground(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && Number(style.fontWeight) >= 600);
    const key = `${ink} ${ground(element)}`;
    if (ratio < (large ? 3 : 4.5) && !told.has(key)) { told.add(key); say(`contrast ${ratio.toFixed(2)}`, element); }
  }
  if (document.documentElement.scrollWidth > innerWidth) {
    const wide = [...document.querySelectorAll("body *")].filter((element) => element.getBoundingClientRect().right > innerWidth + 1
      && !element.closest(".scroll, pre, .json-box, .diagram-scroll"));
    say(`${document.documentElement.scrollWidth} wide in ${innerWidth}`, wide[0]);
  }
  return wrong;
}
