// The page that a person sees: a screen for each state of the worker's view. The state of the device is in the worker.
import { button, duration, element, facts, moment, number, paragraph, speak } from "./page.js";
import { others } from "./others.js";
import { SOURCES } from "./sources/index.js";
import { fill, loadWords } from "./words.js";

const words = await loadWords();
const say = words.phone;
speak(words.locale);

const worker = new Worker("worker.js", { type: "module" });
const send = (message) => worker.postMessage(message);
const root = document.getElementById("screen");

const ENDLESS = 0xffffffff;
const UNIT = 1 << 20;
const DAY = 86400;
// Words in `status.trouble` if the server refuses the device's credentials.
const DENIED = ["bad user name or password", "not authorised"];

// ----------------------------------------------------------------------------------------------- words

const upper = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// The sentences that this phone has computed from the policy that is offered or stored. Only who asks, and why, are the
// server's words.
const rows = ({ agreed }, ...keys) =>
  agreed.rows.filter(([key]) => keys.includes(key)).map(([, title, text]) => [title, upper(text)]);

// The sentence for an error of the worker, '' without one.
const sentence = (error) => (error ? fill(say.errors[error.key] ?? words.refusals[error.key], error) : "");

const several = (count, one, many) => fill(count === 1 ? one : many, { count: number(count) });

// ----------------------------------------------------------------------------------------------- screens

// Each screen builds its elements once and returns [elements, update(view), stop()]; the two functions may be missing.

// Returns the code of a link, '' without one. After a dot, a link may have the fingerprint of a private certificate
// authority. Home Assistant needs it; here the browser has checked the server's certificate already.
const codeOf = (link) => (link.split("#")[1] ?? "").split(".")[0];

function waiting(text) {
  return () => {
    const trouble = element("p", { className: "trouble", role: "status" });
    return [[paragraph(text), trouble], ({ error }) => (trouble.textContent = sentence(error))];
  };
}

function unable() {
  return [[element("h1", {}, say.unable.title), paragraph(say.unable.text)]];
}

function failed({ error }) {
  const { title, text, reason } = say.failed;
  return [[element("h1", {}, title), paragraph(text), paragraph(fill(reason, { reason: error }))]];
}

function none() {
  const input = element("input", { type: "url", placeholder: "https://…/join#…", id: "link", required: true });
  const trouble = element("p", { className: "trouble", role: "alert" });
  const open = (event) => {
    event.preventDefault();
    const code = codeOf(input.value);
    if (code) send({ do: "invite", code });
    else trouble.textContent = say.none.no_code;
  };
  const form = element(
    "form",
    { onsubmit: open },
    element("label", { htmlFor: "link" }, say.none.link),
    element("div", { className: "row" }, input, element("button", {}, say.none.open)),
  );
  const update = ({ error }) => {
    if (error) trouble.textContent = sentence(error);
  };
  return [[element("h1", {}, say.none.title), paragraph(say.none.text), form, trouble], update];
}

function join(view) {
  const { offer } = view;
  return [
    [
      element("h1", {}, say.join.title),
      facts([[say.join.asks, offer.operator], ...(offer.about ? [[say.join.about, offer.about]] : [])]),
      paragraph(say.join.computed),
      facts(rows(view, "measured", "often", "until")),
      paragraph(say.join.back),
      paragraph(say.join.nothing_yet),
      element(
        "div",
        { className: "actions" },
        button(say.join.how, () => show("agree"), "main"),
        button(say.join.no, decline),
      ),
    ],
  ];
}

function agree(view) {
  const { offer, agreed } = view;
  const fitting = SOURCES.filter((source) => source.fits(agreed.measures));
  const choose = element("fieldset", {}, element("legend", {}, say.agree.source));
  for (const [index, source] of fitting.entries()) {
    const input = element("input", { type: "radio", name: "source", value: source.id, checked: index === 0 });
    choose.append(element("label", { className: "choice" }, input, source.title(words)));
  }
  const begin = () => {
    const chosen = fitting.find(({ id }) => id === choose.querySelector("input:checked").value);
    history.replaceState(null, "", location.pathname);
    send({ do: "agree", source: { id: chosen.id, whole: chosen.whole } });
    // Some browsers ask the person for this permission. The app goes on without waiting for the answer.
    navigator.storage?.persist?.().catch((error) => console.info(error.message));
  };
  return [
    [
      element("h1", {}, say.agree.title),
      paragraph(fill(say.agree.blur, offer)),
      facts(rows(view, "reading", "day", "life", "next")),
      element("h2", {}, say.agree.else_title),
      paragraph(say.agree.else),
      choose,
      element("details", {}, element("summary", {}, say.agree.experts), paragraph(agreed.expert)),
      paragraph(say.agree.end),
      paragraph(say.agree.clear),
      element("div", { className: "actions" }, button(say.agree.yes, begin, "main"), button(say.join.no, decline)),
    ],
  ];
}

// What the phone has spent; every screen of a device shows it.
function spent() {
  const text = paragraph();
  const bar = element("progress", { max: 1, value: 0 });
  const expert = paragraph();
  const details = element("details", {}, element("summary", {}, say.agree.experts), expert);
  const update = (status) => {
    const used = status.lifetime ? status.ever / status.lifetime : 0;
    // These sums leave out what streams cost.
    const streams = status.streams !== null;
    bar.hidden = streams || !status.lifetime;
    details.hidden = streams;
    bar.value = used;
    const share = status.lifetime ? fill(say.spent.share, { percent: number(100 * used, 1) }) : say.spent.no_limit;
    const count = several(status.sequence, say.spent.report, say.spent.reports);
    text.textContent = streams ? count : `${count} ${share}`;
    expert.textContent = fill(status.lifetime ? say.spent.expert_of : say.spent.expert, {
      recent: number(status.recent / UNIT, 2),
      month: number(status.month / UNIT, 2),
      ever: number(status.ever / UNIT, 2),
      lifetime: number(status.lifetime / UNIT, 2),
    });
  };
  const box = element("section", { className: "spent" }, element("h2", {}, say.spent.title), text, bar, details);
  return [box, update];
}

function about(view) {
  const { offer, status } = view;
  const followed = status.history.map(([at, names]) => [
    moment(at),
    fill(say.about.followed, { names: names.join(", ") }),
  ]);
  return element(
    "details",
    {},
    element("summary", {}, say.about.title),
    facts([
      [say.join.asks, offer.operator],
      ...(offer.about ? [[say.join.about, offer.about]] : []),
      ...rows(view, "measured", "often", "until", "reading", "day", "life", "next"),
      ...followed,
      [say.about.name, status.device],
      [say.about.lost, fill(say.about.lost_text, offer)],
      [say.about.clear, say.forgetting],
    ]),
  );
}

function leaveButton() {
  return button(say.leave.button, () => {
    if (confirm(say.leave.confirm)) send({ do: "leave" });
  });
}

// What a person should know of a running device: why nothing was reported, and what it has refused.
function troubles({ offer, status, error }) {
  const { counts, online, paused, outbox, outside, clock_off: off, trouble } = status;
  const lines = [];
  if (outside.length) lines.push(fill(say.running.outside, { names: outside.join(", ") }));
  if (off !== null) {
    const way = off > 0 ? say.clock_ahead : say.clock_behind;
    lines.push(fill(say.clock_days, { span: duration(Math.abs(off)), way }));
  } else {
    if (say.obstacles[paused] && (counts.heard || paused !== "no_campaign")) lines.push(say.obstacles[paused]);
    if (trouble.startsWith("campaign refused") && !outside.length) lines.push(say.running.refused);
  }
  if (outbox) lines.push(several(outbox, say.running.report_waits, say.running.reports_wait));
  if (!online && DENIED.some((part) => trouble.includes(part))) lines.push(fill(say.running.denied, offer));
  if (error) lines.push(sentence(error));
  return lines.join(" ");
}

function running(started) {
  const { agreed, source } = started;
  const state = element("p", { className: "state", role: "status" });
  const trouble = element("p", { className: "trouble" });
  const [box, updateSpent] = spent();
  const [beside, updateOthers] = others({ measures: agreed.measures, send, words });
  const shown = SOURCES.find(({ id }) => id === source.id).show({ measures: agreed.measures, send, words });
  const pause = element("details", { className: "pause" }, element("summary", {}, say.running.pause));
  for (const [label, seconds] of [
    [say.running.day, DAY],
    [say.running.week, 7 * DAY],
    [say.running.endless, 0],
  ]) {
    pause.append(button(label, () => send({ do: "pause", seconds })));
  }
  let told = "";
  const update = (view) => {
    state.textContent = view.status.online ? say.running.online : say.running.offline;
    trouble.textContent = troubles(view);
    // The device's own words are meant for people who help, so they go to the browser's log.
    if (view.status.trouble && view.status.trouble !== told) console.info(view.status.trouble);
    told = view.status.trouble;
    updateSpent(view.status);
    updateOthers(view.status);
    shown.update(view);
  };
  return [
    [
      element("h1", {}, say.running.title),
      paragraph(upper(agreed.what)),
      state,
      shown.element,
      trouble,
      beside,
      box,
      about(started),
      element("div", { className: "actions" }, pause, leaveButton()),
      installButton(),
    ],
    update,
    shown.stop,
  ];
}

function paused(started) {
  const text = paragraph();
  const [box, updateSpent] = spent();
  const update = ({ status, error }) => {
    const [start, until] = status.pause;
    const lines = [];
    if (start > status.time) lines.push(fill(say.paused.begins, { moment: moment(start) }));
    lines.push(until >= ENDLESS ? say.paused.endless : fill(say.paused.until, { moment: moment(until) }));
    lines.push(sentence(error));
    text.textContent = lines.join(" ");
    updateSpent(status);
  };
  return [
    [
      element("h1", {}, say.paused.title),
      text,
      paragraph(say.paused.silent),
      box,
      about(started),
      element(
        "div",
        { className: "actions" },
        button(say.paused.go_on, () => send({ do: "resume" }), "main"),
        leaveButton(),
      ),
    ],
    update,
  ];
}

function left({ left: { at, offer, status } }) {
  const [box, updateSpent] = spent();
  updateSpent(status);
  return [
    [
      element("h1", {}, say.left.title),
      paragraph(fill(say.left.since, { moment: moment(at), operator: offer.operator })),
      box,
      paragraph(say.left.stays),
      paragraph(`${say.left.back} ${say.forgetting}`),
      element(
        "div",
        { className: "actions" },
        button(say.left.another, () => show("none")),
      ),
    ],
  ];
}

const SCREENS = {
  starting: waiting(say.starting),
  asking: waiting(say.asking),
  joining: waiting(say.joining),
  leaving: waiting(say.leaving),
  busy: waiting(say.busy),
  damaged: waiting(say.damaged),
  unable,
  failed,
  none,
  join,
  agree,
  running,
  paused,
  left,
};

// ----------------------------------------------------------------------------------------------- the current screen

let view = { stage: "starting" };
let current = null;
let updateScreen = null;
let stopScreen = null;
let asked = null;

function screenOf({ stage, status }) {
  if (stage === "offer") return asked === "agree" ? "agree" : "join";
  if (stage === "left") return asked === "none" ? "none" : "left";
  if (stage === "running") return status.pause[1] > status.time ? "paused" : "running";
  return stage;
}

function render() {
  const name = screenOf(view);
  if (name !== current) {
    stopScreen?.();
    const [elements, update, stop] = SCREENS[name](view);
    root.replaceChildren(...elements.filter((child) => child !== null));
    root.dataset.screen = name;
    scrollTo(0, 0);
    [current, updateScreen, stopScreen] = [name, update, stop];
  }
  updateScreen?.(view);
}

function show(name) {
  asked = name;
  render();
}

function decline() {
  asked = null;
  history.replaceState(null, "", location.pathname);
  send({ do: "decline" });
}

worker.onmessage = ({ data }) => {
  if (data.stage !== view.stage) asked = null;
  view = data;
  render();
};

worker.onerror = (event) => {
  root.replaceChildren(paragraph(fill(say.cannot_run, { reason: event.message ?? "worker" })));
};

function followLink() {
  const code = codeOf(location.hash);
  if (code) send({ do: "invite", code });
}

addEventListener("hashchange", followLink);
followLink();

// ----------------------------------------------------------------------------------------------- the home screen

let install = null;

addEventListener("beforeinstallprompt", (event) => {
  event.preventDefault();
  install = event;
  for (const shown of document.querySelectorAll(".install")) shown.hidden = false;
});

function installButton() {
  const put = button(say.running.install, () => install?.prompt(), "install");
  put.hidden = !install;
  return put;
}

// New files wait until every page of the app is closed, so that no page mixes old files with new ones.
navigator.serviceWorker?.register("service-worker.js").catch((error) => console.info(error.message));
