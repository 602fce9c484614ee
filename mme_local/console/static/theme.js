// Runs before the page is painted: the colours that the visitor chose, else those of the system.
(() => {
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("mme-console-theme") || "auto";
  } catch {
    // Storage may be off: the choice then lasts as long as the page.
  }
  document.documentElement.dataset.theme = ["light", "dark"].includes(chosen) ? chosen : "auto";
})();
