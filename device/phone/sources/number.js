// A number that the person enters, such as a meter's reading or a count.
import { button, element, moment, number as format, paragraph } from "../page.js";
import { fill } from "../words.js";

export const id = "number";
export const title = (words) => words.phone.number.title;
export const whole = true;

// The device counts readings of less than 2^30.
const LARGEST = 2 ** 30 - 1;

export const fits = () => true;

// Return the number that a person wrote in this language, with its separators; NaN for anything else.
export function parse(text, { thousands, point }) {
  const plain = text.trim().replace(/[\s\u00a0\u202f']/g, "");
  const escaped = (sign) => `\\${sign}`;
  const grouped = new RegExp(`^[-−]?\\d{1,3}(${escaped(thousands)}\\d{3})+(${escaped(point)}\\d+)?$`);
  const digits = grouped.test(plain) ? plain.replaceAll(thousands, "") : plain;
  const value = digits.replace("−", "-").replace(",", ".");
  return /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : NaN;
}

// Returns the question to ask before the app takes the nearest number that is allowed: {key, limit}. Returns null if
// the number itself is allowed. `range`: [smallest, largest], null if there is no range, as for a meter's reading.
export function doubt(value, range) {
  if (range && value < range[0]) return { key: "below", limit: range[0] };
  if (range && value > range[1]) return { key: "above", limit: range[1] };
  return Number.isInteger(value) ? null : { key: "whole", limit: Math.round(value) };
}

export function show({ measures, send, words }) {
  const say = words.phone.number;
  // The field is for text, because a browser's field for numbers gives the app nothing if a person mistypes a number.
  const input = element("input", {
    type: "text",
    inputMode: "decimal",
    required: true,
    id: "number",
    autocomplete: "off",
  });
  const label = element("label", { htmlFor: "number" }, fill(say.label, { unit: measures.unit }));
  const entered = paragraph();
  const trouble = element("p", { className: "trouble", role: "alert" });
  let range = null;
  const submit = (event) => {
    event.preventDefault();
    let value = parse(input.value, words.consent);
    trouble.textContent = "";
    if (Number.isNaN(value)) return (trouble.textContent = say.no_number);
    const question = doubt(value, range);
    if (question) {
      const fields = { number: format(value, 6), unit: measures.unit, limit: format(question.limit) };
      if (!confirm(fill(say[question.key], fields))) return;
      value = question.limit;
    }
    if (Math.abs(value) > LARGEST) return (trouble.textContent = fill(say.too_large, { limit: format(LARGEST) }));
    send({ do: "enter", number: value });
    input.value = "";
  };
  const form = element(
    "form",
    { onsubmit: submit },
    label,
    element("div", { className: "row" }, input, button(say.save)),
  );
  form.querySelector("button").type = "submit";
  const update = ({ status }) => {
    const { campaign } = status;
    range = campaign && campaign.measure !== "counter" ? [campaign.smallest, campaign.largest] : null;
    const newest = status.entries.at(-1);
    const slot = campaign?.slot_seconds ?? measures.slot_seconds;
    if (newest && Math.floor(newest[0] / slot) === Math.floor(status.time / slot)) {
      const end = (Math.floor(status.time / slot) + 1) * slot;
      const fields = { number: format(newest[1]), unit: measures.unit, moment: moment(end) };
      entered.textContent = fill(say.entered, fields);
    } else {
      entered.textContent = say.nothing;
    }
  };
  return { element: element("section", { className: "source" }, form, trouble, entered), update, stop() {} };
}
