// The page. It asks the HTTP API of the same server. Every address is relative, so the page works below any path of a proxy.
// This module shows one campaign and decides what is shown. overview.js shows all campaigns; state.js says how they are.

import { aboutIt } from "./about.js";
import { certainty, compare, differing, offer, pairsOf } from "./compare.js";
import {
  $,
  ago,
  amount,
  clock,
  colour,
  date,
  day,
  drawing,
  edge,
  element,
  lasting,
  natural,
  number,
  precise,
  refresh,
  rows,
  scale,
  span,
  sure,
  time,
} from "./format.js";
import { showCampaigns } from "./overview.js";
import {
  arrived,
  dot,
  doubtful,
  drowned,
  ended,
  FEW,
  itself,
  learning,
  notice,
  notices,
  old,
  slotOf,
  standing,
  value,
  weight,
} from "./state.js";
import { addsUp, clocks, daysOff, homes, meaning, per } from "./words.js";

// The server gave no answer or, with `again`, no events; then the page asks again by itself.
class Away extends Error {
  constructor(again = false) {
    super(again ? "the server sends no news: trying again" : "the server does not answer");
  }
}

const api = async (path, options) => {
  const answer = await fetch(`api/v1/${path}`, options).catch(() => {
    throw new Away();
  });
  const value = await answer.json().catch(() => null);
  // A proxy without its server answers itself, and not in JSON.
  if (value === null && answer.status > 500) throw new Away();
  if (!answer.ok || value === null)
    throw new Error(value?.error ?? `the answer is an error (HTTP status ${answer.status})`);
  return value;
};

const AGAIN = 5000; // milliseconds after which the page asks again for events, if the browser does not

let shown = null; // the name of the campaign that is open
let news = null; // the stream of the campaign's events
let data = null; // the series of the first chosen group, with the group's losses
let overlaid = []; // [group, its series] of every chosen group
let about = null; // the campaign at a glance
let week = null; // the campaign's name, and its number of the last 7 days in words
let ends = null; // when the campaign's newest slot ends
let registered = null; // how many devices the campaign has, once an answer says so
let chart = null;
let zoom = null; // the part of the span that the chart shows: { min, max }, or null for the whole span
let thetaChart = null;
let reportsChart = null;
let against = null; // the token that every action carries

async function showAll() {
  const { campaigns } = await api("campaigns");
  showCampaigns(campaigns);
}

// --- one campaign: its state, and what people ask first

const SHOWN_NOTICES = 3;
const Z = 1.96;

function glance(campaign) {
  const fresh = about?.name !== campaign.name || about.settled !== campaign.settled;
  const moved = about?.server.state !== campaign.server.state;
  about = campaign;
  const newest = campaign.newest;
  ends = newest ? newest.start + campaign.slot_seconds : null;
  $("one-title").textContent = campaign.name;
  $("titled").textContent = campaign.server.title ?? "";
  $("titled").hidden = !campaign.server.title;
  $("what").textContent = meaning(campaign);
  $("zone").textContent = clocks([campaign]);
  const known = notices(campaign).map(notice);
  refresh($("alarms"), known.slice(0, SHOWN_NOTICES));
  $("more-alarms").hidden = known.length <= SHOWN_NOTICES;
  refresh($("more-alarms").lastElementChild, known.slice(SHOWN_NOTICES));
  spans(campaign);
  limitDay(campaign);
  chooseGroups(campaign);
  offer(campaign);
  now(campaign);
  refresh($("about"), aboutIt(campaign, quote()));
  $("guarantee").textContent = [`Guarantee: ${campaign.guarantee}.`, ...campaign.kept_by_name].join(" ");
  drawOdds(campaign.odds);
  $("api").href = `api/v1/campaigns/${campaign.name}`;
  $("topic").textContent = `${campaign.server.prefix ?? "<prefix>"}/${campaign.name}/aggregate/all/filtered`;
  drawWidgets(campaign);
  if (moved) actions().catch(() => {});
  if (fresh) answered = answers(campaign).catch(say);
}

// Shows the campaign's state now. It changes as time passes, even if no event comes.
function now(campaign) {
  const { newest, slot_seconds: slot, time_zone: zone } = campaign;
  const state = standing(campaign);
  refresh($("standing"), [dot(state)]);
  $("ended").textContent = ended(campaign);
  $("ended").hidden = !$("ended").textContent;
  $("homes").textContent = homes(campaign, registered?.name === campaign.name ? registered.devices : null);
  refresh($("state"), state.sentence && !$("alarms").childElementCount ? [element("p", state.sentence, "small")] : []);
  const { estimate, error, reason } = value(campaign, newest);
  const learns = learning(campaign);
  const made = [];
  if (reason) made.push(element("div", reason, "value words"));
  else {
    const shape = amount(estimate, error, campaign.unit);
    const line = element("div", "", weight(campaign, estimate, error));
    line.append(shape.value, element("span", ` ${shape.unit} ${shape.error}`, "unit"));
    made.push(line, element("div", `${per(campaign)}, on average`, "small"));
    const total = ofAll(campaign, estimate, error);
    if (total) made.push(element("div", total, "small"));
  }
  if (learns) {
    const bar = element("progress");
    bar.setAttribute("aria-label", "learning the range of readings");
    if (learns.share !== null) {
      bar.max = 1;
      bar.value = learns.share;
    }
    made.push(bar, element("div", learns.words, "small"));
  } else if (newest)
    made.push(
      element("div", `This slot ended ${ago(Date.now() / 1000 - newest.start - slot)}${following(campaign)}`, "small"),
      element("div", arrived(campaign, registered?.name === campaign.name ? registered.devices : null), "small"),
    );
  refresh($("latest"), made);
  const title = old(campaign) || isAway() ? "The newest number" : "Now";
  $("latest-when").textContent = newest && !learns ? `${title}, ${slotOf(newest.start, slot, zone)}` : title;
}

// Returns a slot's mean as the sum over all registered devices, in words; an energy is also given as a power.
function ofAll(campaign, estimate, error) {
  const { name, unit, slot_seconds: slot } = campaign;
  if (registered?.name !== name || !addsUp(campaign) || error === null) return "";
  const said = (factor, of) => {
    const shape = amount(factor * registered.devices * estimate, factor * registered.devices * error, of);
    return `${shape.value} ${shape.unit} ${shape.error}`;
  };
  const words = `${said(1, unit)} for all ${number(registered.devices, 9)} devices together`;
  return unit === "Wh" ? `${words}: a power of ${said(3600 / slot, "W")}` : words;
}

// Returns why there is no newer number, and when the next one is due, if a server is running that makes numbers.
function following(campaign) {
  const { newest, slot_seconds: slot, server, time_zone: zone, last_slot_ends: last } = campaign;
  const due = newest.start + (2 + server.settle_slots) * slot;
  if (server.state === "running" && server.full) return "; no newer number comes while the disk is full.";
  if (server.state !== "running" || !Number.isFinite(due) || old(campaign) || newest.start + 2 * slot > last)
    return ".";
  const now = Date.now() / 1000;
  const next = due < now ? "is due now" : `comes about ${due - now < 86400 ? clock(due, zone) : time(due, zone)}`;
  const waits = server.settle_slots
    ? `. A new number comes every ${lasting(slot)}; the server first waits ${lasting(server.settle_slots * slot)} for late reports. The`
    : `. A new number comes every ${lasting(slot)}. The`;
  return `${waits} next ${next}.`;
}

// The tiles after "now": each has a title and a selection of slots, and shows their mean, or their sum if slots add up.
const ANSWERS = [
  {
    id: "today",
    title: "Today so far",
    past: (first) => `${first}, so far`,
    when: "0",
    than: "this time a week before",
  },
  { id: "yesterday", title: "Yesterday", past: (first) => first, when: "1", than: "the same day a week before" },
  {
    id: "seven",
    title: "The last 7 days",
    past: (first) => `From ${first}, 7 days`,
    when: "7",
    than: "the 7 days before",
  },
];

// Resolves when `answers` has shown the newest data, or has failed to.
let answered = Promise.resolve();

async function answers(campaign) {
  const { name, time_zone: zone } = campaign;
  if (ends === null) return;
  // For a campaign that stopped long ago, and for a simulation, "today" is its own last day.
  const current = date(ends - 1, zone) === date(Date.now() / 1000, zone);
  const tile = async ({ id, title, past, when, than }) => {
    if (!$(id)) {
      const made = element("section", "", "tile");
      const place = element("div");
      place.id = id;
      place.append(element("div", "loading", "small"));
      made.append(element("h3"), place);
      $("answers").append(made);
    }
    const { from, to } = lastDays(when, zone);
    $(id).previousSibling.textContent = current
      ? title
      : past(typeof from === "number" ? day(from, zone) : day(Date.parse(from) / 1000, "UTC"));
    const asked = new URLSearchParams({ from, to, group: "all" });
    const series = () => api(`campaigns/${name}/estimates?${asked}&filtered=true`).catch(() => null);
    const [answer, apart, slots] = await Promise.all([
      api(`campaigns/${name}/selection?${asked}`).catch((error) => ({ selections: [], error })),
      // In its first week, a campaign has nothing to compare with.
      api(`campaigns/${name}/difference?${asked}&against=7d`).catch(() => ({ differences: [] })),
      peaks(campaign) ? series() : null,
    ]);
    if (name !== shown) return;
    const [row] = answer.selections;
    // A mean that is mostly noise may be more exact in the smoothed series.
    const more = slots ?? (row && doubtful(row.estimate, Z * row.standard_error, campaign) ? await series() : null);
    if (name !== shown) return;
    if (id === "seven") week = row ? { name, ...quoted(best(row, campaign, more), campaign, from, to) } : null;
    if (row?.devices) registered = { name, devices: row.devices };
    refresh(
      $(id),
      row
        ? answerOf(row, campaign, apart.differences[0], than, more, Boolean(slots), when === "7")
        : noAnswer(answer.error),
    );
  };
  await Promise.all([...ANSWERS.map(tile), compared()]);
  if (name !== about?.name) return;
  now(about);
  refresh($("about"), aboutIt(about, quote()));
}

// The last 7 days end with the newest slot, so that they are as long as the 7 days with which they are compared.
function lastDays(when, zone) {
  if (when !== "7") return daysOf(when, zone, ends - 1);
  return { from: Math.max(ends - 7 * 86400, about.begins), to: ends };
}
const compared = () =>
  compare(about, (when) => (when === "chart" ? chartSpan() : lastDays(when, about.time_zone)), api);

// Says why there is no number. ``refused``: the server's sentence, if it refused the request.
function noAnswer(refused) {
  const made = [element("div", "no number", "value words")];
  if (refused) made.push(element("div", refused.message, "small"));
  return made;
}

function answerOf(row, campaign, apart, than, slots, peaked, several) {
  const { sum, each, error, better } = best(row, campaign, slots);
  const sized = scale(Math.max(Math.abs(sum), error ?? 0), campaign.unit);
  const shape = amount(sum, error, campaign.unit, sized);
  if (drowned(sum, error, { offset: each * campaign.offset }))
    return [
      element("div", "cannot be told from noise", "value words"),
      element(
        "div",
        `The error, ${shape.error} ${shape.unit}, is larger than ${itself({ offset: each * campaign.offset, unit: campaign.unit })}. ${FEW}`,
        "small",
      ),
    ];
  const doubt = doubtful(sum, error, { offset: each * campaign.offset });
  const line = element("div", "", doubt ? "value doubt" : "value");
  line.append(shape.value, element("span", ` ${shape.unit} ${shape.error}`, "unit"));
  const made = [line, element("div", "per device, on average", "small")];
  if (doubt)
    made.push(
      element(
        "div",
        `Mostly noise: the error is more than half of ${itself({ offset: each * campaign.offset, unit: campaign.unit })}.`,
        "small",
      ),
    );
  if (better)
    made.push(
      element("div", "Smoothed with reports of other times, because those of this time alone tell less.", "small"),
    );
  else if (each > 1 && row.total !== null) {
    const total = amount(row.total, Z * row.total_se, campaign.unit);
    made.push(
      element(
        "div",
        `${total.value} ${total.unit} ${total.error} for all ${number(row.devices, 9)} devices together`,
        "small",
      ),
    );
  }
  if (apart) {
    const { kind, words } = differing(apart, campaign, than, sized, each);
    made.push(element("div", words, `small ${kind}`));
  }
  if (peaked) made.push(...highest(slots, campaign, several).map((words) => element("div", words, "small")));
  return made;
}

// Returns the more exact of a tile's two numbers: the one from the reports of its time alone, or the one from the
// smoothed series.
function best(row, campaign, slots) {
  const alone = summed(row, campaign);
  const smooth = smoothed(slots, row, campaign);
  const better = smooth !== null && smooth.error < alone.error;
  return { ...alone, ...(better ? smooth : {}), better };
}

const quote = () => (week?.name === about.name && week.words ? week : null);

// Returns a tile's number in words that somebody may quote, with the begin and end of its time; {} if it is only noise.
function quoted({ sum, each, error }, campaign, from, to) {
  if (drowned(sum, error, { offset: each * campaign.offset })) return {};
  const { value: mean, unit, error: after } = amount(sum, error, campaign.unit);
  return { from: time(from, campaign.time_zone), to: time(to, campaign.time_zone), words: `${mean} ${unit} ${after}` };
}

// The sum or mean of the smoothed series over the time of a tile, with an error that is never too small: neighbouring
// slots err alike, so their errors are added up. With this cautious error, the reports of that time alone are usually the
// more exact choice. The smoothed series wins where noise goes on from slot to slot, as in a stream.
function smoothed(slots, row, campaign) {
  const { estimate, low, high } = slots?.filtered ?? { estimate: [] };
  const known = estimate.map((_, i) => i).filter((i) => estimate[i] !== null && low[i] !== null);
  if (known.length < row.slots) return null;
  const mean = (of) => known.reduce((total, i) => total + of(i), 0) / known.length;
  const { each } = summed(row, campaign);
  return { sum: each * mean((i) => estimate[i]), error: each * mean((i) => (high[i] - low[i]) / 2) };
}

// The page names the highest and the lowest slot of a tile if a day has at least this many slots, and at most that many.
const PEAK_SLOTS = [4, 288];
const peaks = ({ slot_seconds: slot }) => 86400 / slot >= PEAK_SLOTS[0] && 86400 / slot <= PEAK_SLOTS[1];

// The highest and the lowest slot of a day, or the highest one of several days, as sentences, by the series that the chart
// shows.
function highest({ raw, filtered }, campaign, several) {
  const { estimate, low, high, start } = filtered?.start.length ? filtered : raw;
  const known = start.map((_, i) => i).filter((i) => estimate[i] !== null && low[i] !== null);
  if (known.length < PEAK_SLOTS[0]) return [];
  const [least, ...others] = [...known].sort((a, b) => estimate[a] - estimate[b]);
  const most = others.at(-1);
  // How much the errors of two slots have in common is unknown. If their intervals do not overlap, they differ clearly
  // in any case.
  if (low[most] <= high[least])
    return [several ? "No time stands out from the noise." : "No time of the day stands out from the noise."];
  const sized = scale(high[most], campaign.unit);
  const at = (i) => {
    const shape = amount(estimate[i], (high[i] - low[i]) / 2, campaign.unit, sized);
    const below = estimate[i] < 0 && campaign.offset >= 0 ? " (below zero only by noise)" : "";
    const on = several ? `on ${day(start[i], campaign.time_zone)} ` : "";
    return `${on}at about ${clock(start[i], campaign.time_zone)}, ${shape.value} ${shape.unit} ${shape.error}${below}`;
  };
  // Returns, in words, between which times the highest (`sign` 1) or the lowest (`sign` -1) slot may really lie: the slots
  // around slot i that do not differ clearly from it.
  const alike = (i, sign) => {
    const near = (j) =>
      known.includes(j) && sign * (estimate[i] - estimate[j]) <= Math.hypot(high[i] - low[i], high[j] - low[j]) / 2;
    let [first, last] = [i, i];
    while (near(first - 1)) first -= 1;
    while (near(last + 1)) last += 1;
    const far = several && known.some((j) => (j < first || j > last) && near(j));
    const others = far ? "; some other times are about as high" : "";
    if (first === last) return others;
    const [from, to] = [start[first], start[last] + campaign.slot_seconds].map((edge) =>
      clock(edge, campaign.time_zone),
    );
    return `; it may lie anywhere between ${from} and ${to}${others}`;
  };
  const top = `Highest ${at(most)}${alike(most, 1)}.`;
  return several ? [top] : [top, `Lowest ${at(least)}${alike(least, -1)}.`];
}

// Returns the sum over a selection's slots if slots add up, otherwise their mean; and the number of its slots.
function summed(row, campaign) {
  const each = addsUp(campaign) ? row.slots + row.absent : 1;
  return { sum: row.estimate * each, each, error: row.standard_error === null ? null : Z * each * row.standard_error };
}
const unclear = (row, campaign) => drowned(row.estimate, Z * row.standard_error, campaign);

// Draws what somebody who holds a home's reports would know: the exact odds of this campaign as bars.
function drawOdds(odds) {
  const table = element("table", "", "bars");
  const body = table.createTBody();
  for (const { of, at_most: share } of [{ of: "before", at_most: 0.5 }, ...odds]) {
    const row = body.insertRow();
    row.append(element("th", of));
    row.firstChild.scope = "row";
    row.insertCell().append(bar(share, share === 0.5 ? "raw" : share > 0.95 ? "bad" : "filtered"));
    row.insertCell().textContent = share === 0.5 ? "50 %" : sure(share);
  }
  const last = odds.at(-1);
  const words = odds.some(({ of, at_most: share }) => of === "all reports of a day" && share > 0.95)
    ? "This campaign protects single readings and not a whole day."
    : "";
  const rare = last?.delta ? `With a probability of about ${number(last.delta, 2)}, reports may tell more.` : "";
  refresh($("odds"), [table, element("p", [words, rare].filter(Boolean).join(" "), "small")]);
}

// Returns a bar whose length is a share from 0 to 1, with its error as a whisker.
function bar(share, of, error = 0) {
  const picture = drawing("svg", {
    viewBox: "0 0 100 10",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
    class: `bar ${of}`,
  });
  picture.append(
    drawing("rect", { x: 0, y: 0, width: 100, height: 10, class: "ground" }),
    drawing("rect", { x: 0, y: 0, width: Math.max(100 * share, 0.5), height: 10 }),
  );
  if (error)
    picture.append(
      drawing("rect", { x: 100 * (share - error), y: 4, width: 200 * error, height: 2, class: "whisker" }),
    );
  return picture;
}

// Shows the groups side by side, over the time that the chart shows.
async function byGroup() {
  const name = shown;
  $("by-group").parentElement.hidden = about.groups.length < 2;
  if (about.groups.length < 2 || !data) return;
  const answer = await api(`campaigns/${name}/selection?${new URLSearchParams({ ...chartSpan(), by: "group" })}`);
  if (name !== shown) return;
  tellSizes(answer.selections);
  const known = answer.selections.filter((row) => !unclear(row, about));
  const most = Math.max(...known.map((row) => Math.abs(row.estimate) + Z * row.standard_error), 0);
  const sized = scale(most, about.unit);
  const table = element("table", "", "bars");
  const body = table.createTBody();
  for (const row of answer.selections.sort((a, b) => natural(a.group, b.group))) {
    const line = body.insertRow();
    const head = element("th", row.group);
    head.scope = "row";
    line.append(head);
    if (unclear(row, about)) {
      line.insertCell();
      line.insertCell().textContent = "only noise";
      continue;
    }
    const shape = amount(row.estimate, Z * row.standard_error, about.unit, sized);
    line
      .insertCell()
      .append(
        bar(Math.abs(row.estimate) / most, row.group === "all" ? "raw" : "filtered", (Z * row.standard_error) / most),
      );
    line.insertCell().textContent = `${shape.value} ${shape.unit} ${shape.error}`;
  }
  const { from, to } = chartSpan(),
    { time_zone: zone } = about,
    said = per(about);
  const made = [
    element(
      "p",
      `${said[0].toUpperCase()}${said.slice(1)}, on average, from ${time(from, zone)} to ${time(to, zone)}. ${learnt()} ` +
        `${about.server.asks || "Whoever runs the campaign"} has decided what each group stands for.`,
      "small",
    ),
    table,
  ];
  const groups = known.filter((row) => row.group !== "all").sort((a, b) => b.estimate - a.estimate);
  if (groups.length > 1) {
    const words = groups[0].estimate > groups[1].estimate ? await ahead(groups, sized) : "";
    if (name !== shown) return;
    made.push(
      element(
        "p",
        `${words}Noise can put one group above another: to compare any two groups, see “Is it different?”.`,
        "small",
      ),
    );
  }
  refresh($("by-group"), made);
}

// Says beside each group how many devices are registered in it, if this is published.
function tellSizes(selections) {
  const sizes = new Map(selections.map((row) => [row.group, row.devices]));
  for (const label of $("groups").querySelectorAll("label")) {
    const group = label.firstChild.value,
      many = sizes.get(group);
    const devices = many ? `${number(many, 9)} ${many === 1 ? "device" : "devices"}` : "devices";
    label.childNodes[2].data = group === "all" ? ` all ${devices} ` : ` ${group}${many ? `, ${devices}` : ""} `;
  }
}

// Returns sentences that name the groups that are clearly below the highest one, and those that may be below it only by
// noise. The highest group was picked among all, so the chance of its difference is multiplied by the number of pairs
// of groups.
const NAMED = 6;
async function ahead(groups, sized) {
  const [first, ...others] = groups;
  const asked = new URLSearchParams({ ...chartSpan(), by: "group", against: `group:${first.group}` });
  const { differences } = await api(`campaigns/${shown}/difference?${asked}`).catch(() => ({ differences: [] }));
  const apart = new Map(differences.map((row) => [row.group, row]));
  const pairs = pairsOf(groups.length);
  const found = { clear: [], unclear: [] };
  for (const { group } of others) {
    const row = apart.get(group);
    if (!row || row.chance === null) continue;
    const shape = amount(Math.abs(row.estimate), Z * row.standard_error, about.unit, sized);
    const kind = certainty(row, pairs) === "clear" ? "clear" : "unclear";
    const by = kind === "clear" ? "by " : "";
    found[kind].push(`${group} (${by}${shape.value} ${shape.unit} ${shape.error})`);
  }
  const list = (kind) => {
    const more = found[kind].length - NAMED;
    return found[kind].slice(0, NAMED).join(", ") + (more > 0 ? ` and ${number(more)} more` : "");
  };
  return [
    found.clear.length
      ? `Highest: ${first.group}, clearly above ${list("clear")}.`
      : `${found.unclear.length ? "No group is clearly the highest in this time. " : ""}${first.group} has the highest number.`,
    found.unclear.length
      ? `Its lead over ${list("unclear")} may be chance: the highest of ${number(groups.length)} groups leads by some amount even if all are alike. A longer time tells more.`
      : "",
  ]
    .filter(Boolean)
    .map((words) => `${words} `)
    .join("");
}

// --- what is chosen: it is in the form, and in the address after the campaign's name, so that a link shows the same

const SPANS = [
  [60, "1 minute"],
  [600, "10 minutes"],
  [3600, "1 hour"],
  [21600, "6 hours"],
  [86400, "24 hours"],
  [172800, "48 hours"],
  [604800, "7 days"],
  [2592000, "30 days"],
  [31536000, "1 year"],
];
const PADDING = [12, 20, 8, 0]; // of both charts, so that their time axes are in line
const USUAL_SLOTS = 200; // the number of points that a chart can show clearly
const MOST_GROUPS = 4; // the number of groups that a chart can show clearly
const PALETTE = ["filtered", "second", "third", "fourth"];
const wished = () => new URLSearchParams(decodeURIComponent(location.hash.slice(1)).split("?")[1] || "");

// Makes a box for each group. The boxes are also the chart's legend: the group's colour, and its number at the cursor.
function chooseGroups(campaign) {
  const place = $("groups"),
    groups = [...campaign.groups].sort((a, b) => (b === "all") - (a === "all") || natural(a, b));
  if (place.dataset.groups === groups.join()) return;
  const before = [...place.querySelectorAll("input:checked")].map((box) => box.value);
  const wanted = (before.length ? before : (wished().get("group") ?? "all").split(",")).filter((each) =>
    groups.includes(each),
  );
  place.dataset.groups = groups.join();
  place.replaceChildren(
    element("legend", "Groups, with their newest numbers"),
    ...groups.map((group) => {
      const label = element("label"),
        box = element("input"),
        number = element("span", "", "at");
      box.type = "checkbox";
      box.name = "group";
      box.value = group;
      box.checked = (wanted.length ? wanted : ["all"]).slice(0, MOST_GROUPS).includes(group);
      label.append(box, element("span", "", "swatch"), ` ${group === "all" ? "all devices" : group} `, number);
      return label;
    }),
    ...(groups.length > MOST_GROUPS ? [element("span", "", "small")] : []),
  );
  limitGroups();
}

// A chart shows from one to `MOST_GROUPS` groups at a time. Boxes with which it would show fewer or more are disabled.
function limitGroups() {
  const boxes = [...$("groups").querySelectorAll("input")],
    chosen = chosenGroups().length;
  for (const box of boxes) box.disabled = box.checked ? chosen === 1 : chosen >= MOST_GROUPS;
  if (boxes.length > MOST_GROUPS)
    $("groups").lastElementChild.textContent =
      chosen >= MOST_GROUPS
        ? `The chart shows at most ${MOST_GROUPS} groups: untick one to choose another.`
        : `The chart shows up to ${MOST_GROUPS} groups.`;
}
const chosenGroups = () => [...$("groups").querySelectorAll("input:checked")].map((box) => box.value);

// Offers the spans that the campaign is long enough for, and that one request may ask for.
function spans(campaign) {
  const select = $("choose").elements.span;
  const slot = campaign.slot_seconds,
    most = campaign.largest_selection * slot;
  const there = ends === null ? 0 : ends - campaign.begins;
  const fit = SPANS.filter(
    ([seconds], i) => seconds >= 2 * slot && seconds <= most && (i === 0 || SPANS[i - 1][0] < there),
  );
  const key = fit.map(([seconds]) => seconds).join();
  if (select.dataset.spans === key) return;
  const before = select.options.length && select.dataset.name === campaign.name ? select.value : wished().get("span");
  const usual = fit.filter(([seconds]) => seconds <= USUAL_SLOTS * slot).at(-1)?.[0] ?? "";
  const whole = there > most ? `the newest ${number(campaign.largest_selection, 6)} slots` : "everything";
  const known = [...fit.map(([seconds]) => String(seconds)), ""];
  const chosen = before !== null && known.includes(before) ? before : String(usual);
  select.replaceChildren(...fit.map(([seconds, words]) => new Option(words, seconds)), new Option(whole, ""));
  select.value = chosen;
  select.dataset.spans = key;
  select.dataset.name = campaign.name;
}

// Labels of a time axis: the clock alone, and the day below the first label of each day, so that no two collide.
function moments(zone) {
  return (_, splits, __, ___, step) => {
    let before = "";
    return splits.map((seconds) => {
      const date = day(seconds, zone),
        fresh = date !== before;
      before = date;
      if (step >= 86400) return date;
      const words = (step < 60 ? precise : clock)(seconds, zone);
      return fresh ? `${words}\n${date}` : words;
    });
  };
}

// Width in pixels that has room for numbers of five digits beside an axis's title.
const BESIDE = 60;

const axis = () => ({
  stroke: colour("ink"),
  grid: { stroke: colour("line"), width: 1 },
  ticks: { stroke: colour("line") },
});

function band(high, low, of) {
  return { series: [high, low], fill: `color-mix(in srgb, ${colour(of)} 20%, transparent)` };
}

// Returns every slot from the first to the last, including those without a number, so that the chart shows these as gaps.
function whole(raw, seconds) {
  const at = new Map(raw.start.map((start, i) => [start, i]));
  const starts = [];
  if (raw.start.length) for (let start = raw.start[0]; start <= raw.start.at(-1); start += seconds) starts.push(start);
  const column = (name) => starts.map((start) => (at.has(start) ? raw[name][at.get(start)] : null));
  const made = Object.fromEntries(Object.keys(raw).map((name) => [name, column(name)]));
  return { ...made, start: starts, slot: starts.map((start) => start / seconds) };
}

// Shades, behind the lines, the slots of threshold rounds, in which the range is learnt and nothing is estimated.
function shadeLearning(plot) {
  const { kind, start } = data.raw;
  const { ctx } = plot,
    { top, height } = plot.bbox;
  ctx.save();
  ctx.fillStyle = `color-mix(in srgb, ${colour("warn")} 14%, transparent)`;
  ctx.font = `${12 * devicePixelRatio}px system-ui`;
  for (let i = 0; i < kind.length; i += 1) {
    if (kind[i] !== "model" || kind[i - 1] === "model") continue;
    let end = i;
    while (kind[end + 1] === "model") end += 1;
    const left = plot.valToPos(start[i], "x", true),
      right = plot.valToPos(start[end] + about.slot_seconds, "x", true);
    ctx.fillRect(left, top, right - left, height);
    ctx.save();
    ctx.fillStyle = colour("warn");
    const words = [
      `learning the range, until ${time(start[end] + about.slot_seconds, data.time_zone)}`,
      "learning the range",
      "learning",
    ].find((each) => right - left > ctx.measureText(each).width + 8);
    if (words) ctx.fillText(words, left + 4, top + height / 2);
    ctx.restore();
  }
  ctx.restore();
}

// Returns the columns of a series at the chart's slots.
function aligned(series, names, starts) {
  const at = new Map(series.start.map((start, i) => [start, i]));
  return names.map((name) => starts.map((start) => (at.has(start) ? series[name][at.get(start)] : null)));
}

function draw() {
  const { raw, unit, time_zone: zone } = data;
  const alone = new FormData($("choose")).has("alone");
  const columns = [raw.start];
  const series = [{}],
    bands = [];
  const add = ([mean, low, high], of, line) => {
    const thin = { stroke: colour(of), width: 0, points: { show: false } };
    series.push({ stroke: colour(of), ...line }, { ...thin }, { ...thin });
    bands.push(band(series.length - 1, series.length - 2, of));
    columns.push(mean, low, high);
  };
  const names = ["estimate", "low", "high"];
  overlaid.forEach(([, answer], i) => {
    // If there is no smoothed series, the raw one is shown.
    const smooth = answer.filtered?.start.length ? answer.filtered : answer.raw;
    add(aligned(smooth, names, raw.start), PALETTE[i], {
      width: 2.5,
      points: { show: smooth === answer.raw, size: 4 },
    });
  });
  if (alone) add([raw.estimate, raw.low, raw.high], "raw", { width: 1, points: { show: true, size: 4 } });
  const place = $("chart");
  const options = {
    width: place.clientWidth,
    height: Math.max(220, Math.min(420, window.innerHeight * 0.5)),
    series,
    bands,
    legend: { show: false },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone),
    padding: PADDING,
    axes: [
      { ...axis(), space: 70, values: moments(zone) },
      { ...axis(), label: unit, labelFont: "14px system-ui", size: BESIDE },
    ],
    hooks: {
      setCursor: [
        (plot) => {
          values(plot.cursor.idx);
          detail(plot.cursor.idx);
        },
      ],
      drawClear: [shadeLearning],
      setScale: [
        (plot, key) => {
          const { min, max } = plot.scales.x,
            all = plot.data[0];
          if (key !== "x" || min === null || !all.length) return;
          const before = JSON.stringify(zoom);
          zoom = min <= all[0] && max >= all.at(-1) ? null : { min, max };
          $("zoom-out").hidden = zoom === null;
          if (JSON.stringify(zoom) !== before) {
            select().catch(say);
            byGroup().catch(say);
          }
        },
      ],
    },
  };
  if (chart) chart.destroy();
  // If new data arrive while somebody looks at a part of the chart, that part stays.
  const part = zoom;
  chart = new uPlot(options, columns, place);
  if (part) chart.setScale("x", part);
  values(null);
  drawReports(raw, zone, place.clientWidth);
  const first = overlaid[0][0];
  const smooth = overlaid.some(([, answer]) => answer.filtered?.start.length);
  $("chart-caption").textContent =
    `Mean of what a device measured in each ${lasting(about.slot_seconds)}, in ${unit}, ${smooth ? "smoothed over time (filtered)" : "each slot alone (raw)"}. Times are those of ${zone}. ` +
    "95 times in 100 the true mean lies within the band. " +
    (noisy(overlaid[0][1])
      ? `In most slots, the error is larger than ${itself(about)}: the line${overlaid.length > 1 ? ` of ${first === "all" ? "all devices" : first}` : ""} cannot be told from noise. `
      : "") +
    (unit === "Wh" && about.slot_seconds !== 3600
      ? `100 Wh in ${lasting(about.slot_seconds)} are a power of ${number(360_000 / about.slot_seconds, 3)} W. `
      : "") +
    (alone
      ? `Grey: each slot alone (raw)${overlaid.length > 1 ? `, of ${first === "all" ? "all devices" : first}` : ""}. `
      : "") +
    (raw.kind.includes("model")
      ? "Shaded: threshold rounds, in which the range of readings (θ) is learnt and no mean is estimated."
      : "");
  $("filter").textContent = data.filter ? `${data.filter[0].toUpperCase()}${data.filter.slice(1)}.` : "";
}

// True if most numbers of a series are below their errors.
function noisy({ raw, filtered }) {
  const { estimate, low, high } = filtered?.start.length ? filtered : raw;
  const known = estimate.map((_, i) => i).filter((i) => estimate[i] !== null && low[i] !== null);
  return 2 * known.filter((i) => drowned(estimate[i], (high[i] - low[i]) / 2, about)).length > known.length;
}

// Shows the chosen groups' numbers beside their names: those at a slot, or the newest ones.
function values(i) {
  const legend = $("groups").querySelector("legend");
  const start = i === null || i === undefined ? undefined : data.raw.start[i];
  if (legend)
    legend.textContent =
      start === undefined
        ? "Groups, with their newest numbers"
        : `Groups, with their numbers of ${day(start, data.time_zone)}, ${span(start, about.slot_seconds, data.time_zone)}`;
  const boxes = new Map([...$("groups").querySelectorAll("label")].map((label) => [label.firstChild.value, label]));
  for (const label of boxes.values()) {
    label.lastChild.textContent = "";
    label.style.removeProperty("--of");
  }
  const shown = overlaid.map(([group], n) => {
    const [mean, low, high] = [1, 2, 3].map((k) => chart.data[3 * n + k]);
    const at = i ?? mean.findLastIndex((each) => each !== null);
    boxes.get(group)?.style.setProperty("--of", `var(--${PALETTE[n]})`);
    const there = at >= 0 && mean[at] !== null && mean[at] !== undefined;
    const error = there && high[at] !== null ? (high[at] - low[at]) / 2 : null;
    return { label: boxes.get(group), there, value: mean[at], error };
  });
  const known = shown.filter(({ there, value, error }) => there && !drowned(value, error, about));
  const sized = scale(
    Math.max(...known.map(({ value, error }) => Math.max(Math.abs(value), error ?? 0)), 0),
    data.unit,
  );
  for (const each of shown.filter(({ label, there }) => label && there)) {
    const shape = amount(each.value, each.error, data.unit, sized);
    each.label.lastChild.textContent = known.includes(each)
      ? `${shape.value} ${shape.unit} ${shape.error}`
      : "only noise";
  }
}

// Draws a time line of the number of reports in each slot. Late, lost and refused ones are drawn on top. A slot whose number of
// reports is unknown is a gap.
function drawReports(raw, zone, width) {
  const sent = raw.start.map((_, i) => (raw.reports[i] === null ? null : raw.reports[i] + raw.cohort[i]));
  const { losses } = data;
  const at = new Map(losses.start.map((start, i) => [start, i]));
  const over = (name, below) =>
    raw.start.map((start, i) => {
      const n = at.has(start) ? losses[name][at.get(start)] : null;
      return n ? n + (below[i] ?? 0) : null;
    });
  const late = over("late", sent),
    lost = over(
      "lost",
      late.map((n, i) => n ?? sent[i]),
    );
  const refused = over(
    "refused",
    lost.map((n, i) => n ?? late[i] ?? sent[i]),
  );
  // Strangers can send any number of deliveries that are refused. The axis ignores these, so that the reports stay
  // large enough to see.
  const most = Math.max(1, ...lost, ...late, ...sent);
  const bars = (of) => ({
    width: 0,
    fill: colour(of),
    paths: uPlot.paths.bars({ size: [0.9] }),
    points: { show: false },
  });
  if (reportsChart) reportsChart.destroy();
  reportsChart = new uPlot(
    {
      width,
      height: 96,
      padding: PADDING,
      legend: { show: false },
      cursor: { show: false },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone),
      axes: [
        { ...axis(), show: false },
        { ...axis(), label: "reports", labelFont: "14px system-ui", size: BESIDE, space: 20 },
      ],
      scales: { y: { range: (_, _low, high) => [0, Math.max(Math.min(high, 1.5 * most), 1)] } },
      series: [{}, bars("refused"), bars("bad"), bars("warn"), bars("raw")],
    },
    [raw.start, refused, lost, late, sent],
    $("reports"),
  );
  const absent = sent.filter((n) => n === null).length;
  const sum = (name) => losses[name].reduce((total, n) => total + (n ?? 0), 0);
  const some = (n, one, several) => `${number(n, 9)} ${n === 1 ? one : several}`;
  const words = [`Reports in each slot.`];
  const usual = raw.start.map((_, i) => i).filter((i) => raw.kind[i] !== null && raw.kind[i] !== "model");
  const total = (of) => usual.reduce((all, i) => all + (of[i] ?? 0), 0);
  const share = total(raw.cohort) / Math.max(total(raw.cohort) + total(raw.reports), 1);
  if (share > 0)
    words.push(
      `About ${number(100 * share, 1)} % of them only help to learn the range of readings (θ): no mean contains them.`,
    );
  if (absent)
    words.push(
      `${number(absent, 6)} of ${number(sent.length, 6)} slots ${absent === 1 ? "shows" : "show"} no reports: too few devices reported, or their number may not be published.`,
    );
  if (sum("late")) words.push(`On top: ${some(sum("late"), "report", "reports")} came too late.`);
  if (sum("lost"))
    words.push(
      `On top: ${some(sum("lost"), "report was", "reports were")} lost. Each is drawn at the slot whose report showed the loss.`,
    );
  if (sum("refused"))
    words.push(
      `At the very top, by time of arrival: ${some(sum("refused"), "delivery was", "deliveries were")} refused.`,
    );
  $("reports-caption").textContent = words.join(" ");
}

// Says from when to when the range of readings was learnt, so that there is no mean; "" if it was learnt outside the
// time of the chart.
function learnt() {
  const { kind, start } = data.raw;
  const known = start.filter((_, i) => kind[i] === "model");
  if (!known.length) return "";
  const [from, to] = [known[0], known.at(-1) + about.slot_seconds].map((at) => time(at, data.time_zone));
  return `From ${from} to ${to} the range of readings was learnt: there is no mean of that time.`;
}

function tabulateGaps() {
  const place = $("losses").lastElementChild,
    known = data.gaps.slice(-500).reverse(),
    learning = learnt();
  place.replaceChildren(
    learning ? element("p", learning, "small") : "",
    known.length
      ? rows(
          known.map((gap) => [
            edge(gap.start, about.slot_seconds, data.time_zone),
            edge(gap.end, about.slot_seconds, data.time_zone),
            gap.slots,
            gap.empty,
            gap.late ?? "–",
            gap.lost ?? "–",
            gap.refused ?? "–",
          ]),
          ["from", "to", "slots", "without a number", "late", "lost", "refused meanwhile"],
        )
      : element(
          "p",
          data.losses.late.includes(null)
            ? `Each ${learning ? "other slot" : "slot"} of this time has a number. Late and lost reports of this group are not published.`
            : "No report was late or lost in this time. Homes that are switched off, paused or gone make no report, and do not count here.",
          "small",
        ),
  );
}

function tabulateRefusals() {
  const { slot, start, reason, deliveries } = data.refusals;
  const order = slot
    .map((_, i) => i)
    .reverse()
    .slice(0, 500);
  $("refusals").lastElementChild.replaceChildren(
    order.length
      ? rows(
          order.map((i) => [
            edge(start[i], about.slot_seconds, data.time_zone),
            number(deliveries[i], 9),
            data.meanings[reason[i]] ?? reason[i],
          ]),
          ["arrived from", "deliveries", "refused because"],
        )
      : element(
          "p",
          data.losses.refused.includes(null)
            ? "Refusals are known for all devices together only."
            : "No delivery was refused in this time.",
          "small",
        ),
  );
}

function detail(i) {
  const raw = data?.raw;
  if (i === null || i === undefined || !raw) return;
  const words = [
    `${date(raw.start[i], data.time_zone)}, ${span(raw.start[i], about.slot_seconds, data.time_zone)} (slot ${raw.slot[i]})`,
  ];
  if (raw.kind[i] === null || raw.kind[i] === "model") {
    words.push(
      raw.kind[i] === null
        ? "no number: too few devices reported, or it may not be published"
        : `a threshold round: the range of readings is learnt from ${raw.cohort[i]} reports, and no mean is estimated`,
    );
    $("slot").textContent = words.join("; ");
    return;
  }
  words.push(`alone (raw): ${number(raw.estimate[i])} ${data.unit}`);
  if (raw.standard_error[i] !== null) {
    words.push(`95 % interval: ${number(raw.low[i])} to ${number(raw.high[i])}`);
    const error = Z * raw.standard_error[i];
    const total =
      overlaid[0][0] === "all" && !drowned(raw.estimate[i], error, about) && ofAll(about, raw.estimate[i], error);
    if (total) words.push(total);
  }
  if (raw.truncated_mean[i] !== raw.estimate[i] && raw.truncated_se[i] !== null) {
    words.push(
      `mean of readings truncated at θ = ${number(raw.theta[i])}: ${number(raw.truncated_mean[i])} ± ${number(Z * raw.truncated_se[i], 2)}`,
    );
  }
  words.push(`reports in the mean: ${raw.reports[i]}, and only for the threshold: ${raw.cohort[i]}`);
  if (raw.manipulation[i] !== null)
    words.push(`1 % of false reports could move the mean by up to ${number(raw.manipulation[i])} ${data.unit}`);
  $("slot").textContent = words.join("; ");
}

function tabulate() {
  const { raw } = data;
  const order = raw.start
    .map((_, i) => i)
    .reverse()
    .slice(0, 500);
  const smooth = data.filtered?.start.length;
  $("table").lastElementChild.replaceChildren(
    smooth
      ? element(
          "p",
          "These numbers are from each slot's own reports only. The numbers above are smoothed with the slots around, so the same slot" +
            " has another number there.",
          "small",
        )
      : "",
    rows(
      order.map((i) => [
        edge(raw.start[i], about.slot_seconds, data.time_zone),
        raw.kind[i] === "model" ? "learning" : raw.kind[i] === null ? "no number" : number(raw.estimate[i]),
        number(raw.low[i]),
        number(raw.high[i]),
        (raw.kind[i] === "model" ? 0 : raw.reports[i]) ?? "–",
        raw.cohort[i] ?? "–",
      ]),
      [
        "slot",
        `mean of the slot alone, ${data.unit}`,
        "95 % from",
        "to",
        "reports in the mean",
        "reports for the range",
      ],
    ),
  );
}

const selection = (group) => {
  const words = new URLSearchParams({ group });
  // The span ends with the newest slot, so that a campaign that stopped long ago is still shown.
  // It is at most as long as one request may ask for, however long ago the campaign began.
  if (about && ends) {
    const most = about.largest_selection * about.slot_seconds;
    words.set("from", Math.max(ends - Math.min(new FormData($("choose")).get("span") || most, most), about.begins, 0));
  }
  words.set("filtered", "true");
  return words;
};

// Returns from and to of the part that the chart shows.
function chartSpan() {
  const { min, max } = zoom ?? { min: data.raw.start[0] ?? 0, max: data.raw.start.at(-1) ?? 0 };
  return { from: Math.floor(min), to: Math.ceil(max) + about.slot_seconds };
}

// Returns from and to, as the API takes them, of a choice such as "yesterday", by the campaign's calendar at a moment.
function daysOf(when, zone, seconds = Date.now() / 1000) {
  const [y, m, d] = new Intl.DateTimeFormat("sv-SE", { timeZone: zone })
    .format(seconds * 1000)
    .split("-")
    .map(Number);
  const day = (back) => new Date(Date.UTC(y, m - 1, d - back));
  const words = (back) => day(back).toISOString().slice(0, 10);
  if (when === "week") {
    const monday = (day(0).getUTCDay() + 6) % 7;
    return { from: words(monday + 7), to: words(monday) };
  }
  return { from: words(Number(when)), to: words(when === "1" ? 0 : -1) };
}

// A selection's day is one of the campaign's days; at first the newest.
function limitDay({ name, begins, time_zone: zone }) {
  const field = $("choose-selection").elements.day;
  const iso = (seconds) => new Intl.DateTimeFormat("sv-SE", { timeZone: zone }).format(seconds * 1000);
  [field.min, field.max] = [iso(begins), iso((ends ?? begins + 1) - 1)];
  if (field.dataset.name !== name) field.value = field.max;
  field.dataset.name = name;
}

// Returns from and to of a day such as 2027-01-17.
const oneDay = (from) => ({ from, to: new Date(Date.parse(from) + 86_400_000).toISOString().slice(0, 10) });

const ofOne = ({ estimate, standard_error: error, slots, absent }, unit) =>
  amount((slots + absent) * estimate, Z * (slots + absent) * error, unit);

async function select() {
  if (!$("selection").open || !data) return;
  const name = shown,
    chosen = new FormData($("choose-selection"));
  if (!$("choose-selection").reportValidity()) return;
  const when = chosen.get("when");
  $("which-day").hidden = when !== "day";
  // The last 7 days are those of the tile above.
  const choices = { chart: chartSpan, day: () => oneDay(chosen.get("day")), 7: () => lastDays("7", about.time_zone) };
  const words = new URLSearchParams(choices[when]?.() ?? daysOf(when, about.time_zone));
  words.set("by", "group");
  if (chosen.get("begin") !== "00:00" || chosen.get("end") !== "24:00")
    words.set("between", `${chosen.get("begin")}-${chosen.get("end")}`);
  if (chosen.get("days")) words.set("days", chosen.get("days"));
  const place = $("selected"),
    asked = String(words);
  place.dataset.asked = asked; // if the answer to an older request comes later, it is not shown
  try {
    const answer = await api(`campaigns/${name}/selection?${words}`);
    if (name !== shown || place.dataset.asked !== asked) return;
    place.dataset.answered = asked;
    // If slots add up: the sum of one device over all these slots. Like the total of all devices, it includes slots
    // without a number.
    const whole = addsUp(about) ? ["one device, whole time"] : [];
    const slot = lasting(about.slot_seconds);
    const heads = [
      "group",
      `mean of ${slot}`,
      "total of all",
      "devices",
      `slots of ${slot}`,
      "slots without a number",
      ...whole,
    ];
    const shaped = ({ value, unit, error }) => `${value} ${unit} ${error}`;
    const clear = answer.selections.filter((row) => !unclear(row, about));
    const most = (of) => Math.max(...clear.map((row) => Math.abs(row[of] ?? 0)), 0);
    const [sized, sizedTotal] = [scale(most("estimate"), answer.unit), scale(most("total"), answer.unit)];
    const uncounted = answer.selections.filter((row) => row.devices === null).map((row) => row.group);
    place.replaceChildren(
      answer.selections.length
        ? rows(
            answer.selections
              .sort((a, b) => natural(a.group, b.group))
              .map((row) => {
                const hidden = unclear(row, about);
                return [
                  row.group,
                  hidden ? "only noise" : shaped(amount(row.estimate, Z * row.standard_error, answer.unit, sized)),
                  hidden || row.total === null
                    ? "–"
                    : shaped(amount(row.total, Z * row.total_se, answer.unit, sizedTotal)),
                  row.devices ?? "–",
                  row.slots,
                  row.absent,
                  ...whole.map(() => (hidden ? "–" : shaped(ofOne(row, answer.unit)))),
                ];
              }),
            heads,
          )
        : element(
            "p",
            "No slot of this time has a number. Possible reasons: the time has not come yet, too few devices reported, the number may not be published, or the range was being learnt.",
            "small",
          ),
      chosen.get("days") ? element("p", daysOff(about), "small") : "",
      uncounted.length
        ? element(
            "p",
            uncounted.includes("all")
              ? "There is no total, because the number of devices is not known here, or may not be published."
              : "A group whose number of devices is not published has no total: a small number could reveal whether a home takes part.",
            "small",
          )
        : "",
    );
  } catch (error) {
    place.replaceChildren(element("p", error.message, "small"));
  }
}

async function load() {
  const name = shown,
    groups = chosenGroups();
  if (!groups.length) return;
  const words = selection(groups[0]);
  refresh(
    $("downloads"),
    about.formats.flatMap((format) => {
      const link = element("a", format);
      link.download = "";
      link.href = `api/v1/campaigns/${name}/download?${words}&format=${format}`;
      return [link, new Text(" ")];
    }),
  );
  // A file has at most `largest_selection` rows. If all groups together have more, the file has the chosen group alone.
  const slots = (ends - words.get("from")) / about.slot_seconds;
  const means = new URLSearchParams([...words, ["of", "means"]]);
  if (slots * about.groups.length <= about.largest_selection) {
    means.delete("group");
    means.set("by", "group");
  }
  $("means-csv").href = `api/v1/campaigns/${name}/download?${means}`;
  const where = new URLSearchParams([...words].filter(([key]) => key !== "filtered"));
  $("losses-csv").href = `api/v1/campaigns/${name}/download?${where}&of=losses`;
  $("refusals-csv").href = `api/v1/campaigns/${name}/download?${where}&of=refusals`;
  const [{ losses, gaps, refusals, meanings }, ...series] = await Promise.all([
    api(`campaigns/${name}/losses?${where}`),
    ...groups.map((group) => api(`campaigns/${name}/estimates?${selection(group)}`)),
  ]);
  if (name !== shown) return;
  overlaid = groups.map((group, i) => [group, series[i]]);
  data = { ...series[0], losses, gaps, refusals, meanings, raw: whole(series[0].raw, about.slot_seconds) };
  const before = performance.now();
  draw();
  performance.measure("undertone-draw", { start: before, end: performance.now() });
  if ($("table").open) tabulate();
  if ($("losses").open) tabulateGaps();
  if ($("refusals").open) tabulateRefusals();
  await Promise.all([answered, select(), byGroup()]);
  if (name === shown) ready();
}

// Returns when a block of the cycle begins. If the cycle is a day, this is a time of day.
const begins = (first, { cycle, slot_seconds: seconds, time_zone: zone }, epoch) =>
  cycle * seconds === 86400 ? clock(epoch - (epoch % 86400) + first * seconds, zone) : `slot ${first} of ${cycle}`;

// --- widgets: the sections below the chart, in the order of WIDGETS. A widget is a function that fills its place on the
// page from the campaign's summary (`summary` in web/api.py). It is called at first and whenever the campaign has news.

const OUTCOMES = { received: "all deliveries", counted: "counted as reports" };

function deliveries(place, campaign) {
  const late = campaign.unpublished;
  const share = number((100 * late) / Math.max(campaign.outcomes.counted || 0, late, 1), 2);
  place.replaceChildren(
    rows([
      ...Object.entries(campaign.outcomes)
        .filter(([, n]) => n)
        .sort((a, b) => b[1] - a[1])
        .map(([name, n]) => [OUTCOMES[name] ?? name, number(n, 12)]),
      ...(late ? [["counted too late to publish", `${number(late, 12)} (${share} %)`]] : []),
    ]),
  );
}

function devices(place, campaign) {
  const groups = Object.entries(campaign.server.devices || {}).sort(
    ([a], [b]) => (b === "all") - (a === "all") || natural(a, b),
  );
  place.replaceChildren(
    groups.length
      ? rows(
          groups.map(([group, of]) => [group, of.reporting, of.silent, of.lost, of.conflicting].map((v) => v ?? "–")),
          ["group", "reporting", "silent", "lost", "conflicting"],
        )
      : element(
          "p",
          campaign.server.state
            ? "There is no count of the devices: the server makes one while the campaign runs."
            : "This page reads stored results. Only a running server knows which devices report.",
          "small",
        ),
  );
  if (groups.length)
    place.append(
      element(
        "p",
        "Reporting and silent count devices; lost and conflicting count reports. Silent: no report for the slot named under the newest number. Lost: did not come, or were refused. Conflicting: reports that" +
          " contradict an earlier one of the same device. The operator finds conflicting devices in the server's log, and silent ones by" +
          ` undertone devices list --home HOME --campaign ${campaign.name} --silent 12h. If no device reports, the top of this page says so, and what to do.`,
        "small",
      ),
    );
}

async function threshold(place, campaign) {
  const name = campaign.name;
  if (!place.childElementCount) {
    const [picture, words, blocks] = [element("div"), element("p"), element("div")];
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", "the threshold θ over time");
    place.append(picture, words, blocks);
  }
  const [picture, words, blocks] = place.children;
  const answer = await api(`campaigns/${name}/epochs`);
  const { epochs, unit } = answer;
  const known = epochs.filter((epoch) => epoch.ranges.length);
  if (name !== shown) return;
  if (thetaChart) thetaChart.destroy();
  thetaChart = null;
  picture.replaceChildren();
  blocks.replaceChildren();
  const last = known.at(-1);
  const many = last?.ranges.length > 1;
  words.textContent = last
    ? `A reading above the threshold θ counts as θ. This lowers the noise, and also the mean. So an estimate of what is cut off is added to the mean or, if the campaign works as the papers (as_papers), only to the ±. Since ${time(last.epoch, answer.time_zone)}, θ ${many ? "depends on the slot of the cycle" : `is ${number(last.theta)} ${unit}`}.`
    : "Devices will cut off readings above a threshold θ: a smaller θ needs less noise. θ is not chosen yet; it is chosen after the threshold rounds.";
  if (!known.length) return;
  if (many) {
    blocks.replaceChildren(
      rows(
        last.ranges.map(([first, , theta]) => [begins(first, answer, last.epoch), number(theta)]),
        ["from", `θ, ${unit}`],
      ),
    );
  }
  const end = Math.max(ends ?? 0, last.epoch + 1);
  const each = (pick) => [...known, last].map((epoch) => pick(...epoch.ranges.map(([, , theta]) => theta)));
  const line = { stroke: colour("filtered"), width: 2, paths: uPlot.paths.stepped({ align: 1 }) };
  // The lines of the highest and the lowest block. If there is only one block, they are the same.
  thetaChart = new uPlot(
    {
      width: picture.clientWidth || 260,
      height: 140,
      legend: { show: false },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), answer.time_zone),
      axes: [
        { ...axis(), space: 70, values: moments(answer.time_zone) },
        { ...axis(), size: BESIDE },
      ],
      series: [{}, { ...line }, { ...line }],
      bands: [band(1, 2, "filtered")],
      scales: { y: { range: (_, _low, high) => [0, high * 1.1] } },
    },
    [[...known.map((epoch) => epoch.epoch), end], each(Math.max), each(Math.min)],
    picture,
  );
}

// Fills in a distribution's place on the page with a button. The server may take long for a distribution, so it is
// computed only if somebody presses the button.
function distribution(place, campaign) {
  if (place.childElementCount) return;
  const [button, answer] = [element("button", "How far apart are the readings?"), element("div")];
  button.onclick = () => quantiles(answer);
  place.append(
    element(
      "p",
      "Shows the values below which a tenth, half and nine tenths of the readings are (quantiles, from a model). This counts" +
        ` readings of all homes and times, and not homes: a home has a new reading every ${lasting(campaign.slot_seconds)}, now small, now` +
        " large. This page does not tell what share of the readings is above a given value.",
      "small",
    ),
    button,
    answer,
  );
}
const SHARES = new Map([
  [0.1, "a tenth"],
  [0.5, "half"],
  [0.9, "nine tenths"],
]);

// Says that a row of quantiles is over a part of a cycle, such as a day that has just begun. `from`: where the rows begin.
function part({ start }, from) {
  const whole = about.cycle * about.slot_seconds,
    there = Math.min(start + whole, ends) - Math.max(start, from);
  if (there >= whole) return "";
  return `, ${lasting(there)} only, a part of ${whole === 86400 ? "a day" : lasting(whole)}`;
}

async function quantiles(place) {
  const name = shown;
  const words = selection("all");
  words.delete("group");
  words.delete("filtered");
  place.replaceChildren(element("p", "This takes some seconds.", "small"));
  try {
    const answer = await api(`campaigns/${name}/quantiles?${words}`);
    const shown = answer.quantiles.slice(-9);
    const sized = scale(Math.max(...shown.map((row) => Math.abs(row.high))), answer.unit);
    const shaped = (value) => number(value / sized[0], 3);
    place.replaceChildren(
      rows(
        shown.map((row) => [
          edge(row.start, about.slot_seconds, about.time_zone) + part(row, Number(words.get("from") ?? row.start)),
          `${SHARES.get(row.share)} of the readings are below`,
          `${shaped(row.value)} ${sized[1]}`,
          `${shaped(row.low)} to ${shaped(row.high)}`,
        ]),
        ["from", "how many", "value", "90 times in 100 between"],
      ),
      element(
        "p",
        "Here “between” holds 90 times in 100; the ± elsewhere on this page holds 95 times in 100.",
        "small",
      ),
    );
  } catch (error) {
    place.replaceChildren(element("p", error.message, "small"));
  }
}

const WIDGETS = [
  { id: "theta", title: "Range of readings (threshold θ)", show: threshold },
  { id: "devices", title: "Devices", show: devices },
  { id: "outcomes", title: "Deliveries", show: deliveries },
  { id: "quantiles", title: "Small and large readings", show: distribution },
];

function drawWidgets(campaign) {
  for (const { id, title, show } of WIDGETS) {
    if (!$(id)) {
      const section = element("section");
      const place = element("div");
      place.id = id;
      section.append(element("h3", title), place);
      $("widgets").append(section);
    }
    (async () => show($(id), campaign))().catch(say);
  }
}

// Shows what is below the charts. It is hidden until everything above is there, so that nothing moves while somebody reads.
const ready = () => $("one").removeAttribute("aria-busy");

function showOne(name) {
  const fresh = name !== shown;
  shown = name;
  if (!fresh) return;
  $("one").setAttribute("aria-busy", "true");
  news?.close();
  about = data = zoom = null;
  // The data are asked for after the events have begun, so that nothing is missed, even if the server was away.
  const ask = () =>
    api(`campaigns/${name}`)
      .then((campaign) => {
        if (name !== shown) return;
        glance(campaign);
        return load().then(actions);
      })
      .catch((error) => {
        if (name === shown) ready();
        say(error);
      });
  const listen = () => {
    const events = new EventSource(`api/v1/campaigns/${name}/events`);
    news = events;
    events.addEventListener("campaign", (event) => {
      glance(JSON.parse(event.data));
      load().catch(say);
    });
    events.onopen = () => {
      link("connected");
      ask();
    };
    events.onerror = () => {
      say(new Away(true));
      if (!data) ask();
      // The browser does not ask again if it got an answer other than events, such as that of a proxy without its server.
      if (events.readyState === EventSource.CLOSED)
        setTimeout(() => {
          if (news === events && name === shown) listen();
        }, AGAIN);
    };
  };
  listen();
  $("widgets").replaceChildren();
  for (const { id } of ANSWERS) $(id)?.parentElement.remove();
  delete $("choose").elements.span.dataset.spans;
  delete $("groups").dataset.groups;
  $("groups").replaceChildren();
  if (wished().has("alone")) $("choose").elements.alone.checked = wished().get("alone") === "true";
}

// While the server is away, what the page says of the present is faded, because it is from the server's last answer.
function link(words, lost = false, away = false) {
  $("link").textContent = words;
  $("link").className = lost ? "lost" : "";
  document.body.classList.toggle("away", away);
  if (about) now(about);
}
const say = (error) => link(error.message, true, error instanceof Away);
const isAway = () => document.body.classList.contains("away");

// --- actions that the server and the campaign's state allow

const APPLIES = {
  pause: ({ state }) => ["running", "choosing", "starting"].includes(state),
  resume: ({ state }) => state === "paused",
  retire: ({ state }) => state !== "retired",
  revoke: ({ state }) => state !== "retired",
};

async function actions() {
  const { actions: known, token } = await api("session");
  $("login").hidden = !known.length || Boolean(token);
  $("logout").hidden = !token;
  against = token || null;
  const useful = (token && shown && about ? known : []).filter((name) => APPLIES[name]?.(about.server) ?? true);
  $("actions").hidden = !useful.length;
  $("actions").replaceChildren(
    ...useful.map((name) => {
      const button = element("button", name === "revoke" ? "revoke a device" : `${name} ${shown ?? ""}`);
      button.onclick = () => {
        const device = name === "revoke" ? prompt(`Name the device of ${shown} to revoke. This cannot be undone.`) : "";
        if (name === "revoke" ? !device : !confirm(`Really ${name} ${shown}?`)) return;
        api(`campaigns/${shown}/actions/${name}`, {
          method: "POST",
          headers: { "x-undertone-token": against },
          body: JSON.stringify({ device: device.trim() }),
        })
          .then(({ done }) => link(done))
          .catch(say);
      };
      return button;
    }),
  );
}

// --- what happens when somebody uses a control, or the address changes

function route() {
  const name = decodeURIComponent(location.hash.slice(1)).split("?")[0];
  if (name === "main") return; // this is the link that skips the header
  const one = Boolean(name);
  $("all").hidden = one;
  $("one").hidden = !one;
  document.title = one ? `${name} – Undertone` : "Undertone";
  if (one) showOne(name);
  else {
    shown = null;
    news?.close();
    showAll()
      .then(() => link(""))
      .catch(say);
  }
  actions().catch(() => {});
}
addEventListener("hashchange", route);
addEventListener("resize", () => data && draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (data) {
    draw();
    drawWidgets(about);
  }
});
matchMedia("print").addEventListener("change", () => {
  if (data) draw();
});
$("choose").addEventListener("change", ({ target }) => {
  const chosen = new FormData($("choose"));
  limitGroups();
  const words = new URLSearchParams({
    group: chosenGroups().join(),
    span: chosen.get("span") ?? "",
    alone: String(chosen.has("alone")),
  });
  history.replaceState(null, "", `#${shown}?${words}`);
  if (target.name === "span") zoom = null;
  load().catch(say);
});
$("table").addEventListener("toggle", () => data && tabulate());
$("zoom-out").addEventListener("click", () => {
  zoom = null;
  $("zoom-out").hidden = true;
  draw();
  select().catch(say);
  byGroup().catch(say);
});
$("hours").append(...[...Array(25).keys()].map((hour) => new Option("", `${String(hour).padStart(2, "0")}:00`)));
// Questions that people ask often: each has a button that fills in the form.
$("presets").addEventListener("click", ({ target }) => {
  if (!target.dataset.when) return;
  for (const [name, chosen] of Object.entries({ begin: "00:00", end: "24:00", days: "", ...target.dataset })) {
    $("choose-selection").elements[name].value = chosen;
  }
  select().catch(say);
});
$("choose-compared").addEventListener("change", () => compared().catch(say));
$("losses").addEventListener("toggle", () => data && tabulateGaps());
$("refusals").addEventListener("toggle", () => data && tabulateRefusals());
$("selection").addEventListener("toggle", () => select().catch(say));
$("choose-selection").addEventListener("change", () => select().catch(say));
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = new FormData(event.target).get("token");
  event.target.reset();
  api("session", { method: "POST", body: JSON.stringify({ token }) })
    .then(actions)
    .catch(say);
});
$("logout").addEventListener("click", () => api("session", { method: "DELETE" }).then(actions).catch(say));
setInterval(() => {
  if (document.hidden) return;
  if (!shown)
    showAll()
      .then(() => isAway() && link(""))
      .catch(say);
  else if (about) now(about);
}, 5000);
$("chart").tabIndex = 0;
$("chart").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || !chart || !data) return;
  const last = data.raw.start.length - 1;
  const at = Math.min(Math.max((chart.cursor.idx ?? last) + step, 0), last);
  chart.setCursor({ left: chart.valToPos(data.raw.start[at], "x"), top: 10 });
  detail(at);
});
route();
