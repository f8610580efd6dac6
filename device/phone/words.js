// The words that a person reads: one file for each language, the same as of the device package.

// Returns the words of the first language of the browser's preferences that has a file. The whole app speaks it.
export async function loadWords() {
    const { default: english, languages } = await fetch('words/languages.json').then((response) => response.json());
    const wanted = (navigator.languages ?? []).map((tag) => tag.toLowerCase().split('-')[0]);
    const tag = wanted.find((name) => languages.includes(name)) ?? english;
    return { tag, ...(await fetch(`words/${tag}.json`).then((response) => response.json())) };
}

// Returns a text with its fields in braces filled in.
export const fill = (text, fields) => text.replace(/\{(\w+)\}/g, (_, name) => fields[name]);
