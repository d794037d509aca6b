// What several views are made of: the choice of network, method and class, bars of probabilities, maps to choose from.
import { combobox } from "./combobox.js";
import { chips, select } from "./controls.js";
import { guesses, make, readings } from "./painting.js";
import { SMALL } from "./photo.js";

export const spaced = (label) => (label ?? "").replaceAll("_", " "); // names of classes are often written so
export const answered = (label, share) => (share === null ? spaced(label) : `${spaced(label)} (${share.toFixed(2)})`);

export function network(page) {
  const options = page.networks().map(({ name, classes }) => [name, classes ? `${name} (${classes} classes)` : name]);
  const change = (net) => page.change({ net, class: "", class2: "", branch: "", glimpses: "" }, { rebuild: true });
  const field = select("Network", "net", options, page.model.name, change);
  field.append(make("small", "dim", page.model.about));
  return field;
}

export function method(page, key = "method", words = "Method") {
  const { methods, usual } = page.about;
  const options = methods.map(({ name, costly }) => [name, costly ? `${name} (takes longer)` : name]);
  const change = (name) => page.change({ [key]: name === usual.method ? "" : name });
  return select(words, key, options, page.settings[key] || usual.method, change);
}

export const TOP = [["", "top class"]];
export const SPECIAL = [
  ...TOP,
  ["top5", "top 5"],
  ["contrast", "contrast: the top class and not the next"],
];

// Those the network finds most probable come first; 'A vs B' may be typed.
export function classes(page, special, key = "class", words = "Class") {
  const said = (value) => special.find(([name]) => name === value)?.[1] ?? spaced(value);
  async function options(typed) {
    const { labels } = await page.labels();
    const likely = page.predictions.map(([label]) => label);
    const names = [...new Set([...likely, ...labels])].map((label) => [label, spaced(label)]);
    const starts = (name) => (name.toLowerCase().startsWith(typed) ? 0 : 1);
    const found = [...special, ...names].filter(([, name]) => name.toLowerCase().includes(typed));
    if (typed) found.sort(([, a], [, b]) => starts(a) - starts(b));
    return / vs /.test(typed) ? [[typed, typed], ...found] : found;
  }
  const change = (name) => page.change({ [key]: name });
  const box = combobox(words, key, { value: page.settings[key], options, said, change });
  page.boxes[key] = box;
  return box.element;
}

// As the service takes them: "" alone is what the network explains by itself, which of an embedding is no class.
export const asTargets = (names) => (String(names) === "" ? [] : names.map((name) => name || "top1"));

// What a map does not reach is hatched.
export const hatched = ({ at: [x, left, y, top] }) =>
  [left, x + left, top, y + top].some((share) => share < -0.01 || share > 1.01) ? " Hatched: not seen by the network." : "";

// `take`: what a click on a class does.
export function bars(page, predictions, take = null) {
  page.predictions = predictions;
  const rows = guesses(predictions.map(([label, share]) => [spaced(label), share])).map((row, place) => {
    if (!take) return row;
    const [label] = predictions[place];
    const made = Object.assign(make("button", "guess", ...row.childNodes), { type: "button", title: `show ${spaced(label)}` });
    made.addEventListener("click", () => take(label));
    return made;
  });
  const title = page.picture?.deep ? "Probabilities, the highest in any window" : "Probabilities";
  return rows.length ? make("div", "guesses", make("h2", "", title), ...rows) : "";
}

// The picture small, with layers over it.
function small({ picture }, layers) {
  const frame = make("span", "over", Object.assign(make("img"), { src: picture.url, alt: "" }), make("span", "sheet", ...layers));
  frame.style.aspectRatio = picture.size.join(" / ");
  frame.ariaHidden = "true"; // its name stands below
  return frame;
}

// Of several layers over the picture the chosen one is shown large: [{key, name, words, draw}]; `draw` takes the pixels
// that a map has at most.
export function choice(page, layers) {
  const { choice } = page.places;
  const words = make("p", "caption");
  function show(key) {
    const layer = layers.find((layer) => layer.key === key) ?? layers[0];
    page.lay(...layer.draw());
    words.textContent = layer.words ?? "";
  }
  const now = layers.some(({ key }) => key === page.settings.map) ? page.settings.map : layers[0]?.key;
  const options = layers.map(({ key, name, draw }) => [key, small(page, draw(SMALL)), name]);
  const take = (map) => {
    page.keep({ map });
    show(map);
  };
  choice.replaceChildren(...(layers.length > 1 ? [chips("What is shown over the picture", "map", options, now, take)] : []), words);
  if (layers.length) show(now);
}

// What was read of the picture closely, below it; the part at `first` is chosen.
export function closely(page, { id, parts, panels, title, first }) {
  const chosen = (part, fly) => fly && page.fly(part.box);
  const { boxes, steps, closer, choose } = readings({ id, parts, panels, size: page.picture.size, chosen });
  page.lay(...boxes);
  steps.ariaLabel = title;
  page.places.below.replaceChildren(make("div", "reading", make("h2", "", title), steps), closer);
  if (parts.length) choose(first, false);
  return steps;
}
