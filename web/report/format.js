// Numbers and names in readable form. Pure: no DOM.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Formats `1234567` as `1,234,567`. */
export function count(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Formats bytes in the largest suitable binary unit, with at most three significant digits. */
export function bytes(amount) {
  if (amount === null || amount === undefined) return "–";
  let unit = 0;
  let rest = amount;
  while (rest >= 1024 && unit < UNITS.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${significant(rest, unit === 0)} ${UNITS[unit]}`;
}

/** Formats a duration: `0.4 ms`, `1.25 s`, `2 min 05 s`, `3 h 07 min`. */
export function seconds(length) {
  if (length === null || length === undefined) return "–";
  if (length === 0) return "0 s";
  if (length < 0.9995) return `${significant(length * 1000, false)} ms`;
  if (length < 59.95) return `${length.toFixed(length < 9.995 ? 2 : 1)} s`;
  const whole = Math.round(length);
  const two = (part) => String(part).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
}

/** Formats a time on the axis, with as many decimals as ticks at distance `step` need. */
export function instant(time, step) {
  if (step >= 60) return clock(time);
  const decimals = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  return `${time.toFixed(decimals)} s`;
}

function clock(time) {
  const minutes = Math.round(time / 60);
  const hours = Math.floor(minutes / 60);
  if (hours === 0) return `${minutes} min`;
  return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
}

/** Formats a fraction as per cent. */
export function percent(part) {
  return `${significant(part * 100, false)} %`;
}

/** Formats a number with a noun: `1 thing`, `2 things`. */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** The name of a data reference: a member, or the first and last of several. */
export function dataName(ref) {
  return typeof ref === "string" ? ref : `${ref.from} … ${ref.to}`;
}

/** The output of a tool as plain lines, without terminal escape sequences. */
export function plainLines(text) {
  const plain = text.replace(/\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b[@-Z\\-_]/g, "").replace(/\r\n?/g, "\n");
  return plain.replace(UNSEEN_IN_LINES, escaped);
}

// Characters that are invisible, or that change the text direction around them.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
// The same, without the line breaks and tabs of text with several lines.
const UNSEEN_IN_LINES = new RegExp(UNSEEN.source.replace("\\u0000-\\u001f", "\\u0000-\\u0008\\u000b-\\u001f"), "g");

function escaped(mark) {
  return `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** Fields whose text may have several lines. */
const LINED = new Set(["text", "problem", "warnings", "command", "command_line"]);
/** Fields with the output of tools, which `plainLines` converts. */
const PRINTED = new Set(["head", "tail"]);

/**
 * Escapes invisible characters in all texts of a value of run.json, names above all. Objects and
 * lists are changed in place.
 */
export function visible(value, marks = UNSEEN) {
  if (typeof value === "string") return value.replace(marks, escaped);
  if (value === null || typeof value !== "object") return value;
  for (const key in value) {
    const part = value[key];
    if (typeof part === "number" || PRINTED.has(key)) continue;
    const seen = visible(part, LINED.has(key) ? UNSEEN_IN_LINES : marks);
    if (seen !== part) value[key] = seen;
  }
  return value;
}

function significant(number, whole) {
  if (whole || number >= 99.95) return count(number);
  const text = number >= 9.995 ? number.toFixed(1) : number.toFixed(2);
  return text.replace(/\.?0+$/, "");
}
