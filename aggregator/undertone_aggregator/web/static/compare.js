// The section "Is it different?": two means of a campaign, their difference with its error, and whether it may be chance.

import { $, amount, day, element, lasting, natural, number, refresh, scale } from "./format.js";
import { drowned } from "./state.js";
import { addsUp, daysOff, per } from "./words.js";

const Z = 1.96;
// A true difference of (1.96 + 0.84) standard errors is measured as clear (more than 1.96 of them) four times in five: 0.84 is
// the normal distribution's quantile at 0.8. FOUND is this difference as a multiple of ±, which is 1.96 standard errors.
const FOUND = (Z + 0.84) / Z;
const RAREST = 1e-4; // of a smaller chance, only this limit is named
const named = (group) => (group === "all" ? "all devices" : group);

// What a time can be compared with; "group:NAME" is added for each group. Days are those of the campaign's clock.
const DAYS_OFF = "days:days-off";
const OTHERS = {
  "7d": "the same time a week before",
  "1d": "the same time a day before",
  [DAYS_OFF]: "its days off, against workdays",
};

// How certain a difference of two groups is. "clear": chance is unlikely to make it even between the most different two
// of `pairs` pairs. "alone": chance is unlikely to make it between two groups that were not picked for their
// difference. Otherwise "unclear".
const RARE = 0.05;
export const certainty = ({ chance: p }, pairs) => (p * pairs < RARE ? "clear" : p < RARE ? "alone" : "unclear");
export const pairsOf = (groups) => (groups * (groups - 1)) / 2;

// Returns { kind, words }: whether there is a clear difference, how large it is, and in which direction. `sized`: the
// scale of the amounts beside it. `each`: the number of slots over which a measure adds up, else 1. `over`: the time
// that the amounts are of, such as " per 30 minutes, on average".
export function differing(row, campaign, than, sized, each = 1, over = "") {
  const { unit } = campaign;
  if (!comparable(row, campaign)) return { kind: "unclear", words: `Too noisy to compare with ${than}.` };
  const shape = amount(Math.abs(each * row.estimate), Z * each * row.standard_error, unit, sized);
  const size = `${shape.value} ${shape.unit} ${shape.error}`;
  if (row.verdict === "unclear") {
    const sign = shape.value === "0" ? "" : row.estimate < 0 ? "−" : "+";
    return { kind: "unclear", words: `No clear difference from ${than}: ${sign}${size}${over}.` };
  }
  return { kind: row.verdict, words: `${size} ${row.verdict} than ${than}${over}.` };
}

// A mean whose error is larger than the mean itself is never shown, so it is not compared with anything. The error of
// each mean is taken as that of the difference, divided by √2, which is right if both are equally precise.
const comparable = (row, campaign) =>
  [row.mean, row.against].every((mean) => !drowned(mean, (Z * row.standard_error) / Math.SQRT2, campaign));

// A chance in words: "about 1 of 9".
const oneOf = (p) =>
  p > RAREST ? `about 1 of ${number(Math.round(1 / p), 2)}` : `fewer than 1 of ${number(1 / RAREST, 9)}`;

// Says how often chance alone makes a difference this large. `groups`: the number of groups among which the two were
// picked, or 0.
export function chance({ chance: p }, groups) {
  if (p === null) return "";
  if (p > 0.5) return "If both were really equal, chance alone would mostly show a larger difference.";
  const words = `If both were really equal, chance alone would show a difference this large in ${oneOf(p)} cases.`;
  const pairs = pairsOf(groups);
  if (pairs < 2 || certainty({ chance: p }, pairs) !== "alone") return words;
  const often = p * pairs > 0.5;
  const cases = often ? "" : ` in up to 1 of ${Math.floor(1 / (p * pairs))} cases`;
  return (
    `${words} But if you chose these two because they differ: ${number(groups)} groups have ${number(pairs)} pairs, and` +
    ` chance alone ${often ? "often makes" : "makes"} at least one pair differ as much${cases}.`
  );
}

// Fills in the form's choices: the groups on both sides, which are known once the campaign is known.
export function offer(campaign) {
  const groups = [...campaign.groups].sort((a, b) => (b === "all") - (a === "all") || natural(a, b));
  const form = $("choose-compared");
  if (form.dataset.groups === `${campaign.name}/${groups}`) return;
  form.dataset.groups = `${campaign.name}/${groups}`;
  const { group, against } = form.elements;
  const before = [group.value, against.value];
  group.replaceChildren(...groups.map((each) => new Option(named(each), each)));
  against.replaceChildren(
    ...Object.entries(OTHERS).map(([value, words]) => new Option(words, value)),
    ...(groups.length > 1 ? groups.map((each) => new Option(named(each), `group:${each}`)) : []),
  );
  for (const [select, value] of [
    [group, before[0]],
    [against, before[1]],
  ])
    if ([...select.options].some((option) => option.value === value)) select.value = value;
}

// Asks the server and shows its answer. `spanOf`: returns from and to of a choice of time. If the answer to an older request
// comes later, it is not shown.
export async function compare(campaign, spanOf, api) {
  const chosen = new FormData($("choose-compared")),
    place = $("compared");
  const [group, against] = [chosen.get("group"), chosen.get("against")];
  if (!group || !against) return;
  if (against === `group:${group}`) {
    refresh(place, [
      element(
        "p",
        "A group cannot be compared with itself: choose another group, or the same time a day or a week before.",
        "small",
      ),
    ]);
    return;
  }
  const byDays = against === DAYS_OFF;
  const days = byDays ? { days: "workdays" } : {};
  const words = new URLSearchParams({ ...spanOf(chosen.get("when")), group, against, ...days });
  const asked = String(words);
  place.dataset.asked = asked;
  const answer = await api(`campaigns/${campaign.name}/difference?${words}`).catch((error) => ({ error }));
  if (place.dataset.asked !== asked) return;
  place.dataset.answered = asked;
  const row = answer.differences?.[0];
  if (!row) {
    const why = answer.error?.message ?? "no part of this time has a mean on both sides";
    refresh(place, [element("p", `There is no answer: ${why}.`, "small")]);
    return;
  }
  const other = against.startsWith("group:") ? named(row.against_group) : byDays ? "days off" : OTHERS[against];
  const two = against.startsWith("group:") && group !== "all" && row.against_group !== "all";
  const groups = two ? campaign.groups.filter((each) => each !== "all").length : 0;
  const picked =
    pairsOf(groups) > 1 && certainty(row, pairsOf(groups)) === "alone"
      ? "; but if you chose these two because they differ, it may be chance"
      : "";
  const sized = scale(Math.max(Math.abs(row.mean), Math.abs(row.against)), campaign.unit);
  const { kind, words: sentence } = differing(
    row,
    campaign,
    other,
    sized,
    1,
    (addsUp(campaign) ? ` per ${lasting(campaign.slot_seconds)}, on average` : "") + picked,
  );
  const side = (value) => {
    const shape = amount(value, Z * row.standard_error, campaign.unit, sized);
    return `${shape.value} ${shape.unit}`;
  };
  const from = (start) =>
    row.start === row.against_start || byDays ? "" : ` (the time from ${day(start, campaign.time_zone)} on)`;
  const sides = byDays
    ? ["workdays ", "days off "]
    : other === OTHERS[against]
      ? ["", ""]
      : [`${named(group)} `, `${other} `];
  const least = amount(Z * row.standard_error, Z * row.standard_error, campaign.unit, sized);
  const found = amount(FOUND * Z * row.standard_error, Z * row.standard_error, campaign.unit, sized);
  const means =
    `Compared is ${per(campaign)}, on average: ${sides[0]}${side(row.mean)}${from(row.start)}, and ${sides[1]}${side(row.against)}${from(row.against_start)}.` +
    ` ${chance(row, groups)} A difference smaller than its ± cannot be told from chance: here, less than ${least.value} ${least.unit}.` +
    ` A difference of ${found.value} ${found.unit} or more would mostly be found (four times in five); to find half of that takes about` +
    " four times as many devices or days. Errors that both numbers share cancel out in the difference.";
  refresh(place, [
    element("p", byDays ? `Workdays: ${sentence[0].toLowerCase()}${sentence.slice(1)}` : sentence, `verdict ${kind}`),
    ...(byDays ? [element("p", daysOff(campaign), "small")] : []),
    ...(comparable(row, campaign) ? [element("p", means, "small")] : []),
  ]);
}
