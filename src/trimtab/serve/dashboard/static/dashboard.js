// What needs no answer from the server: themes, shortcuts, the list of shortcuts.
"use strict";
(() => {
  const THEMES = ["auto", "dark", "light"];
  const typing = (target) => target.closest("input, textarea, select, [contenteditable=true]") !== null;
  let afterG = 0;

  const theme = () => (document.cookie.match(/(?:^|; )trimtab_theme=(\w+)/) || [])[1] || "auto";

  const nextTheme = () => {
    const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
    document.cookie = `trimtab_theme=${next}; path=/; max-age=31536000; SameSite=Strict`;
    Quasar.Dark.set(next === "auto" ? "auto" : next === "dark");
    document.querySelector("[data-does=theme]").title = `Theme: ${next}`;
  };

  const showHelp = () => document.getElementById("help")?.showModal();

  document.addEventListener("click", (event) => {
    const does = event.target.closest("[data-does]")?.dataset.does;
    if (does === "theme") nextTheme();
    if (does === "help") showHelp();
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (Date.now() - afterG < 1500) {
      afterG = 0;
      const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
    } else if (event.key === "g") {
      afterG = Date.now();
    } else if (event.key === "t") {
      nextTheme();
    } else if (event.key === "?") {
      showHelp();
    } else if (event.key === "/") {
      const filter = document.querySelector(".filter input");
      if (filter) { event.preventDefault(); filter.focus(); }
    }
  });
})();
