// Small helpers to build the page: elements, and numbers and times in the person's own language.

export function element(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
        else if (name in made) made[name] = value;
        else made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
}

export const button = (label, onclick, kind = '') => element('button', { type: 'button', onclick, className: kind }, label);

export const paragraph = (...children) => element('p', {}, ...children);

// A list of questions and answers.
export const facts = (rows) =>
    element('dl', {}, ...rows.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]));

export const number = (value, digits = 0) => value.toLocaleString(undefined, { maximumFractionDigits: digits });

export const moment = (seconds) =>
    new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });

export const day = (seconds) => new Date(seconds * 1000).toLocaleDateString(undefined, { dateStyle: 'long' });

const SPANS = [
    [86400, 'day'],
    [3600, 'hour'],
    [60, 'minute'],
    [1, 'second'],
];

// A length of time in words: "15 minutes", "day" for one of them.
export function span(seconds) {
    const [size, name] = SPANS.find(([size]) => seconds >= size && seconds % size === 0) ?? [1, 'second'];
    const count = seconds / size;
    return count === 1 ? name : `${number(count)} ${name}s`;
}
