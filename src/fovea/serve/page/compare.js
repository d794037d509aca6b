// Several methods of one class, side by side.
import { toggle } from "./controls.js";
import { asTargets, classes, network, spaced, TOP } from "./parts.js";
import { make } from "./painting.js";
import { heat } from "./photo.js";

const FIRST = ["l2caf", "gradcam", "gradcam++", "layercam", "hirescam", "eigencam"]; // before one chooses

export const compare = {
  title: "Compare",
  verb: "explain",
  about: "The same class by several methods, from one pass through the network's trunk.",
  shows: "maps",
  keeps: ["png", "json", "html"],
  controls(page) {
    const chosen = new Set(methods(page));
    const box = ({ name, about }) => {
      const box = toggle(name, `by-${name}`, chosen.has(name), (on) => {
        if (on) chosen.add(name);
        else if (chosen.size > 1) chosen.delete(name); // the last stays
        page.change({ methods: [...chosen].join(",") }, { rebuild: on !== chosen.has(name) });
      });
      box.title = about;
      return box;
    };
    const group = (words, slow) => {
      const boxes = page.about.methods.filter(({ costly }) => costly === slow).map(box);
      return make("fieldset", "methods", make("legend", "", words), ...boxes);
    };
    return [network(page), classes(page, TOP), group("Methods", false), group("Methods that take longer", true)];
  },
  async run(page, signal) {
    const method = methods(page);
    const fields = { method, target: asTargets([page.settings.class]), applicable: true };
    const { view, refused } = await page.ask("explain", fields, { doing: `Comparing ${method.length} methods`, signal });
    page.predictions = view.predictions;
    const about = Object.fromEntries(page.about.methods.map(({ name, about }) => [name, about]));
    const tiles = view.maps.map((map) => {
      const image = Object.assign(make("img"), { src: page.picture.url, alt: "" });
      const frame = make("div", "over", image, heat(map, page.picture.size, page.colors));
      frame.style.aspectRatio = page.picture.size.join(" / ");
      const caption = make("figcaption", "", make("b", "", map.method), ` ${map.note || about[map.method] || ""}`);
      return make("figure", "", frame, caption);
    });
    page.places.photo.replaceChildren(make("div", "tiles", ...tiles));
    const target = spaced(view.maps[0]?.target);
    const hint = "Where methods agree, trust the map more; where they differ, look closer.";
    const left = Object.entries(refused ?? {}).map(([name, why]) => make("p", "dim", make("b", "", `${name} does not apply: `), why));
    page.answer(make("p", "words", target), make("p", "dim", hint), ...left);
    return `${view.maps.length} ${view.maps.length === 1 ? "map" : "maps"} of ${target}`;
  },
};

function methods({ settings, about }) {
  return settings.methods ? settings.methods.split(",") : FIRST.filter((first) => about.methods.some(({ name }) => name === first));
}
