// All campaigns: one line that says whether somebody is needed, and a card for each campaign.

import { $, amount, drawing, element, natural, number, refresh } from "./format.js";
import { dot, ended, inOdds, learning, measured, reporting, standing, value, weight } from "./state.js";
import { clocks, per } from "./words.js";

const NEEDS = { bad: 2, warn: 1 };

// Draws the newest numbers with their band. Slots of threshold rounds have no number, so the line has a gap there.
function spark({ estimate, low, high }) {
  const picture = drawing("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" });
  const there = estimate.map((_, i) => i).filter((i) => estimate[i] !== null);
  if (there.length < 2) return picture;
  const least = Math.min(...there.map((i) => low[i] ?? estimate[i])),
    most = Math.max(...there.map((i) => high[i] ?? estimate[i]));
  const x = (i) => (100 * (i - there[0])) / (there.at(-1) - there[0]);
  const y = (value) => 29 - (28 * (value - least)) / (most - least || 1);
  const line = (places, of) =>
    places.map((i, n) => `${n ? "L" : "M"}${x(i).toFixed(2)} ${y(of[i] ?? estimate[i]).toFixed(2)}`).join("");
  picture.append(
    drawing("path", { class: "band", d: `${line(there, high)}${line([...there].reverse(), low).replace("M", "L")}Z` }),
    drawing("path", { class: "line", d: line(there, estimate) }),
  );
  return picture;
}

function card(campaign) {
  const made = element("article", "", "card");
  const link = element("a");
  link.href = `#${campaign.name}`;
  const state = standing(campaign);
  const head = element("div", "", "head");
  head.append(element("h3", campaign.name), dot(state));
  link.append(head);
  if (campaign.server?.title) link.append(element("p", campaign.server.title, "title"));
  made.append(link);
  if (campaign.error) {
    link.append(element("p", campaign.error, "bad"));
    return made;
  }
  const over = ended(campaign);
  if (over) link.append(element("p", over, "small"));
  const { newest } = campaign;
  const { estimate, error, reason } = value(campaign, newest);
  const learns = learning(campaign);
  if (reason) {
    link.append(element("div", reason, "value words"));
  } else {
    const shown = amount(estimate, error, campaign.unit);
    const line = element("div", "", weight(campaign, estimate, error));
    line.append(shown.value, element("span", ` ${shown.unit} ${shown.error}`, "unit"));
    link.append(line);
  }
  if (learns) {
    const bar = element("progress");
    bar.setAttribute("aria-label", `learning the range of readings of ${campaign.name}`);
    if (learns.share !== null) {
      bar.max = 1;
      bar.value = learns.share;
    }
    link.append(bar, element("div", learns.words, "small"));
  } else if (newest) {
    const when = reason ? measured(campaign) : `${measured(campaign)}; ${per(campaign)}, on average`;
    link.append(element("div", when, "small"), spark(campaign.recent));
  }
  link.append(element("div", reporting(campaign), "small"), element("div", inOdds(campaign), "small privacy"));
  return made;
}

// Returns, for example, "380 of 400 devices reported lately", over all campaigns whose server counts devices.
function lately(campaigns) {
  const counted = campaigns
    .filter(({ server }) => ["running", "choosing"].includes(server?.state))
    .map(({ server }) => server.devices?.all)
    .filter((of) => of && of.reporting !== null && of.silent !== null);
  if (!counted.length) return [];
  const reported = counted.reduce((sum, of) => sum + of.reporting, 0);
  const known = counted.reduce((sum, of) => sum + of.reporting + of.silent, 0);
  const several = campaigns.length > 1 ? `, in ${counted.length} of ${campaigns.length} campaigns` : "";
  const why =
    counted.length < campaigns.length
      ? " (in the others devices take turns, nobody counts them, or the campaign does not run)"
      : "";
  const words = `${number(reported, 9)} of ${number(known, 9)} devices reported lately${several}${why}`;
  return [element("span", words, "devices")];
}

// Returns "3 campaigns, all well", or which campaign needs somebody, and why.
function overall(campaigns) {
  const states = campaigns.map((campaign) => ({ campaign, ...standing(campaign) }));
  const needy = states.filter(({ level }) => level in NEEDS).sort((a, b) => NEEDS[b.level] - NEEDS[a.level]);
  const one = campaigns.length === 1;
  const many = one ? `The campaign ${campaigns[0].name}` : `${number(campaigns.length, 9)} campaigns`;
  if (!needy.length) {
    const level = states.some(({ level }) => level === "good")
      ? "good"
      : states.some(({ level }) => level === "busy")
        ? "busy"
        : "quiet";
    const well =
      level === "quiet" ? (one ? " does not need you" : ", none needs you") : one ? " is well" : ", all well";
    return [dot({ level, words: `${many}${well}` }), ...lately(campaigns)];
  }
  const [{ campaign, level, sentence, words }] = needy;
  const more = element("a", "What to do", "todo");
  more.href = `#${campaign.name}`;
  const which = needy.length === 1 ? `1 of ${many} needs you: ` : `${needy.length} of ${many} need you, most of all `;
  return [
    dot({ level, words: one ? `${many} needs you: ${words}` : `${which}${campaign.name} (${words})` }),
    ...(sentence ? [element("span", sentence, "why")] : []),
    more,
    ...lately(campaigns),
  ];
}

// What to type next, where HOME is the server's folder.
const FIRST_STEPS = [
  ["Predict what a campaign would show", "undertone plan --devices 5000 --epsilon 1"],
  ["Create the campaign", "undertone campaign create HOME load --sensor load --unit Wh --bound 10000 --epsilon 1"],
  ["Add devices", "undertone devices add 20 --home HOME"],
];

function firstSteps() {
  const list = element("ol", "", "steps");
  for (const [words, command] of FIRST_STEPS) {
    const step = element("li", `${words}: `);
    step.append(element("code", command));
    list.append(step);
  }
  return [
    element(
      "p",
      "There is no campaign yet. A running server starts one as soon as it is created (HOME is the server's folder):",
    ),
    list,
  ];
}

export function showCampaigns(campaigns) {
  const sorted = [...campaigns].sort((a, b) => natural(a.name, b.name));
  $("overall").hidden = $("errors").hidden = !sorted.length;
  refresh($("overall"), overall(sorted));
  $("zones").textContent = clocks(sorted);
  const owners = new Set(sorted.map(({ server }) => server?.asks).filter(Boolean));
  $("owner").hidden = owners.size !== 1;
  $("owner").textContent = owners.size === 1 ? `${[...owners][0]}: measurements of homes` : "";
  refresh($("cards"), sorted.length ? sorted.map(card) : firstSteps());
}
