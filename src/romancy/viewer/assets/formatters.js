// Formats durations like formatters.py on the server.

const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];

/** @param {number} seconds @returns {string} */
export function duration(seconds) {
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`.replace(".0 s", " s");
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  for (const [size, name, lower, lowerName] of UNITS) {
    if (whole < size) continue;
    const count = Math.floor(whole / size);
    const rest = whole % size;
    return `${count.toLocaleString("en")} ${name}` + (rest >= lower && count < 100 ? ` ${Math.floor(rest / lower)} ${lowerName}` : "");
  }
  return `${whole} s`;
}

/** Announce a text to screen readers. @param {string} text */
export function announce(text) {
  const region = document.getElementById("announce");
  if (region) region.textContent = text;
}
