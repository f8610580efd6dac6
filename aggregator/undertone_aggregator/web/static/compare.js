// Is it different? Two means of a campaign, their difference with its error, and whether that may be chance.

import { $, amount, day, element, natural, number, refresh, scale } from "./format.js";

const Z = 1.96;
const RAREST = 1e-4; // the server tells rarer chances not apart, either
const named = (group) => (group === "all" ? "all devices" : group);

// What a time is compared with; "group:NAME" is added for each group. A day's clock is that of the campaign.
const EARLIER = { "7d": "the same time a week before", "1d": "the same time a day before" };

// A difference in words: how much, in which direction, and how likely chance alone makes one like it. `sized`: the scale
// of the amounts beside it. `each`: the number of slots over which a measure adds up, else 1.
export function differing(row, { unit }, than, sized, each = 1) {
  const shape = amount(Math.abs(each * row.estimate), Z * each * row.standard_error, unit, sized);
  const size = `${shape.value} ${shape.unit} ${shape.error}`;
  if (row.verdict === "unclear")
    return { kind: "unclear", words: `No clear difference from ${than}: ${row.estimate < 0 ? "−" : "+"}${size}.` };
  return { kind: row.verdict, words: `${size} ${row.verdict} than ${than}.` };
}

function chance({ chance: p }) {
  if (p === null) return "";
  if (p > 0.5) return "If nothing were different, noise alone would mostly show more than this.";
  const odds = p > RAREST ? `${number(1 / p, p > 0.2 ? 2 : 3)}` : `more than ${number(1 / RAREST)}`;
  return `If nothing were different, noise alone would show as much in 1 of ${odds} cases.`;
}

// The form's choices: the groups on both sides, which are known only once the campaign is.
export function offer(campaign) {
  const groups = [...campaign.groups].sort((a, b) => (b === "all") - (a === "all") || natural(a, b));
  const form = $("choose-compared");
  if (form.dataset.groups === `${campaign.name}/${groups}`) return;
  form.dataset.groups = `${campaign.name}/${groups}`;
  const { group, against } = form.elements;
  const before = [group.value, against.value];
  group.replaceChildren(...groups.map((each) => new Option(named(each), each)));
  against.replaceChildren(
    ...Object.entries(EARLIER).map(([value, words]) => new Option(words, value)),
    ...(groups.length > 1 ? groups.map((each) => new Option(named(each), `group:${each}`)) : []),
  );
  for (const [select, value] of [
    [group, before[0]],
    [against, before[1]],
  ])
    if ([...select.options].some((option) => option.value === value)) select.value = value;
}

// Ask and answer. `spanOf`: the from and to of a choice of time. What was asked first and comes late is not shown.
export async function compare(campaign, spanOf, api) {
  const chosen = new FormData($("choose-compared")),
    place = $("compared");
  const [group, against] = [chosen.get("group"), chosen.get("against")];
  if (!group || !against) return;
  if (against === `group:${group}`) {
    refresh(place, [element("p", "Choose two different groups, or another time.", "small")]);
    return;
  }
  const words = new URLSearchParams({ ...spanOf(chosen.get("when")), group, against });
  const asked = String(words);
  place.dataset.asked = asked;
  const answer = await api(`campaigns/${campaign.name}/difference?${words}`).catch((error) => ({ error }));
  if (place.dataset.asked !== asked) return;
  place.dataset.answered = asked;
  const row = answer.differences?.[0];
  if (!row) {
    const why = answer.error?.message ?? "one of the two times has no number";
    refresh(place, [element("p", `There is no answer: ${why}.`, "small")]);
    return;
  }
  const other = against.startsWith("group:") ? named(row.against_group) : EARLIER[against];
  const sized = scale(Math.max(Math.abs(row.mean), Math.abs(row.against)), campaign.unit);
  const { kind, words: sentence } = differing(row, campaign, other, sized);
  const side = (value) => {
    const shape = amount(value, Z * row.standard_error, campaign.unit, sized);
    return `${shape.value} ${shape.unit}`;
  };
  const from = (start) => day(start, campaign.time_zone);
  const times =
    row.start === row.against_start ? "" : ` (from ${from(row.start)}) and (from ${from(row.against_start)})`;
  refresh(place, [
    element("p", sentence, `verdict ${kind}`),
    element(
      "p",
      `Mean of a device in a slot${times}: ${side(row.mean)} and ${side(row.against)}. ${chance(row)} The ± is of the` +
        " difference: errors that both means share are not in it.",
      "small",
    ),
  ]);
}
