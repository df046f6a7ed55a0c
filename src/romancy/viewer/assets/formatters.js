// The same words for spans of time as the server's.

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

/** Say something to those who listen instead of looking. @param {string} text */
export function announce(text) {
  const place = document.getElementById("announce");
  if (place) place.textContent = text;
}
