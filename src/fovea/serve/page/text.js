// The words that speak for an answer, marked as one types.
import { button } from "./controls.js";
import { answered, network } from "./parts.js";
import { make, marked, table } from "./painting.js";

const sentence = make("p", "sentence");

export const text = {
  title: "Text",
  verb: "localize",
  texts: true,
  about: "The words that speak most for the answer, marked as you type.",
  keeps: ["json", "html"],
  controls(page) {
    const input = Object.assign(make("textarea"), { id: "text", rows: 3, value: page.text, spellcheck: false, maxLength: 5000 });
    const label = Object.assign(make("label", "", "A sentence of a film review"), { htmlFor: "text" });
    input.addEventListener("input", () => {
      page.text = input.value;
      page.change({}, { hurry: false });
    });
    const examples = page.about.texts.map((words) =>
      button(words, () => {
        input.value = page.text = words;
        page.change({});
      }),
    );
    sentence.replaceChildren();
    page.places.photo.replaceChildren(make("div", "typing", label, input, sentence, make("div", "texts", ...examples)));
    return [network(page)];
  },
  emptied: () => sentence.replaceChildren(),
  async run(page, signal) {
    if (!page.text.trim()) {
      page.empty();
      return "Type a sentence";
    }
    const { result, view } = await page.ask("localize", { text: page.text }, { doing: "Reading", signal });
    const spans = result.branches.map((row) => [String(row.branch), `${row.label} ${row.probability.toFixed(2)}`, row.span?.words ?? ""]);
    const by = result.span ? `by the branch of ${result.branch} words, evidence ${result.span.evidence.toFixed(2)}` : "";
    sentence.replaceChildren(...marked(view.text));
    page.answer(
      make("p", "words", answered(result.label, result.probability)),
      make("p", "dim", by),
      make("h2", "", "Each branch alone"),
      table([["words", "answer", "its span"], ...spans]),
    );
    return `${result.label}: ${result.span ? `"${result.span.words}"` : "no span"}`;
  },
};
