// The words that a person reads, from one file for each language, the same files as in the device package.

// Returns the words in the first language of the browser's preferences that has a file; the whole app uses them.
// `locale`: that preference with its region, for numbers and times.
export async function loadWords() {
  const { default: english, languages } = await fetch("words/languages.json").then((response) => response.json());
  const languageOf = (locale) => locale.toLowerCase().split("-")[0];
  const locale = (navigator.languages ?? []).find((wanted) => languages.includes(languageOf(wanted))) ?? english;
  const tag = languageOf(locale);
  return { tag, locale, ...(await fetch(`words/${tag}.json`).then((response) => response.json())) };
}

// Returns a text with its fields in braces filled in.
export const fill = (text, fields) => text.replace(/\{(\w+)\}/g, (_, name) => fields[name]);
