// The worker of a phone's page: it owns the journal, the connection and the device, which runs under MicroPython.
//
// The page sends {do, ...}, see ACTIONS; the worker posts a view of everything that the page shows. The journal is open
// in one tab only, so that at most one worker of this browser runs the device.
import { monotonicMilliseconds, unixSeconds } from "./clock.js";
import { fromHex, toHex } from "./hex.js";
import { Busy, Damaged, openJournal } from "./journal.js";
import { Stream } from "./socket.js";
import { loadMicroPython } from "./vendor/micropython.mjs";
import { loadWords } from "./words.js";

const STEP_MILLISECONDS = 250;
const BUSY_MILLISECONDS = 1000;
const HEAP_BYTES = 2 << 20;
const PYSTACK_WORDS = 1 << 14;
const FIRST_RETRY_MILLISECONDS = 1000;
const LONGEST_RETRY_MILLISECONDS = 60000;
const LEAVE_MILLISECONDS = 3000;

const JOIN = "app/join";
const DEVICE = "app/device";
const LEFT = "app/left";
// [{code, key}] of each device that has left; an entry stays until the server has been told, or refuses for good.
const GONE = "app/gone";

let journal = null;
let python = null;
// The texts in the person's language. An error for the page is {key, ...}; its sentence is in words.phone.errors.
let words = null;
// The address of MQTT over WebSocket. It comes from the files that the server serves now, so that a phone follows a
// server that moves.
let websocket = null;
let stream = null;
let sample = null;
let running = false;
let timer = null;
// Keys of the devices whose leaving is being sent to the server.
const telling = new Set();
let posted = "";
const view = { stage: "starting", offer: null, agreed: null, error: null, status: null, left: null, source: null };

const encode = (value) => new TextEncoder().encode(JSON.stringify(value));

function readJson(name) {
  const content = journal.read(name);
  return content ? JSON.parse(new TextDecoder().decode(content)) : null;
}

function post(changes = {}) {
  Object.assign(view, changes);
  const text = JSON.stringify(view);
  if (text !== posted) postMessage(JSON.parse((posted = text)));
}

// ----------------------------------------------------------------------------------------------- MicroPython

// What phone.py imports as `_phone`. These functions must not throw, because an exception would leave the interpreter
// in the middle of a call.
const PHONE = {
  random: (count) => {
    try {
      return toHex(crypto.getRandomValues(new Uint8Array(count)));
    } catch (error) {
      console.warn(`random numbers: ${error.message}`);
      return null;
    }
  },
  seconds: () => String(unixSeconds()),
  milliseconds: () => String(monotonicMilliseconds()),
  network_milliseconds: () => String(Math.floor(performance.now())),
  sample: () => sample,
  read: (name) => {
    const content = journal.read(name);
    return content ? toHex(content) : null;
  },
  write: (name, hex) => succeeds(() => journal.write(name, fromHex(hex))),
  delete: (name) => succeeds(() => journal.delete(name)),
  erase: () => journal.erase(),
  connect: (url) => {
    stream?.close();
    stream = new Stream(url, stepSoon);
  },
  take: (most) => {
    const part = stream.take(most);
    return part ? toHex(part) : null;
  },
  send: (hex) => stream.send(fromHex(hex)),
  disconnect: () => stream?.close(),
};

function succeeds(action) {
  try {
    action();
    return true;
  } catch (error) {
    console.warn(`the journal: ${error.message}`);
    return false;
  }
}

async function startPython() {
  const [mp, code, broker] = await Promise.all([
    loadMicroPython({ heapsize: HEAP_BYTES, pystack: PYSTACK_WORDS }),
    fetch("code.json").then((response) => response.json()),
    fetch("broker.json").then((response) => response.json()),
  ]);
  websocket = broker.websocket;
  for (const [path, text] of Object.entries(code)) {
    mp.FS.mkdirTree(`/lib/${path}`.replace(/\/[^/]*$/, ""));
    mp.FS.writeFile(`/lib/${path}`, text);
  }
  mp.registerJsModule("_phone", PHONE);
  mp.runPython("import phone");
  const call = mp.globals.get("phone").call;
  python = (action, ...values) => {
    const { result, error } = JSON.parse(call(action, JSON.stringify(values)));
    if (error !== undefined) throw new Error(error);
    return result;
  };
}

// ----------------------------------------------------------------------------------------------- the device

function startDevice() {
  const { files } = readJson(DEVICE);
  const { offer, source } = readJson(JOIN);
  // The agreement on the page is computed anew from the policy that is stored.
  const agreed = python("describe_policy", files["policy.json"], words.consent);
  const status = python("start", files, websocket, source.whole);
  if (readJson(LEFT)) return finishLeaving();
  running = true;
  post({ stage: "running", offer, agreed, source, status, error: null });
  step();
}

function step() {
  clearTimeout(timer);
  if (!running) return;
  python("step");
  post({ status: python("describe", evening()) });
  timer = setTimeout(step, STEP_MILLISECONDS);
}

// The Unix second of the last 18:00 by the phone's clock and zone, from which the comparison counts an evening.
function evening() {
  const now = new Date(1000 * unixSeconds());
  const begins = new Date(now).setHours(18, 0, 0, 0);
  return Math.floor((begins <= now ? begins : new Date(now).setHours(-6, 0, 0, 0)) / 1000);
}

function stepSoon() {
  clearTimeout(timer);
  timer = setTimeout(step, 0);
}

// ----------------------------------------------------------------------------------------------- joining

// A failure that the page has words for: `key` in words.phone.errors, or the reason of a refusal in words.refusals.
class Said extends Error {
  constructor(key, fields = {}) {
    super(key);
    this.said = { key, ...fields };
  }
}

// An answer of the server that stays the same however often the request is repeated.
class Final extends Said {}

// Return what the page shows of a failure. A failure for which the page has no words goes to the browser's log.
function said(error, key) {
  if (error instanceof Said) return error.said;
  console.info(error.message);
  return { key };
}

async function ask(path, body) {
  const response = await fetch(`/api/join/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "accept-language": words.tag },
    body: JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
  });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  const passes = response.status === 429 || response.status >= 500;
  const key = answer.reason in words.refusals ? answer.reason : "server";
  throw new (passes ? Said : Final)(key, { status: response.status });
}

// Repeat a request while `still()` is true, until the server has accepted it or refuses for good. Returns the answer,
// or null if `still()` has become false; throws Final for a refusal. `failed` is called after each other attempt.
async function askUntilAnswered(path, body, still, failed = (error) => post({ error: said(error, "offline") })) {
  for (let wait = FIRST_RETRY_MILLISECONDS; still(); wait = Math.min(2 * wait, LONGEST_RETRY_MILLISECONDS)) {
    try {
      return await ask(path, body);
    } catch (error) {
      if (error instanceof Final) throw error;
      failed(error);
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
  return null;
}

// Returns why no phone can take part in the offered campaign, '' if phones can. The code of the link stays usable.
function unsuitable(offer) {
  if (offer.credentials !== "password") {
    return "certificates";
  }
  return offer.websocket ? "" : "no_websocket";
}

async function invite({ code }) {
  if (view.stage === "running" || view.stage === "joining") {
    // The link with which the person joined is no error: people open it again to come back to the app.
    if (code !== readJson(JOIN).code) post({ error: { key: "takes_part" } });
    return;
  }
  if (view.stage !== "none" && view.stage !== "offer" && view.stage !== "left") return;
  post({ stage: "asking", error: null, offer: null });
  try {
    const offer = await askUntilAnswered("offer", { code }, () => view.stage === "asking");
    if (offer && unsuitable(offer)) throw new Final(unsuitable(offer));
    if (offer) {
      const agreed = python("describe_offer", offer, words.consent);
      post({ stage: "offer", offer, agreed, code, error: null });
    }
  } catch (error) {
    post({ stage: "none", error: said(error, "unfit") });
  }
}

async function agree({ source }) {
  if (view.stage !== "offer") return;
  const key = toHex(crypto.getRandomValues(new Uint8Array(32)));
  journal.delete(LEFT);
  // The key is stored before the server binds the code to it, so that the request can be repeated if the connection
  // breaks.
  journal.write(JOIN, encode({ code: view.code, key, offer: view.offer, source, agreed: unixSeconds() }));
  delete view.code;
  await redeem();
}

async function redeem() {
  const { code, key, offer, source } = readJson(JOIN);
  post({ stage: "joining", offer, source, error: null });
  try {
    const answer = await askUntilAnswered("redeem", { code, key }, () => view.stage === "joining");
    if (!answer) return;
    try {
      python("same_policy", offer.policy, answer.files["policy.json"]);
    } catch (error) {
      console.info(error.message);
      throw new Final("other_policy");
    }
    journal.write(DEVICE, encode(answer));
    startDevice();
  } catch (error) {
    // The device goes first, so that a power cut in between leaves no device without what the person agreed to.
    journal.delete(DEVICE);
    journal.delete(JOIN);
    post({ stage: "none", error: said(error, "files") });
  }
}

async function leave() {
  if (view.stage !== "running") return;
  post({ stage: "leaving" });
  // Reports that were drawn are sent now, if the server can be reached.
  const until = monotonicMilliseconds() + LEAVE_MILLISECONDS;
  while (view.status.outbox && view.status.online && monotonicMilliseconds() < until) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  running = false;
  // The numbers that a person entered and the comparison are not kept.
  const { entries, compared, ...status } = python("describe", evening());
  const left = { at: unixSeconds(), offer: view.offer, agreed: view.agreed, status };
  // From here on the device has left, even if the page closes before the next line runs.
  journal.write(LEFT, encode(left));
  finishLeaving();
}

function finishLeaving() {
  python("leave");
  const { code, key } = readJson(JOIN);
  // After a power cut the entry may be there already.
  writeGone([...gone().filter((each) => each.key !== key), { code, key }]);
  journal.delete(DEVICE);
  showLeft();
}

// Show that the device has left. After a power cut, this also finishes its leaving.
function showLeft() {
  journal.delete(JOIN);
  post({ stage: "left", left: readJson(LEFT), status: null });
  tellGone();
}

function gone() {
  return readJson(GONE) ?? [];
}

function writeGone(left) {
  if (left.length) journal.write(GONE, encode(left));
  else journal.delete(GONE);
}

// Asks the server to revoke the devices that have left, so that it does not count them as silent. All requests run at
// the same time.
function tellGone() {
  for (const each of gone()) if (!telling.has(each.key)) tell(each);
}

async function tell({ code, key }) {
  telling.add(key);
  try {
    await askUntilAnswered(
      "leave",
      { code, key },
      () => true,
      (error) => console.info(error.message),
    );
  } catch (error) {
    console.info(error.message);
  }
  writeGone(gone().filter((each) => each.key !== key));
  telling.delete(key);
}

const ACTIONS = {
  invite,
  agree,
  leave,
  decline: () => post({ stage: "none", offer: null }),
  enter: ({ number }) => python("enter", number),
  sample: ({ value }) => (sample = value),
  pause: ({ seconds }) => python("pause", seconds),
  resume: () => python("resume"),
  compare: ({ on }) => python("compare", on),
};

// ----------------------------------------------------------------------------------------------- the start

async function openWhenFree() {
  for (;;) {
    try {
      return await openJournal("undertone");
    } catch (error) {
      if (!(error instanceof Busy)) throw error;
      post({ stage: "busy" });
      await new Promise((resolve) => setTimeout(resolve, BUSY_MILLISECONDS));
    }
  }
}

async function start() {
  try {
    journal = await openWhenFree();
  } catch (error) {
    // A browser that cannot keep the journal has no data that could be damaged.
    console.info(error.message);
    post({ stage: error instanceof Damaged ? "damaged" : "unable" });
    return;
  }
  try {
    // The words are not loaded at the top of the module: messages that arrive while a module waits there are lost.
    words = await loadWords();
    await startPython();
    tellGone();
    if (readJson(DEVICE)) startDevice();
    else if (readJson(LEFT)) showLeft();
    else if (readJson(JOIN)) await redeem();
    else post({ stage: "none" });
  } catch (error) {
    post({ stage: "failed", error: error.message });
  }
}

const started = start();

self.onmessage = async ({ data }) => {
  await started;
  // An error is shown until the person does something else; samples come without the person.
  if (data.do !== "sample") view.error = null;
  try {
    await ACTIONS[data.do](data);
    if (running) step();
  } catch (error) {
    post({ error: said(error, "disk") });
  }
};
