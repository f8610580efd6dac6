// Answers for a person who is asked to take part: who asks, what for, until when, and how a home leaves.

import { date, element, lasting, sure } from "./format.js";
import { ended } from "./state.js";
import { told } from "./words.js";

const DAY = 86400;

function ends({ last_slot_ends: end, phase, time_zone: zone }) {
  const left = end - Date.now() / 1000;
  if (left <= 0) return `until ${date(end - 1, zone)}`;
  const days =
    left > 2 * DAY
      ? lasting(DAY * Math.floor(left / DAY))
      : left >= 3600
        ? lasting(3600 * Math.floor(left / 3600))
        : "less than an hour";
  // While the range of readings is learnt, it is not known yet how long the reports go on.
  return `until ${date(end - 1, zone)}${phase === "threshold" ? " at the latest" : ""}, which is ${days} from now`;
}

// How to reach whoever runs the campaign, as the operator wrote it; an e-mail or web address becomes a link.
function reached(contact) {
  if (/^https?:\/\/\S+$/.test(contact)) return link(contact, contact);
  return /^[^\s@]+@[^\s@]+$/.test(contact) ? link(contact, `mailto:${contact}`) : contact;
}

function link(words, to) {
  const made = element("a", words);
  made.href = to;
  return made;
}

// Returns what a stranger and the server could tell of one home, in words, by the campaign's exact odds.
function watched({ odds }) {
  const told = odds.map(({ of, at_most: share }) => `with ${of}, ${sure(share)}`).join("; ");
  const holder = told
    ? ` Suppose somebody holds a home's reports, as the server does, and thinks at first that two guesses about the home are equally likely (50 % each). The reports can then make them this sure of one guess: ${told}. These limits hold even if very few homes take part.`
    : "";
  const usual = odds.some(({ of, at_most: share }) => of !== "one report" && share > 0.95)
    ? " Many reports together can tell them what is usual in the home."
    : "";
  return `Nobody can from this page, which shows means of many homes.${holder}${usual}`;
}

// Returns the terms of a list, each with its answer. `week`: see `told`.
export function aboutIt(campaign, week) {
  const { asks, purpose, contact } = campaign.server;
  const who = element("dd");
  who.append(
    asks ||
      "No name is entered here. Ask whoever gave you this page's address or your link who runs the campaign. (For the operator:" +
        " the setting is operator in [join] of server.toml.)",
  );
  const how = element("dd");
  how.append(
    ...(contact
      ? [reached(contact)]
      : [
          "No contact is given here: ask whoever gave you the link.",
          " (For the operator: the setting is contact in [join] of server.toml.)",
        ]),
  );
  const over = Boolean(ended(campaign));
  const until = element("dd");
  until.append(
    campaign.server.state === "retired"
      ? `It ${campaign.begins * 1000 > Date.now() ? "was to begin" : "began"} on ${date(campaign.begins, campaign.time_zone)}, and whoever runs it has ended it for good.`
      : over
        ? `It ran from ${date(campaign.begins, campaign.time_zone)} ${ends(campaign)}; its devices measure no more for it.`
        : `From ${date(campaign.begins, campaign.time_zone)} ${ends(campaign)}. After that, its devices measure no more for it.`,
  );
  const kept = element("dd");
  kept.append(
    "The server counts the reports of each slot and group, without names, and keeps the counts until whoever runs it deletes them." +
      " So what a home has sent cannot be taken out again. The devices' names stay in a list until the operator removes them. ",
    campaign.kept_by_name.length ? `${campaign.kept_by_name.join(" ")} ` : "",
    "The server stores no internet address; a proxy in front of it may. ",
    link("Everything that is stored", "guides/privacy.md#what-is-stored-where-and-for-how-long"),
    ".",
  );
  const leaving = element("dd");
  leaving.append(
    "Whenever it wants, without giving a reason: press Leave in the phone's app or in Home Assistant, type" +
      " undertone-device pause on a gateway, or unplug a board. What the home sent before stays in the sums. More: ",
    link("taking part", "guides/taking-part.md"),
    ", ",
    link("leaving, losing, erasing", "guides/privacy.md#leaving-losing-erasing"),
    ".",
  );
  const joining = element("dd");
  joining.append(
    ...(over ? ["This campaign has ended: no home can join it any more. While it ran, this was the way. "] : []),
    "Whoever runs the campaign sends a link for a phone or Home Assistant, which then shows what the home agrees to; for a" +
      " gateway or a board they send files. Taking part costs a little data and power, and changes no bill. More: ",
    link("taking part", "guides/taking-part.md"),
    ".",
  );
  const seen = element("dd");
  const groups = campaign.groups.length > 1 ? " The server also knows the group of the home." : "";
  const each = lasting(campaign.stride * campaign.slot_seconds);
  seen.append(
    `One report every ${campaign.stride > 1 ? `${each}, in its turn` : each}: one number, which the device has changed at random` +
      " (this is the noise); the device's name and the time; and, like any web" +
      ` service, the internet address from which it reports.${groups} The name is not yours, but whoever gave you the link may` +
      " know that it is you. The program on the device sends no reading without noise. So whoever steals the server's data, or may demand them," +
      " gets reports or sums of them, but no reading. A phone gets its program from this server, and so has to trust it. ",
    link("Who sees what", "guides/privacy.md#who-sees-what"),
    ".",
  );
  return [
    element("dt", "Who runs the campaign, and asks homes to take part"),
    who,
    element("dt", "How to reach them"),
    how,
    ...(purpose ? [element("dt", "What for"), element("dd", purpose)] : []),
    element("dt", "From when to when"),
    until,
    element("dt", "What is kept, and for how long?"),
    kept,
    element("dt", "How a home takes part"),
    joining,
    element("dt", "How a home leaves"),
    leaving,
    element("dt", "Is my home in the sum now?"),
    element(
      "dd",
      "This page does not say which homes are in a mean. But your device shows what it has reported: in the phone's app, in Home" +
        " Assistant as “Last report”, and on a gateway in the line “reports” of undertone-device status. A board shows nothing.",
    ),
    element("dt", "Do I use more than the others?"),
    element(
      "dd",
      "Only your own device knows, because your readings stay there. A phone and Home Assistant compare them with the published" +
        " means: see “You and the others” in the phone's app, or “Your home” and “Average home” in Home Assistant. A gateway or a" +
        " board shows no comparison.",
    ),
    element("dt", "Could anybody see what my home does?"),
    element(
      "dd",
      `${watched(campaign)} Each further report tells a little more. A device counts how much its reports have told, and stops at the` +
        " limit that its home agreed to, if there is one. A phone, Home Assistant and a gateway show this count and the limit; a" +
        " board shows nothing. This page shows no number from too few reports.",
    ),
    element("dt", "What does the server see of my home?"),
    seen,
    element("dt", "What may I say with these numbers?"),
    element("dd", told(campaign, week)),
    element("dt", "Who holds the reports, and who may read this page?"),
    element(
      "dd",
      `Whoever runs the server${asks ? ` (${asks})` : ""} holds the reports; no other home gets them. This page asks for no password:` +
        " anybody who can open its address may read it. It shows only means of many homes.",
    ),
    element("dt", "What if the server stops?"),
    element(
      "dd",
      "Devices keep their newest reports and send them when the server is back; reports that come too late are in no number. What is" +
        " published stays as it is, and nobody learns more of a home than before.",
    ),
  ];
}
