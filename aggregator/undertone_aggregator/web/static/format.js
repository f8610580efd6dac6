// Functions with which every part of the page writes elements, numbers and times.

export const $ = (id) => document.getElementById(id);

export function element(name, text = "", kind = "") {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

export function drawing(name, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Returns a table. It can be reached by keyboard, because it may have to be scrolled sideways.
export function rows(pairs, heads) {
  const table = element("table");
  table.tabIndex = 0;
  if (heads) {
    const head = table.createTHead().insertRow();
    for (const text of heads) head.append(element("th", text));
  }
  const body = table.createTBody();
  for (const cells of pairs) {
    const row = body.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell;
  }
  return table;
}

// Gives `place` the children `made`, like replaceChildren, but updates existing elements whose tag names agree. If an element
// were replaced, it would lose the keyboard's focus, and a press on it would not become a click.
export function refresh(place, made) {
  made.forEach((fresh, i) => {
    const old = place.childNodes[i];
    if (!old) place.append(fresh);
    else if (old.nodeName !== fresh.nodeName) old.replaceWith(fresh);
    else if (fresh.nodeType === Node.TEXT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
    } else {
      for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
      for (const { name, value } of fresh.attributes)
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      refresh(old, [...fresh.childNodes]);
    }
  });
  while (place.childNodes.length > made.length) place.lastChild.remove();
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export const number = (value, digits = 4) =>
  value === null || value === undefined
    ? "–"
    : new Intl.NumberFormat(undefined, { maximumSignificantDigits: digits }).format(value);

// Returns how sure somebody can be at most, in whole percents, rounded up.
export const sure = (share) => {
  const whole = Math.ceil(100 * share - 1e-9);
  return whole >= 100 ? "practically sure" : `at most ${number(whole)} % sure`;
};

// Units that take the prefixes k, M and G.
const SCALED = ["Wh", "W", "J", "g", "VA", "VAh"];
// Returns a unit that people read easily: [how many of the given unit it contains, its name].
export function scale(most, unit) {
  if (unit === "l" && most >= 10_000) return [1000, "m³"];
  const prefixed = [
    [1e9, `G${unit}`],
    [1e6, `M${unit}`],
    [1e3, `k${unit}`],
  ];
  return (SCALED.includes(unit) && prefixed.find(([least]) => most >= 2 * least)) || [1, unit];
}

// Returns an amount with its error, both in a unit that people read easily: 5100 Wh becomes 5.1 kWh. The error has two digits,
// and the amount has the same number of decimals. Amounts that stand side by side share one `scale`, so they have one unit.
export function amount(value, error, unit, [size, shown] = scale(Math.max(Math.abs(value), error ?? 0), unit)) {
  const fine = error === null || !(error > 0) ? Math.abs(value) / size / 1000 : error / size;
  const decimals = fine > 0 ? Math.min(Math.max(1 - Math.floor(Math.log10(fine)), 0), 6) : 0;
  const words = new Intl.NumberFormat(undefined, { minimumFractionDigits: 0, maximumFractionDigits: decimals });
  return {
    // An amount that rounds to 0 has no sign.
    value: words
      .format(value / size)
      .replace(/^-0$/, "0")
      .replace("-", "−"),
    error: error === null ? "" : `± ${number(error / size, 2)}`,
    unit: shown,
  };
}

// Dates in the reader's language, and a clock of 24 hours for everybody.
const format = (options) => (seconds, zone) =>
  new Intl.DateTimeFormat(undefined, { ...options, hourCycle: "h23", timeZone: zone }).format(seconds * 1000);
export const time = format({ dateStyle: "medium", timeStyle: "short" });
export const fine = format({ dateStyle: "medium", timeStyle: "medium" });
export const clock = format({ hour: "2-digit", minute: "2-digit" });
export const precise = format({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const day = format({ day: "numeric", month: "short" });
export const date = format({ dateStyle: "medium" });

// Returns a moment at which a slot begins or ends; with seconds if slots are not whole minutes.
export const edge = (seconds, slot, zone) => (slot % 60 ? fine : time)(seconds, zone);

// Returns a slot from its first to its last moment, such as 19:30–20:00; a slot of whole days as the date of its first day.
export function span(start, seconds, zone) {
  const words = seconds % 60 ? precise : clock;
  return seconds % 86400 === 0 ? date(start, zone) : `${words(start, zone)}–${words(start + seconds, zone)}`;
}

const SIZES = [
  [86400, "day"],
  [3600, "hour"],
  [60, "minute"],
  [1, "second"],
];
// Lengths of time stand within English sentences, so they are in English whatever the browser's language is.
const unitOf = (seconds) => SIZES.find(([size]) => seconds >= size) ?? SIZES.at(-1);
export function ago(seconds) {
  const [size, unit] = unitOf(seconds);
  // "auto" says "now" for 0 seconds. For a day it would say "yesterday", which may be the day before.
  return new Intl.RelativeTimeFormat("en", { numeric: unit === "day" ? "always" : "auto" }).format(
    -Math.floor(Math.max(seconds, 0) / size),
    unit,
  );
}
export function lasting(seconds) {
  const [size, unit] = SIZES.find(([each]) => seconds >= each && seconds % each === 0) ?? unitOf(seconds);
  return new Intl.NumberFormat("en", {
    style: "unit",
    unit,
    unitDisplay: "long",
    maximumFractionDigits: 1,
  }).format(seconds / size);
}

export const natural = new Intl.Collator(undefined, { numeric: true }).compare;
