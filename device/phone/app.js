// The page that a person sees: five screens over the worker's view. It holds no state of the device.
import { button, element, facts, moment, number, paragraph } from './page.js';
import { SOURCES } from './sources/index.js';

const worker = new Worker('worker.js', { type: 'module' });
const send = (message) => worker.postMessage(message);
const root = document.getElementById('screen');

const ENDLESS = 0xffffffff;
const UNIT = 1 << 20;
const DAY = 86400;

// ----------------------------------------------------------------------------------------------- words

const FORGETTING =
    'If you clear this site’s data, or remove the app together with its data, this phone forgets what it has spent. A' +
    ' new link then makes it a new device that begins its limits again: what you sent before still tells about you.';

// Why the last period gave no report, in words for people who do not know the device's.
const OBSTACLES = {
    ahead: 'The phone’s clock was ahead.',
    boots: 'The app was started too often today.',
    clock: 'This phone’s clock and the server’s do not agree, or the phone has not reached the server yet. Nothing is sent until they agree.',
    ended: 'The measurement is over.',
    entropy: 'This browser gives no random numbers.',
    lifetime: 'Your phone has used up its limit for life. It sends nothing any more.',
    no_campaign: 'The measurement has not begun yet.',
    period: 'Your phone has sent as much as it may for now.',
    rest: 'Your phone rests between two reports.',
    storage: 'The phone’s disk takes no more data, so that nothing can be sent.',
    waiting: 'The measurement has not begun yet.',
};

const upper = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// What this phone has computed from the policy that it stores; the server's words are who asks and why.
const rows = ({ agreed }, ...keys) =>
    agreed.rows.filter(([key]) => keys.includes(key)).map(([, title, text]) => [title, upper(text)]);

// ----------------------------------------------------------------------------------------------- screens

// Each screen builds its elements once and returns [elements, update(view), stop()].

// Returns the code of a link, '' without one. What follows a dot there is for homes and gateways, which compare it with
// the certificate of the server's authority; the browser has checked the certificate already.
const codeOf = (link) => (link.split('#')[1] ?? '').split('.')[0];

function waiting(words) {
    return () => [[paragraph(words)]];
}

function failed({ error }) {
    return [
        [
            element('h1', {}, 'The app could not start'),
            paragraph('Nothing is sent. Close it, look whether this phone has a network, and open it again.'),
            paragraph(`The reason: ${error}.`),
        ],
    ];
}

function none() {
    const input = element('input', { type: 'url', placeholder: 'https://…/join#…', id: 'link', required: true });
    const trouble = element('p', { className: 'trouble' });
    const open = (event) => {
        event.preventDefault();
        const code = codeOf(input.value);
        if (code) send({ do: 'invite', code });
        else trouble.textContent = 'This link has no code after the sign #. Copy the whole link.';
    };
    const form = element(
        'form',
        { onsubmit: open },
        element('label', { htmlFor: 'link' }, 'The link that you got'),
        element('div', { className: 'row' }, input, element('button', {}, 'Open')),
    );
    const update = ({ error }) => {
        if (error) trouble.textContent = error;
    };
    return [
        [
            element('h1', {}, 'You take part in nothing yet'),
            paragraph('Somebody who measures something sends you a link. Open it on this phone, or paste it here.'),
            form,
            trouble,
        ],
        update,
    ];
}

function join(view) {
    const { offer } = view;
    return [
        [
            element('h1', {}, 'You are invited to a measurement'),
            facts([
                ['Who asks', offer.operator],
                ...(offer.about ? [['In their own words', offer.about]] : []),
                ...rows(view, 'measured', 'often', 'until'),
            ]),
            paragraph('Nothing is measured or sent yet. First read how your numbers are protected.'),
            element(
                'div',
                { className: 'actions' },
                button('How am I protected?', () => show('agree'), 'main'),
                button('No, thank you', decline),
            ),
        ],
    ];
}

function agree(view) {
    const { offer, agreed } = view;
    const { measures } = agreed;
    const fitting = SOURCES.filter((source) => source.fits(measures));
    const choose = element('fieldset', {}, element('legend', {}, 'Where the number comes from'));
    for (const [index, source] of fitting.entries()) {
        const input = element('input', { type: 'radio', name: 'source', value: source.id, checked: index === 0 });
        choose.append(element('label', { className: 'choice' }, input, source.title));
    }
    const begin = async () => {
        const chosen = fitting.find(({ id }) => id === choose.querySelector('input:checked').value);
        await navigator.storage?.persist?.();
        history.replaceState(null, '', location.pathname);
        send({ do: 'agree', source: { id: chosen.id, whole: chosen.whole } });
    };
    return [
        [
            element('h1', {}, 'How your numbers are protected'),
            paragraph(
                'Your phone blurs each number at random before it leaves the phone. From one blurred number nobody can' +
                    ` be sure of yours, not ${offer.operator} and not somebody who reads along. In the average over many` +
                    ' phones the blur cancels out.',
            ),
            facts(rows(view, 'reading', 'day', 'life', 'next')),
            element('h2', {}, 'What else the server sees'),
            paragraph(
                'That this phone takes part, when it reports, and its internet address. It gets no name, no place, no' +
                    ' contacts, and never your number itself.',
            ),
            choose,
            element(
                'details',
                {},
                element('summary', {}, 'For experts'),
                paragraph(agreed.expert),
            ),
            paragraph('You can pause or leave at any time. What was sent until then cannot be taken back.'),
            element(
                'div',
                { className: 'actions' },
                button('I agree and take part', begin, 'main'),
                button('No, thank you', decline),
            ),
        ],
    ];
}

// What the phone has spent, on every screen of a device.
function spent() {
    const text = paragraph();
    const bar = element('progress', { max: 1, value: 0 });
    const expert = paragraph();
    const update = (status) => {
        const sent = `Your phone has made ${number(status.sequence)} ${status.sequence === 1 ? 'report' : 'reports'}.`;
        const used = status.lifetime ? status.ever / status.lifetime : 0;
        bar.hidden = !status.lifetime;
        bar.value = used;
        text.textContent = status.lifetime
            ? `${sent} That is ${number(100 * used, 1)} % of all that it may ever send.`
            : `${sent} There is no limit for life, only one for each day.`;
        expert.textContent =
            `ε = ${number(status.recent / UNIT, 2)} today and yesterday, ${number(status.month / UNIT, 2)} in thirty` +
            ` days, ${number(status.ever / UNIT, 2)}` +
            (status.lifetime ? ` of ${number(status.lifetime / UNIT, 2)} ever.` : ' ever.');
    };
    const box = element(
        'section',
        { className: 'spent' },
        element('h2', {}, 'What you have given so far'),
        text,
        bar,
        element('details', {}, element('summary', {}, 'For experts'), expert),
    );
    return [box, update];
}

function about(view) {
    const { offer, status } = view;
    return element(
        'details',
        {},
        element('summary', {}, 'About this measurement'),
        facts([
            ['Who asks', offer.operator],
            ...rows(view, 'measured', 'often', 'until', 'reading', 'day', 'life', 'next'),
            ...status.history.map(([at, names]) => [moment(at), `${names.join(', ')} follows, inside what you agreed to`]),
            ['This phone’s name there', status.device],
            ['A lost phone', `Tell ${offer.operator} the name above: they can shut this phone out.`],
            ['If you clear the data', FORGETTING],
        ]),
    );
}

function leaveButton() {
    return button('Leave', () => {
        if (confirm('Leave this measurement? Your phone then sends nothing any more.')) send({ do: 'leave' });
    });
}

function running(started) {
    const { agreed, source } = started;
    const state = element('p', { className: 'state', role: 'status' });
    const trouble = element('p', { className: 'trouble' });
    const [box, updateSpent] = spent();
    const shown = SOURCES.find(({ id }) => id === source.id).show({ measures: agreed.measures, send });
    const pause = element('details', { className: 'pause' }, element('summary', {}, 'Pause'));
    for (const [label, seconds] of [
        ['For a day', DAY],
        ['For a week', 7 * DAY],
        ['Until I go on', 0],
    ]) {
        pause.append(button(label, () => send({ do: 'pause', seconds })));
    }
    const update = (view) => {
        const { counts, online, paused, outbox, trouble: why } = view.status;
        state.textContent = online
            ? 'The server can be reached.'
            : 'The server cannot be reached now; the app tries again by itself.';
        const lines = [];
        if (OBSTACLES[paused] && (counts.heard || paused !== 'no_campaign')) lines.push(OBSTACLES[paused]);
        if (view.status.outside.length) {
            lines.push(
                `A new question for you: ${view.status.outside.join(', ')} shall follow, which is outside what you agreed` +
                    ' to. Nothing is sent for it. To take part, leave and open the new link that you were given.',
            );
        }
        if (outbox) lines.push(`${number(outbox)} ${outbox === 1 ? 'report waits' : 'reports wait'} to be sent.`);
        if (why && !online) lines.push(`The reason: ${why}.`);
        if (why && online) lines.push(`${why}.`);
        if (view.error) lines.push(view.error);
        trouble.textContent = lines.join(' ');
        updateSpent(view.status);
        shown.update(view);
    };
    return [
        [
            element('h1', {}, 'Your phone takes part'),
            paragraph(upper(agreed.what)),
            state,
            shown.element,
            trouble,
            box,
            about(started),
            element('div', { className: 'actions' }, pause, leaveButton()),
            installButton(),
        ],
        update,
        shown.stop,
    ];
}

function paused(started) {
    const text = paragraph();
    const [box, updateSpent] = spent();
    const update = ({ status: { pause, time }, error }) => {
        const [start, until] = pause;
        const begins = start > time ? `The pause begins ${moment(start)}; the period before it is still sent. ` : '';
        const ends = until >= ENDLESS ? 'Nothing is sent until you go on.' : `Nothing is sent until ${moment(until)}.`;
        text.textContent = `${begins}${ends} ${error ?? ''}`;
    };
    return [
        [
            element('h1', {}, 'Your phone pauses'),
            text,
            paragraph('The server can see that your phone is silent, but not why.'),
            box,
            about(started),
            element(
                'div',
                { className: 'actions' },
                button('Go on', () => send({ do: 'resume' }), 'main'),
                leaveButton(),
            ),
        ],
        (view) => {
            update(view);
            updateSpent(view.status);
        },
    ];
}

function left({ left: { at, offer, status } }) {
    const [box, updateSpent] = spent();
    updateSpent(status);
    return [
        [
            element('h1', {}, 'You have left'),
            paragraph(`Since ${moment(at)} your phone sends nothing to ${offer.operator} any more.`),
            box,
            paragraph('What was sent stays in the averages and cannot be taken out of them.'),
            paragraph(
                'You can come back with a new link. On this phone, the limit for life then goes on from here.' +
                    ` ${FORGETTING}`,
            ),
            element('div', { className: 'actions' }, button('Open another link', () => show('none'))),
        ],
    ];
}

const SCREENS = {
    starting: waiting('One moment …'),
    asking: waiting('Asking the server what this link is for …'),
    joining: waiting('You agreed. Your phone is being made ready …'),
    leaving: waiting('Leaving …'),
    busy: waiting('This app is already open in another tab or window. Close it there to go on here.'),
    damaged: waiting('The data of this app is damaged, so that it cannot know what was spent. Nothing is sent.'),
    failed,
    none,
    join,
    agree,
    running,
    paused,
    left,
};

// ----------------------------------------------------------------------------------------------- the current screen

let view = { stage: 'starting' };
let current = null;
let updateScreen = null;
let stopScreen = null;
let asked = null;

function screenOf({ stage, status }) {
    if (stage === 'offer') return asked === 'agree' ? 'agree' : 'join';
    if (stage === 'left') return asked === 'none' ? 'none' : 'left';
    if (stage === 'running') return status.pause[1] > status.time ? 'paused' : 'running';
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
    history.replaceState(null, '', location.pathname);
    send({ do: 'decline' });
}

worker.onmessage = ({ data }) => {
    if (data.stage !== view.stage) asked = null;
    view = data;
    render();
};

worker.onerror = (event) => {
    root.replaceChildren(paragraph(`The app cannot run in this browser: ${event.message ?? 'its worker ends'}.`));
};

function followLink() {
    const code = codeOf(location.hash);
    if (code) send({ do: 'invite', code });
}

addEventListener('hashchange', followLink);
followLink();

// ----------------------------------------------------------------------------------------------- the home screen

let install = null;

addEventListener('beforeinstallprompt', (event) => {
    event.preventDefault();
    install = event;
    for (const shown of document.querySelectorAll('.install')) shown.hidden = false;
});

function installButton() {
    const put = button('Put this app on the home screen', () => install?.prompt(), 'install');
    put.hidden = !install;
    return put;
}

// New files wait until every page of the app is closed, so that none mixes old files with new ones.
navigator.serviceWorker?.register('service-worker.js');
