// The patches that speak for a class, picked by LIP, whose three settings answer while they move.
import { select, slider } from "./controls.js";
import { answered, bars, classes, closely, method, network, spaced, TOP } from "./parts.js";
import { make, table } from "./painting.js";
import { cropped } from "./picture.js";

const INK = "#e69f00";
const REGION = 640; // pixels of the longer side of a patch as it is shown

export const localize = {
  title: "Localize",
  verb: "localize",
  about: "The patches that speak for a class. The sliders answer while they move.",
  shows: "boxes",
  keeps: ["png", "json", "html"],
  controls(page) {
    const { settings, model } = page;
    const move = (key) => (value) => page.change({ [key]: value }, { hurry: false });
    const share = (least, value) => ({ min: least, max: 1, step: least, value, said: (value) => Number(value).toFixed(2) });
    const count = slider("Most patches (K)", "count", { min: 1, max: 20, value: settings.count || 5 }, move("count"));
    page.boxes.count = settings.count ? null : count; // shows how many are usual, until one chooses
    const chosen = settings.branch ? [branch(settings.branch)] : []; // the others are known from the first answer
    const sides = [["", "the surest one"], ...chosen];
    return [
      network(page),
      classes(page, TOP),
      count.element,
      slider("Overlap of two, below (T)", "overlap", share(0.05, settings.overlap), move("overlap")).element,
      slider("Share of cells looked at (P)", "share", share(0.01, settings.share), move("share")).element,
      branches(model) ? select("Branch", "branch", sides, settings.branch, (branch) => page.change({ branch })) : method(page),
    ];
  },
  async run(page, signal) {
    const { count, overlap, share, branch, method, class: target } = page.settings;
    const fields = { overlap: Number(overlap), share: Number(share) };
    if (count) fields.count = Number(count);
    if (target) fields.target = target;
    if (branches(page.model) && branch) fields.branch = Number(branch);
    if (!branches(page.model) && method) fields.method = method;
    const output = page.picture.deep ? "view" : "maps";
    const { result, view } = await page.ask("localize", fields, { doing: "Localizing", signal, output });
    if (!page.settings.count) page.boxes.count?.set(result.patches.length); // it may have been moved meanwhile
    patches(page, result, view);
    offer(page.places.controls.elements.branch, result.branches ?? []);
    const square = (side) => `${side} x ${side}`;
    const answers = (result.branches ?? []).map((row) => [square(row.side), spaced(row.label), row.probability.toFixed(2)]);
    page.answer(
      make("p", "words", `${answered(result.label, result.probability)}: ${view.words || `${result.patches.length} patches`}.`),
      ...(result.note ? [make("p", "dim", result.note)] : []),
      bars(page, (result.predictions ?? []).map(({ label, probability }) => [label, probability])),
      ...(answers.length ? [make("h2", "", "Branches"), table([["patches of", "answer", "probability"], ...answers])] : []),
    );
    return `${result.patches.length} patches for ${spaced(result.label)}`;
  },
};

const branches = ({ can }) => can.includes("branches");
const branch = (side) => [String(side), `${side} x ${side} pixels`];

function offer(select, branches) {
  for (const [value, words] of branches.map(({ side }) => branch(side)))
    if (![...select.options].some((option) => option.value === value)) select.append(new Option(words, value));
}

function patches(page, { patches }, view) {
  const { deep } = page.picture;
  const panels = deep ? view.panels : patches.map((patch, place) => panel(page.picture, patch, place));
  const own = ({ box }, place) => ({ name: String(place + 1), box, panel: place, level: 2, ink: INK, share: null, ahead: "" });
  const parts = deep ? view.parts : patches.map(own);
  const steps = closely(page, { id: "patch", parts, panels, title: "Patches, the best first", first: 0 });
  parts.forEach(({ panel }, place) => {
    steps.children[place].prepend(Object.assign(make("img"), { src: panels[panel].src, alt: "" }));
  });
}

function panel(picture, { box, evidence }, place) {
  const [x, y, x1, y1] = box.map(Math.round);
  const shrink = Math.min(1, REGION / Math.max(x1 - x, y1 - y));
  const caption = `patch ${place + 1}, evidence ${evidence.toFixed(2)}: ${x1 - x} x ${y1 - y} pixels at ${x}, ${y}`;
  return { src: cropped(picture, box, [(x1 - x) * shrink, (y1 - y) * shrink]), caption };
}
