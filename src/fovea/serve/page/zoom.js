// How a network reads a picture: all of it small, then a few regions closely; what was read, and what it cost.
import { slider } from "./controls.js";
import { answered, bars, closely, network, spaced } from "./parts.js";
import { make, table } from "./painting.js";
import { cropped } from "./picture.js";

const MOST = 24; // glimpses that the slider offers
const USUAL = 4;

export const zoom = {
  title: "Zoom",
  verb: "zoom",
  about: "Reads all of the picture small, then a few regions closely. The slider is the budget: how many.",
  shows: "boxes",
  keeps: ["png", "json", "html"],
  controls(page) {
    const [least, most] = page.model.glimpses;
    const { glimpses } = page.settings;
    const budget = { min: least, max: Math.min(most, MOST), value: glimpses || USUAL };
    const made = slider("Glimpses", "glimpses", budget, (glimpses) => page.change({ glimpses }, { hurry: false }));
    page.boxes.glimpses = glimpses ? null : made; // shows how many are usual, until one chooses
    return [network(page), made.element];
  },
  async run(page, signal) {
    const { picture, settings: { glimpses } } = page;
    const output = picture.deep ? "view" : "maps";
    const fields = glimpses ? { glimpses: Number(glimpses) } : {};
    const { result, view } = await page.ask("zoom", fields, { doing: "Zooming", signal, output });
    if (!page.settings.glimpses) page.boxes.glimpses?.set(result.glimpses.length); // it may have been moved meanwhile
    const overview = result.overview ? [result.overview] : [];
    const read = [null, ...overview, ...result.glimpses]; // the first panel is the picture itself
    const panels = view.panels.map(({ src, caption }, place) => ({ src: src || asRead(picture, read[place]), caption }));
    const ahead = view.parts.some((part) => part.ahead) ? "; in gray what was ahead" : "";
    const title = `Probability of ${spaced(result.label)} after each${ahead}`;
    closely(page, { id: "glimpse", parts: view.parts, panels, title, first: view.parts.length - 1 });
    page.answer(
      make("p", "words", `${answered(result.label, result.probability)}: ${view.words}.`),
      make("h2", "", "What it cost"),
      table(view.table),
      bars(page, view.predictions),
    );
    return `${spaced(result.label)} after ${result.glimpses.length} glimpses`;
  },
};

const asRead = (picture, glimpse) => (glimpse ? cropped(picture, glimpse.visible, glimpse.pixels) : picture.url);
