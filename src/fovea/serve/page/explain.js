// A heatmap of a class by a method; or two of them, one wiped against the other.
import { toggle } from "./controls.js";
import { answered, asTargets, bars, choice, classes, hatched, method, network, spaced, SPECIAL, TOP } from "./parts.js";
import { make } from "./painting.js";
import { heat } from "./photo.js";
import { wipe } from "./wipe.js";

export const explain = {
  title: "Explain",
  verb: "explain",
  about: "A heatmap of what speaks for a class. Choose another class or method, or wipe one map against another.",
  shows: "maps",
  keeps: ["png", "json", "html"],
  controls(page) {
    const others = [method(page, "method2", "Second method"), classes(page, TOP, "class2", "Second class")];
    const second = make("div", "second", ...others);
    second.hidden = !page.settings.against;
    const against = toggle("Wipe against another map", "against", Boolean(page.settings.against), (on) => {
      second.hidden = !on;
      page.change({ against: on ? "yes" : "" });
    });
    return [network(page), method(page), classes(page, SPECIAL), against, second];
  },
  async run(page, signal) {
    const { settings, about: { usual } } = page;
    const one = settings.against && settings.class === "top5" ? "" : settings.class; // of which one is wiped
    const first = [settings.method || usual.method, one];
    const second = settings.against ? [settings.method2 || usual.method, settings.class2] : first;
    const methods = [...new Set([first[0], second[0]])];
    const targets = [...new Set([first[1], second[1]])];
    const fields = { method: methods, target: asTargets(targets) };
    const { result, view } = await page.ask("explain", fields, { doing: `Explaining by ${methods.join(" and ")}`, signal });
    const take = (name) => {
      page.boxes.class.set(name);
      page.change({ class: name });
    };
    page.answer(make("p", "words", answered(result.label, result.probability)), bars(page, view.predictions, take));
    const painted = (map, finest) => heat(map, page.picture.size, page.colors, finest);
    if (settings.against) {
      const each = view.maps.length / methods.length; // one method's maps, class by class
      const pair = [first, second].map(([name, target]) => view.maps[methods.indexOf(name) * each + targets.indexOf(target)]);
      const names = pair.map((map) => `${map.method}: ${spaced(map.target)}`);
      const words = `Left of the line ${names[0]}; right of it ${names[1]}. Drag the line, or move it by the arrow keys.`;
      page.places.choice.replaceChildren(make("p", "caption", words));
      page.lay(wipe(...pair.map((map) => painted(map)), names));
      return `Two maps: ${names.join(" and ")}`;
    }
    const layers = view.maps.map((map) => {
      const name = spaced(map.target);
      const words = map.note || `What speaks for ${name} by ${map.method}. The box is around its hottest part.${hatched(map)}`;
      return { key: map.target, name, words, draw: (finest) => [painted(map, finest)] };
    });
    choice(page, layers);
    return `Heatmap of ${view.maps.map(({ target }) => spaced(target)).join(", ")}`;
  },
};
