// The words that a person reads: one file for each language, the same as of the device package.

// Returns the words of the first language of the browser's preferences that has a file. The whole app speaks it.
export async function loadWords() {
    const { default: english, languages } = await fetch('words/languages.json').then((response) => response.json());
    const wanted = (navigator.languages ?? []).map((tag) => tag.toLowerCase().split('-')[0]);
    const language = wanted.find((name) => languages.includes(name)) ?? english;
    return { tag: language, ...(await fetch(`words/${language}.json`).then((response) => response.json())) };
}
