"use strict";
// A column's head sorts the table by it, largest or last first, then the other way; what has no value stays last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const first = column === 0 || head.classList.contains("text") ? "ascending" : "descending";
    const order = head.ariaSort !== first ? first : first === "ascending" ? "descending" : "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const key = row => {  // of "1.02", "12,345", "33.9 / 31.8"; undefined where there is nothing
      const parts = [...row.cells[column].childNodes].filter(node => node.tagName !== "SMALL");
      const text = parts.map(node => node.textContent).join("").trim();
      const number = parseFloat(text.replaceAll(",", "").replace("<= ", ""));
      return head.classList.contains("text") ? text : isNaN(number) ? undefined : number;
    };
    const sign = order === "ascending" ? 1 : -1;
    const compare = (a, b) => typeof a === "number" ? a - b : a.localeCompare(b);
    const rows = [...table.tBodies[0].rows].sort((a, b) =>
      (key(a) === undefined) - (key(b) === undefined) || (key(a) === undefined ? 0 : sign * compare(key(a), key(b))));
    table.tBodies[0].append(...rows);
  }));
}

// Values where the pointer or the focus rests, or a finger taps: at once, in place of the browser's slow ones.
const tip = document.getElementById("tip");
for (const title of document.querySelectorAll("svg title")) {
  title.parentElement.dataset.tip = title.textContent;
  title.remove();
}
for (const element of document.querySelectorAll("[title]")) {
  element.dataset.tip = element.title;
  element.setAttribute("aria-description", element.title);
  element.removeAttribute("title");
}
function show(target) {
  const over = target.closest("[data-tip]");
  tip.hidden = !over;
  if (over) tip.textContent = over.dataset.tip;
}
function hide() {
  tip.hidden = true;
}
function place(left, top, bottom) {
  const above = top - tip.offsetHeight - 12;
  tip.style.left = `${Math.max(8, Math.min(left, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${above > 8 ? above : bottom + 18}px`;
}
document.addEventListener("pointerover", event => show(event.target));
document.addEventListener("pointermove", event => place(event.clientX + 14, event.clientY, event.clientY));
document.addEventListener("focusin", event => {
  const box = event.target.getBoundingClientRect();
  show(event.target);
  place(box.left, box.top, box.bottom);
});
document.addEventListener("focusout", hide);
document.addEventListener("keydown", event => event.key === "Escape" && hide());

// A link to what is folded unfolds it.
function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  target?.scrollIntoView();
}
addEventListener("hashchange", open);
open();
