// The answer in words, where the network looks, how little is enough and what is needed.
import { answered, bars, choice, hatched, network, spaced } from "./parts.js";
import { make, put, table } from "./painting.js";
import { cover, heat } from "./photo.js";
import { figures } from "./sanity.js";

const GROUNDS = { mean: "gray", blur: "blurred" };
const share = (number) => `${(100 * number).toFixed(number < 0.01 ? 1 : 0)}\u00a0%`;

export const look = {
  title: "Look",
  verb: "look",
  about: "The answer with its evidence: where the network looks, how little of the picture is enough, and what is needed.",
  shows: "maps",
  keeps: ["png", "json", "html"],
  controls: (page) => [network(page)],
  async run(page, signal) {
    if (page.model.verbs.includes("explain")) await first(page, signal);
    const output = page.model.can.includes("streams") ? "view" : "maps"; // its steps come drawn
    const { result, view } = await page.ask("look", {}, { doing: "Looking: what is enough, what is needed", signal, output });
    const layers = [...maps(page, result, view), ...patches(page, result), ...closer(page, result)];
    choice(page, layers);
    const steps = view.panels.filter(({ src, caption }) => src && caption.startsWith("Longer"));
    page.places.below.replaceChildren(...figures(steps, "steps"));
    const doubts = result.trust?.doubts ?? [];
    page.answer(
      make("p", "words", view.words.split(" Doubts: ")[0].replaceAll(" %", "\u00a0%")),
      ...doubts.map((words) => make("p", "doubt", make("b", "", "Doubt: "), words)),
      bars(page, view.predictions),
      ...(view.table.length ? [make("h2", "", "Checks of the map"), table(view.table)] : []),
    );
    return `${spaced(result.label)}: all of its evidence`;
  },
};

// A heatmap within a moment; the rest takes longer.
async function first(page, signal) {
  const { result, view } = await page.ask("explain", {}, { doing: "A first heatmap", signal });
  choice(page, view.maps.map((map) => layer(page, "answer", map, `Where: ${spaced(result.label)}`)));
  page.answer(make("p", "words", `${answered(result.label, result.probability)}.`), bars(page, view.predictions));
}

function layer(page, key, map, name, words = "") {
  const draw = (finest) => [heat(map, page.picture.size, page.colors, finest)];
  return { key, name, words: (words || map.note) + hatched(map), draw };
}

function maps(page, { where, label, runner_up: other }, { maps }) {
  const [one, two] = [label, other].map(spaced);
  const pair = `brightest where it speaks most for the one and against the other`;
  const named = {
    answer: [`Where: ${one}`, where[0]?.place && `What speaks for ${one} is seen ${where[0].place}.`],
    "runner-up": [`Runner-up: ${two}`, where[1]?.place && `What speaks for ${two}, the next best, is seen ${where[1].place}.`],
    contrast: [`${one}, not ${two}`, `${one} rather than ${two}: ${pair}.`],
    reverse: [`${two}, not ${one}`, `${two} rather than ${one}: ${pair}.`],
  };
  const keys = where.map(({ kind }) => kind).flatMap((kind) => (kind === "contrast" ? ["contrast", "reverse"] : [kind]));
  return maps.map((map, place) => layer(page, keys[place] ?? map.target, map, ...(named[keys[place]] ?? [map.target])));
}

// What keeps the answer by itself, and what it changes without; drawn on the browser's own picture.
function patches(page, { enough, needed }) {
  const kinds = [
    ["enough", enough, true, "With all else"],
    ["needed", needed, false, "With this"],
  ];
  return kinds.filter(([, part]) => part?.boxes.length).map(([key, part, kept, without]) => {
    const grounds = Object.entries(part.backgrounds);
    const said = grounds.map(([ground, row]) => `${GROUNDS[ground] ?? ground} the answer is ${answered(row.label, row.probability)}`);
    const words = `${share(part.share)} of the picture is ${key}. ${without} ${said.join(", ")}.`;
    const name = `${key === "enough" ? "Enough" : "Needed"}: ${share(part.share)}`;
    return { key, name, words, draw: () => [cover(page.picture.size, part.boxes, kept, words)] };
  });
}

function closer(page, { closer }) {
  if (!closer?.windows.length) return [];
  const said = closer.windows.map(({ label, probability }, place) => `${place + 1}: ${answered(label, probability)}`).join(", ");
  const together = answered(closer.label, closer.probability);
  const words = `Parts read closely, each alone: ${said}. Together with the whole: ${together}.`;
  const numbered = (place) => make("i", "box numbered", make("b", "", String(place + 1)));
  const draw = () => closer.windows.map(({ box }, place) => put(numbered(place), box, page.picture.size));
  return [{ key: "closer", name: `Closer: ${closer.windows.length} parts`, words, draw }];
}
