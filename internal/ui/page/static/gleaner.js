// What pages do beyond links and forms. They work without it.
"use strict";

// The theme: of the system, light or dark.
const themeButton = document.querySelector("[data-theme-button]");
if (themeButton) {
  const themes = ["system", "light", "dark"];
  const show = () => { themeButton.textContent = "Theme: " + (document.documentElement.dataset.theme || "system"); };
  themeButton.hidden = false;
  show();
  themeButton.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme || "system") + 1) % themes.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try { localStorage.setItem("theme", next); } catch { /* it is not remembered */ }
    show();
  });
}

// Buttons that copy, and that ask before they do something.
const prepare = (within) => {
  for (const button of within.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
};
prepare(document);
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.confirm && !window.confirm(button.dataset.confirm)) event.preventDefault();
  if (button.dataset.copy) {
    event.preventDefault();
    let said = "Copied";
    try { await navigator.clipboard.writeText(button.dataset.copy); } catch { said = "Not allowed"; }
    button.textContent = said;
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }
});

// Forms whose result is replaced while a person types, without another page.
let pending;
const update = async (form) => {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.set(name, value);
  const address = form.getAttribute("action") + "?" + query;
  if (pending) pending.abort();
  pending = new AbortController();
  try {
    const response = await fetch(address, { signal: pending.signal, headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const result = page.querySelector("[data-result]");
    const old = document.querySelector("[data-result]");
    if (!result || !old) { location.assign(address); return; }
    old.replaceWith(document.adoptNode(result));
    prepare(result);
    history.replaceState(null, "", address);
  } catch (failure) {
    if (failure.name !== "AbortError") location.assign(address);
  }
};
for (const form of document.querySelectorAll("form[data-live-form]")) {
  let timer;
  const later = (delay) => { clearTimeout(timer); timer = setTimeout(() => update(form), delay); };
  form.addEventListener("input", (event) => later(event.target.tagName === "SELECT" || event.target.type === "checkbox" ? 0 : 250));
  form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); update(form); });
}

// Arrow keys move in the tree: up and down between rows; left closes what is below, or goes to the owner; right opens it.
document.addEventListener("keydown", (event) => {
  const item = event.target.closest("[data-tree] li");
  if (!item || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const items = [...item.closest("[data-tree]").querySelectorAll("li")].filter((i) => i.firstElementChild.checkVisibility());
  const focus = (i) => i?.querySelector("a").focus();
  const below = item.querySelector(":scope > details");
  switch (event.key) {
    case "ArrowDown": focus(items[items.indexOf(item) + 1]); break;
    case "ArrowUp": focus(items[items.indexOf(item) - 1]); break;
    case "ArrowRight": if (below) below.open = true; break;
    case "ArrowLeft":
      if (below?.open) below.open = false;
      else focus(item.parentElement.closest("li"));
      break;
    default: return;
  }
  event.preventDefault();
});

// Pages that change by themselves. What a person has opened or written stays.
const live = document.querySelector("[data-live]");
if (live) {
  const connection = document.querySelector("[data-connection]");
  const source = new EventSource(live.dataset.live);
  source.addEventListener("open", () => { connection.textContent = ""; });
  source.addEventListener("content", (event) => {
    connection.textContent = "";
    if (live.querySelector("details[open] form") || live.querySelector("form :focus")) return;
    const focused = document.activeElement && live.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const parsed = new DOMParser().parseFromString(event.data, "text/html");
    live.replaceChildren(...parsed.body.childNodes);
    prepare(live);
    if (focused) live.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  });
  source.addEventListener("error", () => { connection.textContent = "Connection lost: what is shown may be out of date. Trying again…"; });
}
