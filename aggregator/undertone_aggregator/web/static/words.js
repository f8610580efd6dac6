// What a campaign's numbers are, in words for a person who knows nothing of it: what is measured, of whom, and of how many.

import { lasting, number } from "./format.js";

// What a unit measures. Any other unit measures an "amount".
const QUANTITIES = new Map([
  ...["Wh", "kWh", "MWh", "J", "kJ", "MJ"].map((unit) => [unit, "energy"]),
  ...["W", "kW", "MW", "VA"].map((unit) => [unit, "power"]),
  ...["°C", "°F", "K"].map((unit) => [unit, "temperature"]),
  ...["l", "L", "m³", "m3"].map((unit) => [unit, "volume"]),
  ...["mg/dL", "mmol/L"].map((unit) => [unit, "concentration"]),
  ["V", "voltage"],
  ["A", "current"],
  ["Hz", "frequency"],
  ["dB", "loudness"],
  ["lx", "brightness"],
]);
// Returns what a unit measures, or undefined if that is unknown. The unit may have a prefix, as in m°C.
const named = (unit) => QUANTITIES.get(unit) ?? (/^[mcdhkMG]/.test(unit) ? QUANTITIES.get(unit.slice(1)) : undefined);
const quantity = ({ unit, measure }) =>
  measure === "duration" ? "time" : (unit.split(" ").map(named).find(Boolean) ?? "amount");

// True if means of slots add up: a day's sum is its slots' mean times their number.
export const addsUp = ({ measure }) => ["sum", "counter", "duration"].includes(measure);

// "energy per device in 30 minutes": what each number of the campaign is.
export const per = (campaign) => `${quantity(campaign)} per device in ${lasting(campaign.slot_seconds)}`;

// Which days a campaign calls days off.
export const daysOff = ({ days_off: days }) => (days ? `Days off: ${days}.` : "This campaign knows no days off.");

// By which clock the times beside the numbers are.
export function clocks(campaigns) {
  const zones = [...new Set(campaigns.map(({ time_zone: zone }) => zone).filter(Boolean))];
  if (!zones.length) return "";
  return zones.length === 1 ? `Times are those of ${zones[0]}.` : "Times are those of each campaign's own time zone.";
}

// For each measure, in words: what is averaged over the homes for a time longer than a slot.
const OVERALL = {
  sum: (what) => `total ${what}`,
  counter: (what) => `total ${what}`,
  mean: (what) => `mean ${what}`,
  last: (what, slot) => `last ${what} of each ${slot}`,
  max: (what, slot) => `highest ${what} of each ${slot}`,
  duration: (what) => `total ${what} “on”`,
};

// What may be said with the page's numbers, and what not. `week`: the moments and the number, in words, of the newest days, or
// null if they have no number.
export function told(campaign, week) {
  const what = OVERALL[campaign.measure](quantity(campaign), lasting(campaign.slot_seconds));
  const number = week
    ? `You may say: from ${week.from} to ${week.to}, the ${what} of a home that took part (sensor “${campaign.sensor}”) was ${week.words} on average. `
    : "";
  return (
    `${number}Take a difference as real only where this page calls it more or less, and not where it says “no clear difference” or` +
    " “may be chance”. These numbers do not tell how other homes are, why something changed, or anything about one home."
  );
}

// How each measure makes one number of a slot.
const WAYS = {
  sum: (what, home, slot) => `the ${what} that ${home} adds up in each ${slot}`,
  counter: (what, home, slot) => `the ${what} by which ${home} advances in each ${slot}`,
  mean: (what, home, slot) => `the mean ${what} that ${home} measures in each ${slot}`,
  last: (what, home, slot) => `the last ${what} that ${home} measures in each ${slot}`,
  max: (what, home, slot) => `the highest ${what} that ${home} measures in each ${slot}`,
  duration: (what, home, slot) => `the ${what} for which ${home} is on in each ${slot}`,
};

// Returns a sentence that says what each number of the campaign is.
export function meaning(campaign) {
  const { sensor, measure, unit, slot_seconds: slot } = campaign;
  const words = WAYS[measure](`${quantity(campaign)} (${unit})`, `the sensor “${sensor}” of one home`, lasting(slot));
  return `${words[0].toUpperCase()}${words.slice(1)}; shown is the mean of the homes that take part, each with one device.`;
}

const period = (seconds) => (seconds > 7200 ? `about ${lasting(3600 * Math.round(seconds / 3600))}` : lasting(seconds));

// How many homes take part, and whether they stand for others. `known`: the number of registered devices, if it is published.
export function homes({ server, stride, slot_seconds: slot }, known) {
  const { reporting, silent } = server.devices?.all ?? {};
  const counted = reporting !== null && Number.isFinite(silent);
  const many = counted ? reporting + silent : known;
  const joined = "those that joined, not a random sample: a total is of these homes alone, and other homes may differ.";
  if (!many) return `The homes that take part are ${joined}`;
  const now = counted ? `; ${number(reporting, 9)} of them reported for the newest slot` : "";
  const turns = stride > 1 ? `, in turns: each reports once in ${period(stride * slot)}` : "";
  const they = many === 1 ? "The homes that take part are" : "They are";
  return `${number(many, 9)} ${many === 1 ? "home takes" : "homes take"} part${turns}${now}. ${they} ${joined} This page does not know how many homes there are in all.`;
}
