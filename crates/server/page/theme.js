/** Light or dark before anything is drawn; this one file is no module, so that it runs first. */
(() => {
  const kept = localStorage.getItem("redrive.theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
