// The person's own numbers beside the published means: computed and kept on this phone.
import { element, moment, number, paragraph } from "./page.js";
import { fill } from "./words.js";

// A mean is shown with as many digits as a reader needs: 12.3 with its decimal, 1234.5 without.
const digits = (value) => (Math.abs(value) < 100 ? 1 : 0);
const amount = (thousandths) => number(thousandths / 1000, digits(thousandths / 1000));

// Returns [element, update(status)].
export function others({ measures, send, words }) {
  const say = words.phone.others;
  const title = element("h2", {}, say.title);
  const list = element("dl", {});
  const note = paragraph();
  const box = element("input", {
    type: "checkbox",
    id: "compares",
    onchange: () => send({ do: "compare", on: box.checked }),
  });
  const choice = element("label", { className: "choice" }, box, say.on);
  let drawn = "";

  const fields = (row) => ({
    own: "own" in row ? amount(row.own) : "",
    mean: amount(row.mean),
    low: amount(row.low),
    high: amount(row.high),
    unit: measures.unit,
    moment: moment(row.start),
  });
  // A number and its unit stay on one line.
  const together = (text) => text.replaceAll(` ${measures.unit}`, `\u00a0${measures.unit}`);
  const line = (title, text) => [element("dt", {}, title), element("dd", {}, together(text))];

  function update({ compares, compared, compared_group: group }) {
    const now = JSON.stringify([compares, compared, group]);
    if (now === drawn) return;
    drawn = now;
    box.checked = compares;
    title.textContent = group ? fill(say.title_group, { group }) : say.title;
    const lines = [];
    for (const span of ["newest", "evening", "week"]) {
      const row = compared?.[span];
      if (row) lines.push(line(fill(say[span], fields(row)), fill(say.both, fields(row))));
    }
    if (compared && !compared.newest) {
      const row = compared.others;
      lines.push(line(fill(say.newest, fields(row)), fill(say.alone, fields(row))));
    }
    list.replaceChildren(...lines.flat());
    list.hidden = !lines.length;
    note.textContent = !compares ? say.off : lines.length ? say.note : say.nothing;
  }

  return [element("section", { className: "others" }, title, list, note, choice), update];
}
