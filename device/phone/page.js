// Small helpers to build the page: elements, and numbers and times in the app's language.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const button = (label, onclick, kind = "") =>
  element("button", { type: "button", onclick, className: kind }, label);

export const paragraph = (...children) => element("p", {}, ...children);

// A list of names, each with its value.
export const facts = (rows) =>
  element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));

// Numbers and times are in the language of the words, so that a screen has one language.
let tag = "en";

export function speak(language) {
  tag = language;
  document.documentElement.lang = language;
}

export const number = (value, digits = 0) => value.toLocaleString(tag, { maximumFractionDigits: digits });

export const moment = (seconds) =>
  new Date(seconds * 1000).toLocaleString(tag, { dateStyle: "medium", timeStyle: "short" });

// A length of time in words, in the largest unit that fits into it: "3 days".
export function duration(seconds) {
  const [unit, size] = [
    ["day", 86400],
    ["hour", 3600],
    ["minute", 60],
  ].find(([, size]) => seconds >= size) ?? ["second", 1];
  const format = new Intl.NumberFormat(tag, { style: "unit", unit, unitDisplay: "long", maximumFractionDigits: 0 });
  return format.format(seconds / size);
}
