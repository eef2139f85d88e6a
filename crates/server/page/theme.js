/** Applies the stored theme before the first paint; not a module, so that it runs first. */
(() => {
  const kept = localStorage.getItem("redrive.theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
