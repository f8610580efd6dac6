// The page over the HTTP API beside it. Everything is relative, so that it works below any path of a proxy.
const api = (path, options) => fetch(`api/v1/${path}`, options).then(async (answer) => {
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
});
const $ = (id) => document.getElementById(id);
const element = (name, text = "", kind = "") => {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  if (kind) made.className = kind;
  return made;
};
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const number = (value, digits = 4) => value === null || value === undefined ? "–"
  : new Intl.NumberFormat(undefined, { maximumSignificantDigits: digits }).format(value);
// Dates in the reader's language, and a clock of 24 hours for everybody.
const format = (options) => (seconds, zone) => new Intl.DateTimeFormat(undefined,
  { ...options, hourCycle: "h23", timeZone: zone }).format(seconds * 1000);
const time = format({ dateStyle: "medium", timeStyle: "short" });
const clock = format({ hour: "2-digit", minute: "2-digit" });
const precise = format({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = format({ day: "numeric", month: "short" });

let shown = null;   // the name of the campaign that is open
let news = null;    // its events
let data = null;    // its series
let about = null;   // the campaign at a glance
let ends = null;    // when its newest slot ends
let chart = null;
let zoom = null;    // the part of its span that the chart shows: { min, max }, or null for all of it
let thetaChart = null;
let reportsChart = null;
let against = null; // the token that every action carries

// --- all campaigns

function spark(recent) {
  // Slots of threshold rounds have no estimate, and no line.
  const values = recent.estimate.filter((value) => value !== null);
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", "0 0 100 30");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("aria-hidden", "true");
  if (values.length > 1) {
    const low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
    const path = document.createElementNS(picture.namespaceURI, "path");
    path.setAttribute("d", values.map((value, i) =>
      `${i ? "L" : "M"}${100 * i / (values.length - 1)} ${28 - 26 * (value - low) / span}`).join(""));
    picture.append(path);
  }
  return picture;
}

// A slot's number with its error, or in its place why there is none.
function value(campaign, row) {
  const learning = campaign.phase === "threshold";
  const until = campaign.server.learning_ends;
  const reason = learning ? `learning θ${until ? `, until about ${time(until, campaign.time_zone)}` : ""}` : "no estimate yet";
  if (row === null) return { reason };
  if (row.kind === "model") return { reason: learning ? reason : "θ is chosen: the first estimate comes with the next slot" };
  const error = row.standard_error === null ? 0 : 1.96 * row.standard_error;
  return error > Math.abs(row.estimate - campaign.offset)
    ? { reason: `not enough reports yet: ± ${number(error, 2)} ${campaign.unit} is larger than the number; more devices, or means over more slots, show more` }
    : { words: `${number(row.estimate)} ${campaign.unit}`, error: error ? `± ${number(error, 2)} (95 %)` : "" };
}

const ago = (seconds) => {
  const [size, unit] = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]].find(([size]) => seconds >= size) ?? [1, "second"];
  return new Intl.RelativeTimeFormat(undefined, { numeric: "auto" }).format(-Math.floor(Math.max(seconds, 0) / size), unit);
};

// The campaign's state, and whether its reports arrive: lines of [words, class]. A store alone knows nothing of its server.
const EXPECTING = ["running", "choosing", "paused"];
function condition({ server, time_zone: zone }) {
  if (!server.state) return [["state unknown: this page reads a store, and not its server", ""]];
  const state = server.state === "choosing" ? "choosing θ" : server.state;
  const lines = [[`${state}${server.reason ? ` (${server.reason})` : ""}`, server.state === "failed" ? "bad" : ""]];
  if (EXPECTING.includes(server.state)) {
    const newest = server.newest_report === null ? "none has come yet"
      : `the newest slot with a report ended ${ago(Date.now() / 1000 - server.newest_report)}`;
    if (server.problems.length) lines.push([`reports do not arrive: ${server.problems.join("; ")}`, "bad"]);
    else if (server.reachable) lines.push([`reports can arrive; ${newest}`, ""]);
  }
  return lines;
}

// What somebody should do about an alarm, by its event; after it the guide that says more.
const ADVICE = {
  disk: ["free space where the stores are"],
  clock: ["check that the server's clock is set by NTP"],
  refused: ["look up the reason in the server's guide, and who sends these reports"],
  conflict: ["undertone devices conflicts names the devices: were their credentials or their state copied?", "threats"],
  silent: ["check the devices' network and the broker; undertone doctor looks for the cause"],
  dropped: ["give the broker longer queues, or serve by more workers"],
  foreign: ["find out who else may publish campaigns on this broker", "threats"],
  unsigned: ["put the signing key back: devices that verify campaigns refuse an unsigned one"],
  uncounted: ["start undertone spark run again"],
  groups: ["mend the file of groups"],
  certificate: ["undertone authority renew"],
  plan: ["mend the plan; undertone campaign show says what is wrong"],
  failed: ["mend what the sentence says; the server tries again"],
};

// What needs attention, the most urgent first; the same sentence with other numbers is one row with its newest time.
function notices({ server, warnings, time_zone: zone }) {
  const found = new Map();
  for (const sentence of server.problems || []) found.set(sentence, { rank: 0, sentence, kind: "bad", times: [] });
  for (const { time: at, event, sentence } of server.alarms || []) {
    const key = event ?? sentence.replace(/[\d.,]+/g, "#");
    const row = found.get(key) ?? { rank: 1, sentence, kind: "warn", times: [], advice: ADVICE[event] };
    if (!row.times.length || at > Math.max(...row.times)) row.sentence = sentence;
    row.times.push(at);
    found.set(key, row);
  }
  for (const sentence of warnings) found.set(sentence, { rank: 2, sentence, kind: "warn", times: [] });
  return [...found.values()].sort((a, b) => a.rank - b.rank || Math.max(0, ...b.times) - Math.max(0, ...a.times))
    .map((row) => ({ ...row, when: row.times.length
      ? `${time(Math.max(...row.times), zone)}${row.times.length > 1 ? `, ${row.times.length} times in 24 hours` : ""}: ` : "" }));
}

function notice({ when, sentence, kind, advice }) {
  const made = element("li", "", kind);
  made.append(when, sentence);
  if (advice) made.append(element("span", ` What to do: ${advice[0]}${advice[0].endsWith("?") ? "" : "."}`, "advice"));
  if (advice?.[1]) {
    const more = element("a", advice[1]);
    more.href = `guides/${advice[1]}.md`;
    made.append(" ", more);
  }
  return made;
}

// Give `place` the children `made`, like replaceChildren, but update existing elements where their names agree. An element
// that is replaced loses the keyboard's focus, and a press on it does not become a click.
function refresh(place, made) {
  made.forEach((fresh, i) => {
    const old = place.childNodes[i];
    if (!old) place.append(fresh);
    else if (old.nodeName !== fresh.nodeName) old.replaceWith(fresh);
    else if (fresh.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; }
    else {
      for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
      for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      refresh(old, [...fresh.childNodes]);
    }
  });
  while (place.childNodes.length > made.length) place.lastChild.remove();
}

function card(campaign) {
  const made = element("article", "", "card");
  const link = element("a");
  link.href = `#${campaign.name}`;
  link.append(element("h3", campaign.name));
  made.append(link);
  if (campaign.error) {
    link.append(element("p", campaign.error, "bad"));
    return made;
  }
  const newest = campaign.newest;
  const [[state, kind], ...others] = condition(campaign);
  const age = newest ? `newest number ${ago(Date.now() / 1000 - newest.start - campaign.slot_seconds)}` : "no number yet";
  link.append(element("div", `${state} · ${age}`, `small ${kind}`.trim()));
  const { words, error, reason } = value(campaign, newest);
  link.append(element("div", reason ?? words, reason ? "value words" : "value"));
  if (error) {
    link.append(element("div", `${error}, ${newest.reports} reports`, "small"));
  }
  link.append(spark(campaign.recent));
  link.append(element("div", `mean of ${campaign.sensor}, ${campaign.measure} of ${campaign.slot_seconds} s`, "small"));
  link.append(element("div", campaign.guarantee, "small"));
  for (const [words, kind] of others) link.append(element("div", words, `small ${kind}`.trim()));
  const urgent = notices(campaign).filter(({ kind }) => kind === "warn");
  if (urgent.length) link.append(element("div", `${urgent.length} ${urgent.length === 1 ? "warning" : "warnings"}: open the campaign`, "small warn"));
  return made;
}

async function showAll() {
  const { campaigns } = await api("campaigns");
  refresh($("cards"), campaigns.length ? campaigns.map(card) : [element("p", "There is no campaign yet.")]);
}

// --- one campaign

const SHOWN_NOTICES = 3;

// A table can be reached by keyboard, because it may be wider than its place.
function rows(pairs, heads) {
  const table = element("table");
  table.tabIndex = 0;
  if (heads) {
    const head = table.createTHead().insertRow();
    for (const text of heads) head.append(element("th", text));
  }
  const body = table.createTBody();
  for (const cells of pairs) {
    const row = body.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell;
  }
  return table;
}

function glance(campaign) {
  $("one-title").textContent = `${campaign.name}: ${campaign.sensor}, ${campaign.measure} of ${campaign.slot_seconds} s`;
  $("guarantee").textContent = ["Privacy: each device mixes random noise into every report before it sends it.",
    `Guarantee: ${campaign.guarantee}.`, ...campaign.kept_by_name].join(" ");
  const newest = campaign.newest;
  about = campaign;
  ends = newest ? newest.start + campaign.slot_seconds : null;
  spans(campaign);
  const { words, error, reason } = value(campaign, newest);
  $("latest").textContent = newest
    ? `${time(newest.start, campaign.time_zone)}, ${newest.kind === "model" ? newest.cohort : newest.reports} reports: ${reason ?? `${words} ${error}`.trim()}`
    : reason;
  refresh($("state"), condition(campaign).map(([words, kind]) => element("div", words, kind)));
  const known = notices(campaign).map(notice);
  refresh($("alarms"), known.slice(0, SHOWN_NOTICES));
  $("more-alarms").hidden = known.length <= SHOWN_NOTICES;
  refresh($("more-alarms").lastElementChild, known.slice(SHOWN_NOTICES));
  $("api").href = `api/v1/campaigns/${campaign.name}`;
  $("topic").textContent = `<prefix>/${campaign.name}/aggregate/all/filtered`;
  drawWidgets(campaign);
  const select = $("choose").elements.group;
  if (select.options.length !== campaign.groups.length) {
    const chosen = select.value || wished().get("group") || "all";
    select.replaceChildren(...campaign.groups.map((group) => new Option(group, group, false, group === chosen)));
  }
}

// --- what is chosen: in the form, and in the address after the campaign's name, so that it can be passed on

const SPANS = [[60, "1 minute"], [600, "10 minutes"], [3600, "1 hour"], [21600, "6 hours"], [86400, "24 hours"],
  [172800, "48 hours"], [604800, "7 days"], [2592000, "30 days"], [31536000, "1 year"]];
const PADDING = [12, 20, 8, 0];  // of both charts, so that they are in line
const USUAL_SLOTS = 200;  // as many points as a chart shows well
const wished = () => new URLSearchParams(decodeURIComponent(location.hash.slice(1)).split("?")[1] || "");

// The spans that this campaign's slots fill and that one question may ask for.
function spans(campaign) {
  const select = $("choose").elements.span;
  const slot = campaign.slot_seconds, most = campaign.largest_selection * slot;
  const there = ends === null ? 0 : ends - campaign.begins;
  const fit = SPANS.filter(([seconds], i) => seconds >= 2 * slot && seconds <= most && (i === 0 || SPANS[i - 1][0] < there));
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
      const date = day(seconds, zone), fresh = date !== before;
      before = date;
      if (step >= 86400) return date;
      const words = (step < 60 ? precise : clock)(seconds, zone);
      return fresh ? `${words}\n${date}` : words;
    });
  };
}

const axis = () => ({ stroke: colour("ink"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } });

function band(series, low, high, of) {
  const alpha = `color-mix(in srgb, ${colour(of)} 20%, transparent)`;
  return { series: [high, low], fill: alpha };
}

// Every slot between the first and the last, also those without a number: they are gaps, not lines across.
function whole(raw, seconds) {
  const at = new Map(raw.start.map((start, i) => [start, i]));
  const starts = [];
  if (raw.start.length) for (let start = raw.start[0]; start <= raw.start.at(-1); start += seconds) starts.push(start);
  const column = (name) => starts.map((start) => at.has(start) ? raw[name][at.get(start)] : null);
  const made = Object.fromEntries(Object.keys(raw).map((name) => [name, column(name)]));
  return { ...made, start: starts, slot: starts.map((start) => start / seconds) };
}

// Behind the lines: the slots of threshold rounds, in which θ is learnt and nothing is estimated.
function shadeLearning(plot) {
  const { kind, start } = data.raw;
  const { ctx } = plot, { top, height } = plot.bbox;
  ctx.save();
  ctx.fillStyle = `color-mix(in srgb, ${colour("warn")} 14%, transparent)`;
  ctx.font = `${12 * devicePixelRatio}px system-ui`;
  for (let i = 0; i < kind.length; i += 1) {
    if (kind[i] !== "model" || kind[i - 1] === "model") continue;
    let end = i;
    while (kind[end + 1] === "model") end += 1;
    const left = plot.valToPos(start[i], "x", true), right = plot.valToPos(start[end] + about.slot_seconds, "x", true);
    ctx.fillRect(left, top, right - left, height);
    ctx.save();
    ctx.fillStyle = colour("warn");
    const words = [`learning θ, until ${time(start[end] + about.slot_seconds, data.time_zone)}`, "learning θ"]
      .find((each) => right - left > ctx.measureText(each).width + 8);
    if (words) ctx.fillText(words, left + 4, top + height / 2);
    ctx.restore();
  }
  ctx.restore();
}

function draw() {
  const { raw, filtered, unit, time_zone: zone } = data;
  const columns = [raw.start, raw.estimate, raw.low, raw.high];
  const thin = (of) => ({ stroke: colour(of), width: 0 });
  const series = [{ value: (_, seconds) => seconds === null ? "–" : time(seconds, zone) },
    { label: `raw, ${unit}`, stroke: colour("raw"), width: 1, points: { show: true, size: 4 } },
    { label: "95 % from", ...thin("raw") , show: true, points: { show: false } },
    { label: "to", ...thin("raw"), points: { show: false } }];
  const bands = [band(series, 2, 3, "raw")];
  if (filtered && filtered.start.length) {
    const at = new Map(filtered.start.map((start, i) => [start, i]));
    for (const name of ["estimate", "low", "high"]) {
      columns.push(raw.start.map((start) => at.has(start) ? filtered[name][at.get(start)] : null));
    }
    series.push({ label: `filtered, ${unit}`, stroke: colour("filtered"), width: 2.5, points: { show: false } },
      { label: "95 % from", ...thin("filtered"), points: { show: false } },
      { label: "to", ...thin("filtered"), points: { show: false } });
    bands.push(band(series, 5, 6, "filtered"));
  }
  const place = $("chart");
  const options = {
    width: place.clientWidth, height: Math.max(220, Math.min(420, window.innerHeight * 0.5)), series, bands,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone), padding: PADDING,
    axes: [{ ...axis(), space: 70, values: moments(zone) }, { ...axis(), label: unit, labelFont: "14px system-ui" }],
    hooks: { setCursor: [(plot) => detail(plot.cursor.idx)], drawClear: [shadeLearning],
      setScale: [(plot, key) => {
        const { min, max } = plot.scales.x, all = plot.data[0];
        if (key !== "x" || min === null || !all.length) return;
        const before = JSON.stringify(zoom);
        zoom = min <= all[0] && max >= all.at(-1) ? null : { min, max };
        $("zoom-out").hidden = zoom === null;
        if (JSON.stringify(zoom) !== before) select().catch(say);
      }] },
  };
  if (chart) chart.destroy();
  // New data arrive while somebody looks at a part: that part stays.
  const part = zoom;
  chart = new uPlot(options, columns, place);
  if (part) chart.setScale("x", part);
  drawReports(raw, zone, place.clientWidth);
  $("chart-caption").textContent = `Mean of what ${data.group === "all" ? "all devices" : `the devices of group ${data.group}`} measured, ${unit}, in ${zone}. `
    + "95 times in 100 the true mean lies within the band. Grey: each slot by itself. "
    + (filtered ? "Coloured: filtered. " : "")
    + (raw.kind.includes("model") ? "Shaded: threshold rounds, in which θ is learnt and no mean is estimated." : "");
  $("filter").textContent = filtered ? data.filter : "";
}

// A time line of the reports behind each slot: what came late or is lost is drawn on top, what is missing is a gap.
function drawReports(raw, zone, width) {
  const sent = raw.start.map((_, i) => raw.reports[i] === null ? null : raw.reports[i] + raw.cohort[i]);
  const { losses } = data;
  const at = new Map(losses.start.map((start, i) => [start, i]));
  const over = (name, below) => raw.start.map((start, i) => {
    const n = at.has(start) ? losses[name][at.get(start)] : null;
    return n ? n + (below[i] ?? 0) : null;
  });
  const late = over("late", sent), lost = over("lost", late.map((n, i) => n ?? sent[i]));
  const refused = over("refused", lost.map((n, i) => n ?? late[i] ?? sent[i]));
  // Strangers can send any number of deliveries: they may not make the reports too small to see.
  const most = Math.max(1, ...lost, ...late, ...sent);
  const bars = (of) => ({ width: 0, fill: colour(of), paths: uPlot.paths.bars({ size: [0.9] }), points: { show: false } });
  if (reportsChart) reportsChart.destroy();
  reportsChart = new uPlot({
    width, height: 96, padding: PADDING, legend: { show: false }, cursor: { show: false },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone),
    axes: [{ ...axis(), show: false }, { ...axis(), label: "reports", labelFont: "14px system-ui", space: 20 }],
    scales: { y: { range: (_, low, high) => [0, Math.max(Math.min(high, 1.5 * most), 1)] } },
    series: [{}, bars("refused"), bars("bad"), bars("warn"), bars("raw")],
  }, [raw.start, refused, lost, late, sent], $("reports"));
  const absent = sent.filter((n) => n === null).length;
  const sum = (name) => losses[name].reduce((total, n) => total + (n ?? 0), 0);
  const words = [`Reports in each slot.`];
  if (absent) words.push(`${number(absent, 6)} of ${number(sent.length, 6)} slots have no number: nobody reported, or too few did.`);
  if (sum("late")) words.push(`On top: ${number(sum("late"), 9)} came too late.`);
  if (sum("lost")) words.push(`On top, at the slot that showed it: ${number(sum("lost"), 9)} are lost.`);
  if (sum("refused")) words.push(`At the very top, when they arrived: ${number(sum("refused"), 9)} deliveries were refused.`);
  $("reports-caption").textContent = words.join(" ");
}

function tabulateGaps() {
  const place = $("losses").lastElementChild, known = data.gaps.slice(-500).reverse();
  place.replaceChildren(known.length ? rows(known.map((gap) => [time(gap.start, data.time_zone), time(gap.end, data.time_zone),
    gap.slots, gap.empty, gap.late ?? "–", gap.lost ?? "–", gap.refused ?? "–"]),
    ["from", "to", "slots", "without a number", "late", "lost", "refused meanwhile"])
    : element("p", "There is none in this time.", "small"));
}

function tabulateRefusals() {
  const { slot, start, reason, deliveries } = data.refusals;
  const order = slot.map((_, i) => i).reverse().slice(0, 500);
  $("refusals").lastElementChild.replaceChildren(order.length
    ? rows(order.map((i) => [time(start[i], data.time_zone), number(deliveries[i], 9), data.meanings[reason[i]] ?? reason[i]]),
      ["arrived from", "deliveries", "refused because"])
    : element("p", data.losses.refused.includes(null) ? "This is known for all devices together only." : "There is none in this time.", "small"));
}

function detail(i) {
  const raw = data?.raw;
  if (i === null || i === undefined || !raw) return;
  const words = [`${time(raw.start[i], data.time_zone)} (slot ${raw.slot[i]})`];
  if (raw.kind[i] === null || raw.kind[i] === "model") {
    words.push(raw.kind[i] === null ? "no number: nobody reported, or too few did"
      : `a threshold round: θ is learnt from ${raw.cohort[i]} reports, and no mean is estimated`);
    $("slot").textContent = words.join("; ");
    return;
  }
  words.push(`${number(raw.estimate[i])} ${data.unit}`);
  if (raw.standard_error[i] !== null) words.push(`95 %: ${number(raw.low[i])} to ${number(raw.high[i])}`);
  if (raw.truncated_mean[i] !== raw.estimate[i] && raw.truncated_se[i] !== null) {
    words.push(`of readings truncated at ${number(raw.theta[i])}: ${number(raw.truncated_mean[i])} ± ${number(1.96 * raw.truncated_se[i], 2)}`);
  }
  words.push(`${raw.reports[i]} reports, ${raw.cohort[i]} for the threshold`);
  if (raw.manipulation[i] !== null) words.push(`1 % liars could move it by ${number(raw.manipulation[i])}`);
  $("slot").textContent = words.join("; ");
}

function tabulate() {
  const { raw } = data;
  const order = raw.start.map((_, i) => i).reverse().slice(0, 500);
  $("table").lastElementChild.replaceChildren(rows(order.map((i) => [time(raw.start[i], data.time_zone),
    raw.kind[i] === "model" ? "learning θ" : raw.kind[i] === null ? "no number" : number(raw.estimate[i]),
    number(raw.low[i]), number(raw.high[i]), (raw.kind[i] === "model" ? raw.cohort[i] : raw.reports[i]) ?? "–"]),
  ["slot", `mean, ${data.unit}`, "95 % from", "to", "reports"]));
}

const selection = () => {
  const chosen = new FormData($("choose"));
  const words = new URLSearchParams({ group: chosen.get("group") || "all" });
  // From the newest slot back: what stopped long ago is still to be seen.
  // However long ago the campaign began, a question asks for no more than may be asked for.
  if (about && ends) {
    const most = about.largest_selection * about.slot_seconds;
    words.set("from", Math.max(ends - Math.min(chosen.get("span") || most, most), about.begins, 0));
  }
  if (chosen.get("filtered")) words.set("filtered", "true");
  return words;
};

// The days of a choice such as "yesterday", by the campaign's calendar: what the API takes as from and to.
function daysOf(when, zone) {
  const [y, m, d] = new Intl.DateTimeFormat("sv-SE", { timeZone: zone }).format(new Date()).split("-").map(Number);
  const day = (back) => new Date(Date.UTC(y, m - 1, d - back));
  const words = (back) => day(back).toISOString().slice(0, 10);
  if (when === "week") {
    const monday = (day(0).getUTCDay() + 6) % 7;
    return { from: words(monday + 7), to: words(monday) };
  }
  return { from: words(Number(when)), to: words(when === "1" ? 0 : -1) };
}

async function select() {
  if (!$("selection").open || !data) return;
  const name = shown, chosen = new FormData($("choose-selection"));
  if (!$("choose-selection").reportValidity()) return;
  const { min, max } = zoom ?? { min: data.raw.start[0] ?? 0, max: data.raw.start.at(-1) ?? 0 };
  const words = new URLSearchParams(chosen.get("when") === "chart"
    ? { from: Math.floor(min), to: Math.ceil(max) + about.slot_seconds } : daysOf(chosen.get("when"), about.time_zone));
  words.set("by", "group");
  if (chosen.get("begin") !== "00:00" || chosen.get("end") !== "24:00") words.set("between", `${chosen.get("begin")}-${chosen.get("end")}`);
  if (chosen.get("days")) words.set("days", chosen.get("days"));
  const place = $("selected"), asked = String(words);
  place.dataset.asked = asked;  // an older question's answer that comes later is not shown
  try {
    const answer = await api(`campaigns/${name}/selection?${words}`);
    if (name !== shown || place.dataset.asked !== asked) return;
    place.dataset.answered = asked;
    const heads = ["group", `mean, ${answer.unit}`, "± 95 %", "slots", "without a number", "devices", `total, ${answer.unit}`, "± 95 %"];
    const error = (se) => se === null ? "–" : number(1.96 * se, 2);
    place.replaceChildren(answer.selections.length ? rows(answer.selections.map((row) => {
      const drowned = 1.96 * row.standard_error > Math.abs(row.estimate - about.offset);
      return [row.group, drowned ? "not enough reports yet" : number(row.estimate), error(row.standard_error),
        row.slots, row.absent, row.devices ?? "–", drowned ? "–" : number(row.total), error(row.total_se)];
    }), heads) : element("p", "No slot of this time has a number: nobody reported, too few did, or θ was being learnt.", "small"));
  } catch (error) {
    place.replaceChildren(element("p", error.message, "small"));
  }
}

async function load() {
  const name = shown;
  const words = selection();
  refresh($("downloads"), about.formats.flatMap((format) => {
    const link = element("a", format);
    link.download = "";
    link.href = `api/v1/campaigns/${name}/download?${words}&format=${format}`;
    return [link, new Text(" ")];
  }));
  const where = new URLSearchParams([...words].filter(([key]) => key !== "filtered"));
  $("losses-csv").href = `api/v1/campaigns/${name}/download?${where}&of=losses`;
  $("refusals-csv").href = `api/v1/campaigns/${name}/download?${where}&of=refusals`;
  const [answer, { losses, gaps, refusals, meanings }] = await Promise.all([api(`campaigns/${name}/estimates?${words}`), api(`campaigns/${name}/losses?${where}`)]);
  if (name !== shown) return;
  data = { ...answer, losses, gaps, refusals, meanings, raw: whole(answer.raw, about.slot_seconds) };
  const before = performance.now();
  draw();
  performance.measure("undertone-draw", { start: before, end: performance.now() });
  ready();
  if ($("table").open) tabulate();
  if ($("losses").open) tabulateGaps();
  if ($("refusals").open) tabulateRefusals();
  await select();
}

// When a block of the cycle begins: a time of day where the cycle is a day.
const begins = (first, { cycle, slot_seconds: seconds, time_zone: zone }, epoch) => cycle * seconds === 86400
  ? clock(epoch - epoch % 86400 + first * seconds, zone)
  : `slot ${first} of ${cycle}`;

// --- widgets: the sections below the chart, in the order of WIDGETS. A widget is a function that fills its place on the
// page from the campaign's summary (`summary` in web/api.py). It is called at first and whenever the campaign has news.

function deliveries(place, campaign) {
  const late = campaign.unpublished;
  const share = number((100 * late) / Math.max(campaign.outcomes.counted || 0, late, 1), 2);
  place.replaceChildren(rows([...Object.entries(campaign.outcomes).filter(([, n]) => n)
    .sort((a, b) => b[1] - a[1]).map(([name, n]) => [name, number(n, 12)]),
  ...(late ? [["counted too late to publish", `${number(late, 12)} (${share} %)`]] : [])]));
}

function devices(place, campaign) {
  const groups = Object.entries(campaign.server.devices || {});
  place.replaceChildren(groups.length
    ? rows(groups.map(([group, of]) => [group, of.reporting, of.silent, of.lost, of.conflicting].map((v) => v ?? "–")),
      ["group", "reporting", "silent", "lost", "conflicting"])
    : element("p", campaign.server.state ? "The server has not counted its devices yet."
      : "This page reads a store. Only a running server knows which devices report.", "small"));
}

async function threshold(place, campaign) {
  const name = campaign.name;
  if (!place.childElementCount) {
    const [picture, words, blocks] = [element("div"), element("p"), element("div")];
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", "theta over time");
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
    ? `Devices cut off readings above θ: a smaller θ needs less noise. θ ${many ? "depends on the time of day" : `= ${number(last.theta)} ${unit}`} since ${time(last.epoch, answer.time_zone)}.`
    : "Devices will cut off readings above θ: a smaller θ needs less noise. θ is not chosen yet: the threshold rounds go on.";
  if (!known.length) return;
  if (many) {
    blocks.replaceChildren(rows(last.ranges.map(([first, , theta]) => [begins(first, answer, last.epoch), number(theta)]),
      ["from", `θ, ${unit}`]));
  }
  const end = Math.max(ends ?? 0, last.epoch + 1);
  const each = (pick) => [...known, last].map((epoch) => pick(...epoch.ranges.map(([, , theta]) => theta)));
  const line = { stroke: colour("filtered"), width: 2, paths: uPlot.paths.stepped({ align: 1 }) };
  // The highest and the lowest block: the same line where there is one.
  thetaChart = new uPlot({
    width: picture.clientWidth || 260, height: 140, legend: { show: false },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), answer.time_zone),
    axes: [{ ...axis(), space: 70, values: moments(answer.time_zone) }, { ...axis(), size: 60 }],
    series: [{}, { ...line }, { ...line }], bands: [band(null, 2, 1, "filtered")],
    scales: { y: { range: (_, low, high) => [0, high * 1.1] } },
  }, [[...known.map((epoch) => epoch.epoch), end], each(Math.max), each(Math.min)], picture);
}

// A distribution takes the server some seconds, so it is computed when somebody asks for it.
function distribution(place) {
  if (place.childElementCount) return;
  const [button, answer] = [element("button", "Ask for quantiles"), element("div")];
  button.onclick = () => quantiles(answer);
  place.append(button, answer);
}

async function quantiles(place) {
  const name = shown;
  const words = selection();
  words.delete("group"); words.delete("filtered");
  place.replaceChildren(element("p", "This takes some seconds.", "small"));
  try {
    const answer = await api(`campaigns/${name}/quantiles?${words}`);
    place.replaceChildren(rows(answer.quantiles.slice(-9).map((row) => [time(row.start), `${number(100 * row.share)} %`,
      number(row.value), `${number(row.low)} to ${number(row.high)}`]), ["from", "share", `below, ${answer.unit}`, "90 % band, a model"]));
  } catch (error) {
    place.replaceChildren(element("p", error.message, "small"));
  }
}

const WIDGETS = [
  { id: "theta", title: "Threshold θ", show: threshold },
  { id: "devices", title: "Devices", show: devices },
  { id: "outcomes", title: "Deliveries", show: deliveries },
  { id: "quantiles", title: "Distribution", show: distribution },
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

// Show what is below the charts. It is hidden until the charts are drawn, because they move it down when they appear.
const ready = () => $("one").removeAttribute("aria-busy");

function showOne(name) {
  const fresh = name !== shown;
  shown = name;
  if (!fresh) return;
  $("one").setAttribute("aria-busy", "true");
  news?.close();
  data = zoom = null;
  news = new EventSource(`api/v1/campaigns/${name}/events`);
  news.addEventListener("campaign", (event) => { glance(JSON.parse(event.data)); load().catch(say); });
  // What is asked for once the news have begun misses nothing, also after the server was away.
  const ask = () => api(`campaigns/${name}`).then((campaign) => {
    if (name !== shown) return;
    glance(campaign);
    return load().then(actions);
  }).catch((error) => { if (name === shown) ready(); say(error); });
  news.onopen = () => { link("live"); ask(); };
  news.onerror = () => { link("the server does not answer: trying again", true); if (!data) ask(); };
  $("widgets").replaceChildren();
  delete $("choose").elements.span.dataset.spans;
  $("choose").elements.group.replaceChildren();
  if (wished().has("filtered")) $("choose").elements.filtered.checked = wished().get("filtered") === "true";
}

function link(words, lost = false) {
  $("link").textContent = words;
  $("link").className = lost ? "lost" : "";
}
const say = (error) => link(error.message, true);

// --- actions, where the server allows them

async function session() {
  const { actions: known, token } = await api("session");
  $("login").hidden = !known.length || Boolean(token);
  $("logout").hidden = !token;
  against = token || null;
  $("actions").hidden = !token;
  $("actions").replaceChildren(...(token ? known : []).map((name) => {
    const button = element("button", name === "revoke" ? "revoke a device" : `${name} ${shown ?? ""}`);
    button.onclick = () => {
      const device = name === "revoke" ? prompt(`Which device of ${shown} is revoked, for good?`) : "";
      if (name === "revoke" ? !device : !confirm(`Really ${name} ${shown}?`)) return;
      api(`campaigns/${shown}/actions/${name}`,
        { method: "POST", headers: { "x-undertone-token": against }, body: JSON.stringify({ device: device.trim() }) })
        .then(({ done }) => link(done)).catch(say);
    };
    return button;
  }));
}
const actions = () => session();

// --- wiring

function route() {
  const name = decodeURIComponent(location.hash.slice(1)).split("?")[0];
  if (name === "main") return;  // the link past the header
  const one = Boolean(name);
  $("all").hidden = one;
  $("one").hidden = !one;
  if (one) showOne(name);
  else { shown = null; news?.close(); showAll().then(() => link("")).catch(say); }
  session().catch(() => {});
}
addEventListener("hashchange", route);
addEventListener("resize", () => data && draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (data) { draw(); drawWidgets(about); } });
matchMedia("print").addEventListener("change", () => { if (data) draw(); });
$("choose").addEventListener("change", () => {
  const chosen = new FormData($("choose"));
  const words = new URLSearchParams({ group: chosen.get("group") || "all", span: chosen.get("span") ?? "",
    filtered: String(Boolean(chosen.get("filtered"))) });
  history.replaceState(null, "", `#${shown}?${words}`);
  zoom = null;
  load().catch(say);
});
$("table").addEventListener("toggle", () => data && tabulate());
$("zoom-out").addEventListener("click", () => { zoom = null; $("zoom-out").hidden = true; draw(); select().catch(say); });
$("hours").append(...[...Array(25).keys()].map((hour) => new Option("", `${String(hour).padStart(2, "0")}:00`)));
// Questions that people ask often: a button fills in the form.
$("presets").addEventListener("click", ({ target }) => {
  if (!target.dataset.when) return;
  for (const [name, chosen] of Object.entries({ begin: "00:00", end: "24:00", days: "", ...target.dataset })) {
    $("choose-selection").elements[name].value = chosen;
  }
  select().catch(say);
});
$("losses").addEventListener("toggle", () => data && tabulateGaps());
$("refusals").addEventListener("toggle", () => data && tabulateRefusals());
$("selection").addEventListener("toggle", () => select().catch(say));
$("choose-selection").addEventListener("change", () => select().catch(say));
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = new FormData(event.target).get("token");
  event.target.reset();
  api("session", { method: "POST", body: JSON.stringify({ token }) }).then(session).catch(say);
});
$("logout").addEventListener("click", () => api("session", { method: "DELETE" }).then(session).catch(say));
setInterval(() => { if (!shown && !document.hidden) showAll().catch(say); }, 5000);
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
