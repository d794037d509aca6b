// The nearest pictures of an index, and where they are alike.
import { slider } from "./controls.js";
import { make, table } from "./painting.js";
import { figures } from "./sanity.js";

const MOST = 24; // neighbors that the slider offers
const USUAL = 8;

export const search = {
  title: "Search",
  verb: "search",
  about: "The nearest pictures of the index, with what makes them alike.",
  keeps: ["png", "json", "html"],
  controls(page) {
    const max = Math.min(page.about.index.pictures, MOST);
    const range = { min: 1, max, value: page.settings.neighbors || Math.min(USUAL, max) };
    return [slider("Neighbors", "neighbors", range, (neighbors) => page.change({ neighbors }, { hurry: false })).element];
  },
  async run(page, signal) {
    const { neighbors } = page.settings;
    const fields = neighbors ? { count: Number(neighbors) } : {};
    const { result, view } = await page.ask("search", fields, { doing: "Searching", signal, output: "view" });
    page.places.photo.replaceChildren(...figures(view.panels, "the picture and its nearest neighbors"));
    const rows = result.neighbors.map(({ name, label, similarity }) => [name.split("/").pop(), label ?? "", similarity.toFixed(3)]);
    const { pictures, name } = page.about.index;
    const words = `${rows.length} of ${pictures} pictures of ${name}`;
    page.answer(make("p", "words", words), table([["picture", "label", "similarity"], ...rows]));
    return `${rows.length} neighbors`;
  },
};
