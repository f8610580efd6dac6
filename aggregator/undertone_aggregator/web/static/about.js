// Answers for a person who is asked to take part: who asks, what for, until when, and how a home leaves.

import { date, element, lasting, sure } from "./format.js";

const DAY = 86400;

function ends({ last_slot_ends: end, phase, time_zone: zone }) {
  const left = end - Date.now() / 1000;
  if (left <= 0) return `until ${date(end - 1, zone)}`;
  const days =
    left > 2 * DAY ? lasting(DAY * Math.floor(left / DAY)) : lasting(3600 * Math.max(Math.floor(left / 3600), 1));
  // While the range of readings is learnt, it is not known yet how long the reports go on.
  return `${phase === "threshold" ? "at the latest" : "until"} ${date(end - 1, zone)}, ${days} from now`;
}

// How to reach whoever runs it, as the operator wrote it; an address of mail or of the web leads there.
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
    ? ` Whoever holds the reports of a home, as the server does, could tell two guesses about it apart: ${told}; without any, 50 %.`
    : "";
  return `Nobody can from this page, which shows means of many homes.${holder}`;
}

// Returns the terms of a list, each with its answer.
export function aboutIt(campaign) {
  const { asks, purpose, contact } = campaign.server;
  const who = element("dd");
  who.append(
    asks ||
      "Nobody is named here. For the operator: [join] operator in server.toml is shown here and to whoever is asked.",
  );
  const how = element("dd");
  how.append(
    ...(contact
      ? [reached(contact)]
      : [
          asks ? `By whatever way ${asks} gave you the link: no contact is set here.` : "No contact is set here.",
          " For the operator: [join] contact in server.toml is shown here.",
        ]),
  );
  const leaving = element("dd");
  leaving.append(
    "Whenever it wants, without giving a reason: in the phone's app and in Home Assistant by Leave, on a gateway by" +
      " undertone-device pause, a board by unplugging it. What it sent before stays in the sums. More: ",
    link("taking part", "guides/taking-part.md"),
    ", ",
    link("leaving, losing, erasing", "guides/privacy.md#leaving-losing-erasing"),
    ".",
  );
  const joining = element("dd");
  joining.append(
    "By a link from whoever runs it, on a phone or in Home Assistant, which shows what the home agrees to; a gateway or a board" +
      " gets its files from whoever runs the campaign. It costs a little data and power, and changes no bill. More: ",
    link("taking part", "guides/taking-part.md"),
    ".",
  );
  const seen = element("dd");
  seen.append(
    "Reports with noise, and which device sent them and when. It never gets a reading itself, so this page has none, and" +
      " whoever breaks into the server finds none. ",
    link("Who sees what", "guides/privacy.md#who-sees-what"),
    ".",
  );
  return [
    element("dt", "Who runs it and asks"),
    who,
    element("dt", "How to reach them"),
    how,
    ...(purpose ? [element("dt", "What for"), element("dd", purpose)] : []),
    element("dt", "When it ends"),
    element(
      "dd",
      `${campaign.last_slot_ends * 1000 > Date.now() ? "Since" : "It is over: from"} ${date(campaign.begins, campaign.time_zone)}, ${ends(campaign)}.`,
    ),
    element("dt", "How a home takes part"),
    joining,
    element("dt", "How a home leaves"),
    leaving,
    element("dt", "Is my home in the sum now?"),
    element(
      "dd",
      "Only your own device knows: this page does not say which homes are in a mean. Look there for the last report and its time:" +
        " in the phone's app, in Home Assistant at Last report, on a gateway with undertone-device status.",
    ),
    element("dt", "Do I use more than the others?"),
    element(
      "dd",
      "Only your own device knows, because your reading stays there. It compares it with the mean of this page: the phone's app" +
        " under You and the others, Home Assistant at Your home and Average home, last 7 days.",
    ),
    element("dt", "Could anybody see what my home does?"),
    element("dd", watched(campaign)),
    element("dt", "What does the server see of my home?"),
    seen,
    element("dt", "What if the server stops?"),
    element(
      "dd",
      "Devices keep their newest reports and send them when it is back; what comes too late is missing in the numbers. What is" +
        " published stays as it is, and nobody learns more of a home than before.",
    ),
  ];
}
