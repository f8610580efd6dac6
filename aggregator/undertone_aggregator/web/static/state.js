// What the page says about a campaign before anybody looks at its numbers: its state, whether somebody is needed, and the
// newest number or why there is none.

import { ago, amount, clock, date, day, element, number, span, sure, time } from "./format.js";

// Event of an alarm -> what somebody should do about the alarm, and the guide that says more.
const ADVICE = {
  disk: ["make room on the disk with the server's data"],
  crowd: ["make room as the message says, and start the server again", "scale"],
  clock: ["check that the server's clock is set by NTP"],
  refused: ["see the reasons at “Refused deliveries” below, and find out who sends these reports"],
  conflict: ["look in the server's log for the devices: were their credentials or their state copied?", "threats"],
  silent: ["check the devices' network; undertone doctor looks for the cause"],
  dropped: ["give the broker longer queues, or raise the number of workers"],
  foreign: ["find out who else may publish campaigns on this broker", "threats"],
  unsigned: ["put the signing key back: devices that verify signatures refuse unsigned campaigns"],
  uncounted: ["if undertone spark run is not running, start it"],
  groups: ["correct the file of groups as the message says"],
  plan: ["mend the plan; undertone campaign show says what is wrong"],
  failed: ["mend what the message names; the server tries again by itself"],
};
// Event of an alarm -> the alarm in a few words. Any other alarm is "a warning".
const SHORT = {
  disk: "disk nearly full",
  clock: "the clock is in doubt",
  conflict: "reports contradict each other",
  silent: "devices are silent",
  dropped: "the broker drops reports",
  foreign: "somebody else broadcasts",
  unsigned: "the signing key is missing",
  certificate: "a certificate needs renewal",
  groups: "the file of groups is not in use",
  files: "too many open files",
  crowd: "no room for all devices",
};

// States in which no new numbers come and nobody is needed -> the state in words.
const QUIET = new Map([
  ["paused", "paused"],
  ["retired", "retired"],
  ["over", "ended"],
  ["stopped", "no server runs"],
  ["new", "not begun"],
  ["stopping", "stopping"],
  ["starting", "starting"],
]);

// Returns what needs attention, the most urgent first. Alarms of one event, and alarms whose sentences differ only in numbers,
// are one row with the newest time.
export function notices({ server, warnings, time_zone: zone }) {
  const found = new Map();
  for (const sentence of server.problems || []) found.set(sentence, { rank: 0, sentence, kind: "bad", times: [] });
  for (const { time: at, event, sentence: logged } of server.alarms || []) {
    const sentence = logged.replace(/^alarm: /, "");
    // If an alarm has the sentence of a present problem, the problem's row also says when it was logged, and what to do.
    const key = found.has(sentence) ? sentence : (event ?? sentence.replace(/[\d.,]+/g, "#"));
    const row = found.get(key) ?? { rank: 1, event, sentence, kind: "warn", times: [] };
    row.advice ??= ADVICE[event];
    if (!row.times.length || at > Math.max(...row.times)) row.sentence = sentence;
    row.times.push(at);
    found.set(key, row);
  }
  for (const sentence of warnings) found.set(sentence, { rank: 2, sentence, kind: "warn", times: [] });
  return [...found.values()]
    .sort((a, b) => a.rank - b.rank || Math.max(0, ...b.times) - Math.max(0, ...a.times))
    .map((row) => ({
      ...row,
      when: row.times.length
        ? `${time(Math.max(...row.times), zone)}${row.times.length > 1 ? `, at least ${row.times.length} times in 24 hours` : ""}: `
        : "",
    }));
}

export function notice({ rank, when, sentence, kind, advice }) {
  const made = element("li", "", kind);
  made.append(when, rank === 2 ? `For the operator: ${sentence}` : sentence);
  if (advice && /\w$/.test(sentence)) made.append(".");
  if (advice) made.append(element("span", ` What to do: ${advice[0]}${advice[0].endsWith("?") ? "" : "."}`, "advice"));
  if (advice?.[1]) {
    const more = element("a", advice[1]);
    more.href = `guides/${advice[1]}.md`;
    made.append(" ", more);
  }
  return made;
}

// Returns a moment as people say it; for today only the time of day.
function since(seconds, zone) {
  const now = Date.now() / 1000;
  return day(seconds, zone) === day(now, zone)
    ? clock(seconds, zone)
    : `${day(seconds, zone)}, ${clock(seconds, zone)}`;
}

// Returns a campaign's state in one word or a few: { level, words, sentence }. The levels are the colours of the dot: good,
// busy, quiet, warn and bad; warn and bad mean that somebody is needed. If the page reads only a store, nothing is known
// about the server.
export function standing(campaign) {
  if (campaign.error) return { level: "bad", words: "cannot be read", sentence: campaign.error };
  const { server, time_zone: zone } = campaign;
  const { state, reason } = server;
  if (state === "failed") return { level: "bad", words: "failed", sentence: reason };
  if (state === "retired" || state === "over") return { level: "quiet", words: QUIET.get(state), sentence: "" };
  const [first, ...more] = notices(campaign);
  if (first && first.rank < 2) {
    const other = first.rank === 0 ? "reports do not arrive" : "a warning";
    const short = server.full ? "disk full" : (SHORT[first.event] ?? other);
    const told = (server.alarms ?? []).filter(({ event }) => event === "disk").map((alarm) => alarm.time);
    const from = server.full ? told : first.times;
    return {
      level: first.rank === 0 || first.event === "disk" ? "bad" : "warn",
      sentence: first.sentence,
      words: from.length ? `${short} since ${since(Math.min(...from), zone)}` : short,
    };
  }
  if (QUIET.has(state)) return { level: "quiet", words: QUIET.get(state), sentence: reason ?? "" };
  const of = server.devices?.all;
  if (of?.reporting === 0 && of.silent)
    return { level: "warn", words: "no device reported", sentence: `What to do: ${ADVICE.silent[0]}.` };
  if (campaign.phase === "threshold") return { level: "busy", words: "learning", sentence: "" };
  if (state && !campaign.newest) return { level: "busy", words: "no number yet", sentence: "" };
  if (!state)
    return {
      level: "quiet",
      words: "stored results",
      sentence: "This page reads stored results; it asks no running server.",
    };
  // A hint explains the numbers to the operator, and nobody has to act on it.
  if (first)
    return { level: "good", words: `all well, ${more.length ? `${more.length + 1} hints` : "a hint"}`, sentence: "" };
  return { level: "good", words: "all well", sentence: "" };
}

// Returns a sentence that says since when a campaign is over, or "" if it is not. In its last slots' time to settle, a running
// server still publishes numbers.
export function ended({ last_slot_ends: end, newest, slot_seconds: slot, server, time_zone: zone }) {
  if (!(end * 1000 <= Date.now())) return "";
  const more = server.state === "running" && (newest?.start ?? 0) + slot < end;
  const last = newest && !more ? "; these are its last numbers" : "";
  return `This campaign ended on ${date(end, zone)}, at ${clock(end, zone)}${last}.`;
}

// The dot has a colour, and its word says the same to those who do not see colours.
export function dot({ level, words }) {
  const made = element("span", "", `standing ${level}`);
  made.append(element("span", "", "dot"), words);
  return made;
}

// Returns how far the learning of the range of readings is: { share, words }, with the share null if its end is unknown; or
// null if the campaign is not learning.
export function learning(campaign) {
  const until = campaign.server.learning_ends;
  if (campaign.phase !== "threshold") return null;
  if (!until) return { share: null, words: "" };
  const now = Date.now() / 1000;
  const share = Math.min(Math.max((now - campaign.begins) / Math.max(until - campaign.begins, 1), 0), 1);
  return { share, words: `first number about ${time(until, campaign.time_zone)}` };
}

// Returns a slot's number with its error, or why there is none.
export function value(campaign, row) {
  if (campaign.phase === "threshold") return { reason: "Learning the range of readings." };
  if (row === null) return { reason: "No number yet: no slot has settled with enough reports." };
  if (row.kind === "model")
    return { reason: "No number yet: the range is learnt, but no later slot has settled with enough reports." };
  const error = row.standard_error === null ? null : 1.96 * row.standard_error;
  if (!drowned(row.estimate, error, campaign)) return { estimate: row.estimate, error };
  const shape = amount(row.estimate, error, campaign.unit);
  return {
    reason: `Cannot be told from noise: the error, ${shape.error} ${shape.unit}, is larger than ${itself(campaign)}. ${FEW}`,
  };
}

// True if a number says nothing, because its error is larger than the number (less the offset). The page never shows it.
export const drowned = (estimate, error, { offset }) => error !== null && error > Math.abs(estimate - offset);

// True if a number says little, because its error is more than half of it. The page fades it.
export const doubtful = (estimate, error, { offset }) => error !== null && 2 * error > Math.abs(estimate - offset);

// Says what an error is compared with: the number or, if the lowest reading is not 0, what the number is above that
// reading.
export const itself = ({ offset, unit }) =>
  offset ? `what the number is above ${number(offset)} ${unit}, the lowest reading` : "the number itself";

// What would help if a number is only noise.
export const FEW = "With more homes, the error becomes smaller.";

// True if the newest number does not describe the present: the campaign does not go on, or the next number is overdue by more
// than two slots, and by more than a minute. A server publishes a slot's number `settle_slots` slots after the slot has
// ended.
export function old(campaign) {
  const { newest, slot_seconds: slot, server } = campaign;
  if (!newest) return false;
  const there = newest.start + slot;
  // The server may have seen by its own clock that later slots had no reports.
  if (server.devices_until > there + 2 * slot) return true;
  const overdue = Date.now() / 1000 - there - (1 + (server.settle_slots ?? 2)) * slot;
  return QUIET.has(server.state) || server.state === "failed" || overdue > Math.max(2 * slot, 60);
}

// The CSS classes of the newest number: an old or doubtful one is shown in a lighter weight.
export const weight = (campaign, estimate, error) =>
  `value${old(campaign) ? " old" : ""}${doubtful(estimate, error, campaign) ? " doubt" : ""}`;

// Returns when the newest number was measured, and how long ago its slot ended.
export function measured({ newest, slot_seconds: slot, time_zone: zone }) {
  return `${slotOf(newest.start, slot, zone)}, ${ago(Date.now() / 1000 - newest.start - slot)}`;
}

// Returns a slot as people say it; for today without the day.
export function slotOf(start, slot, zone) {
  const today = slot % 86400 === 0 || day(start, zone) === day(Date.now() / 1000, zone);
  return `${today ? "" : `${day(start, zone)}, `}${span(start, slot, zone)}`;
}

// Returns how many of the known devices reported in the newest slot whose reports should have arrived by now, as a sentence
// without its full stop. Only a running server counts devices.
export function reporting({ newest, server, stride, slot_seconds: slot, time_zone: zone }) {
  const of = server.devices?.all;
  const last =
    newest &&
    `${number(newest.reports, 9)} ${newest.reports === 1 ? "report" : "reports"} for ${slotOf(newest.start, slot, zone)}`;
  if (!of || of.reporting === null || !server.devices_until) return last ?? "";
  const known = of.silent === null ? "" : `of ${number(of.reporting + of.silent, 9)} `;
  const when = `reported for ${slotOf(server.devices_until - slot, slot, zone)}`;
  const turns = stride > 1 ? ", in which only some devices had their turn" : "";
  const devices = known || of.reporting !== 1 ? "devices" : "device";
  const silent =
    of.silent && !turns ? `; the other${of.silent === 1 ? "" : "s"} may be off, paused or without a connection` : "";
  if (of.reporting) return `${number(of.reporting, 9)} ${known}${devices} ${when}${turns}${silent}`;
  return `${known ? "None" : "No"} ${known}${known ? "devices" : "device"} ${when}${last ? `; before: ${last}` : ""}`;
}

// Returns sentences about the newest slot's reports: what `reporting` says, the reports that only help to learn the range of
// readings, and the devices without one. `devices`: how many are registered, or null. Where devices take turns, most have no
// report in a slot.
export function arrived(campaign, devices) {
  const { newest, server, stride } = campaign;
  const words = reporting(campaign);
  if (server.devices?.all || newest.kind === "model") return `${words}.`;
  const { reports, cohort } = newest;
  const more = cohort ? `, and ${number(cohort, 9)} more only to learn the range of readings` : "";
  const without = devices - reports - cohort;
  if (!(without > 0) || stride > 1) return `${words}${more}.`;
  return `${words}${more}. No report came in time from ${number(without, 9)} of the ${number(devices, 9)} devices; a missing report is left out, and does not count as 0.`;
}

// Returns one sentence about privacy, from the campaign's exact odds.
export function inOdds({ odds }) {
  const further = odds.filter(({ of }) => BEYOND.includes(of));
  const [seen] = odds.filter((each) => !further.includes(each)).slice(-1);
  if (!seen) return "";
  const more = further.map(({ of, at_most: share }) => `; somebody who sees ${of}, ${sure(share)}`).join("");
  return `Somebody who sees ${seen.of} of a home can be ${sure(seen.at_most)} which of two guesses holds that seemed equally likely before, such as “at home” and “away”${more}.`;
}

// What is beyond a guarantee: more reports than it protects together.
const BEYOND = ["all reports of a day", "all reports of the whole campaign"];
