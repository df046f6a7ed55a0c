// Switches between light and dark without reloading the page.
const link = document.getElementById("theme");
link?.addEventListener("click", (event) => {
  event.preventDefault();
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const wanted = dark ? "light" : "dark";
  root.dataset.theme = wanted;
  document.cookie = `romancy_theme=${wanted}; max-age=31536000; samesite=lax; path=${new URL("./", location.href).pathname}`;
});
