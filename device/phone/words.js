// The words that a person reads: one file for each language, the same as of the device package.

const { default: english, languages } = await fetch('words/languages.json').then((response) => response.json());

// The first language of the browser's preferences that has a file. The whole app speaks it.
export const language =
    (navigator.languages ?? []).map((tag) => tag.toLowerCase().split('-')[0]).find((name) => languages.includes(name)) ??
    english;

export const words = await fetch(`words/${language}.json`).then((response) => response.json());
