// Whether a map changes when the network's weights are random, as it must.
import { method, network } from "./parts.js";
import { make, table } from "./painting.js";

export const sanity = {
  title: "Sanity",
  verb: "sanity",
  about: "A map must change when the network's weights do. Copies with random weights show whether it does.",
  keeps: ["png", "json"],
  controls: (page) => [network(page), method(page)],
  async run(page, signal) {
    const { method } = page.settings;
    const fields = method ? { method } : {};
    const asked = { doing: "Checking with random weights", signal, output: "view" };
    const { result, view } = await page.ask("sanity", fields, asked);
    page.places.photo.replaceChildren(...figures(view.panels, "the map of the network as trained, and of copies with random weights"));
    const rows = result.copies.map((row) => [`${row.randomised} ${row.seed + 1}`, number(row.rank_correlation), number(row.ssim)]);
    const words = `${result.passed ? "The map depends" : "The map does not depend"} on the network's weights`;
    page.answer(
      make("p", result.passed ? "words" : "words doubt", `${words}.`),
      make("h2", "", "Likeness to the map as trained"),
      table([["random", "rank correlation", "SSIM"], ...rows]),
      make("p", "dim", "1: the map did not change."),
    );
    return words;
  },
};

const number = (value) => (value === null ? "none" : value.toFixed(2));

// As the service drew them; wide ones are scrolled through.
export function figures(panels, alt) {
  return panels.map(({ src, caption }) => {
    const image = make("div", "drawn", Object.assign(make("img"), { src, alt: caption || alt }));
    Object.assign(image, { tabIndex: 0, role: "group", ariaLabel: "figure" });
    return make("figure", "", image, make("figcaption", "", caption));
  });
}
