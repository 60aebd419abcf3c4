"use strict";
// Stage buttons open panels side by side; the search box hides what does not hold the words.
for (const card of document.querySelectorAll(".card")) {
  card.querySelectorAll(".stages button").forEach((button) => {
    const panel = document.getElementById(button.dataset.panel);
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(open));
      panel.hidden = !open;
      if (open) { card.querySelector(".side").appendChild(panel); }
    });
  });
}
for (const picture of document.querySelectorAll(".picture")) {
  picture.addEventListener("click", () => picture.classList.toggle("large"));
}
for (const span of document.querySelectorAll("a.span")) {
  span.addEventListener("click", () => {
    const card = document.getElementById(span.getAttribute("href").slice(1));
    if (card) { card.open = true; }
  });
}
const box = document.getElementById("search");
const told = document.getElementById("found");
function search() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = document.querySelectorAll("[data-searched]");
  let count = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    const fits = words.every((word) => text.includes(word));
    row.hidden = !fits;
    count += fits ? 1 : 0;
    row.querySelectorAll(".stages button").forEach((button) => {
      const panel = document.getElementById(button.dataset.panel);
      const holds = words.length > 0 && words.every((w) => panel.textContent.toLowerCase().includes(w));
      button.classList.toggle("hit", holds);
    });
  }
  told.textContent = words.length ? `${count} of ${rows.length}` : "";
}
box.addEventListener("input", search);
document.body.dataset.ready = "yes";
