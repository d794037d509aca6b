// Two maps of one picture, the second uncovered from the right: a range over the whole picture moves the line, by pointer,
// touch and arrow keys.
import { make, percent } from "./painting.js";

export function wipe(first, second, names) {
  const line = make("i", "line");
  const range = Object.assign(make("input", "wipe"), { type: "range", min: 0, max: 100, value: 50 });
  range.ariaLabel = `wipe between ${names.join(" and ")}`;
  function move() {
    const share = range.value / 100;
    second.style.clipPath = `inset(0 0 0 ${percent(share)})`;
    first.style.clipPath = `inset(0 ${percent(1 - share)} 0 0)`;
    line.style.left = percent(share);
    range.setAttribute("aria-valuetext", `${range.value} percent ${names[0]}`);
  }
  range.addEventListener("input", move);
  for (const kind of ["pointerdown", "keydown"]) range.addEventListener(kind, (event) => event.stopPropagation()); // a viewer around it would move
  move();
  const tag = (words, side) => make("span", `side-tag ${side}`, words);
  return make("div", "wiping", first, second, line, tag(names[0], "left"), tag(names[1], "right"), range);
}
