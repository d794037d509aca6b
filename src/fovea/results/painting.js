// How results are shown in a browser, on a page of results and by the service alike: maps painted over a photograph,
// bars of probabilities, tables, texts, and what was read of a picture closely.
const HATCH = 16; // pixels between the lines over what the network did not see
const NEAR = 1e-6; // of a cell, which is none of it

export function make(kind, words, ...inside) {
  const element = document.createElement(kind);
  if (words) element.className = words;
  element.append(...inside);
  return element;
}

export function bytes(text) {
  const letters = atob(text);
  const values = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) values[i] = letters.charCodeAt(i); // by far quicker than Uint8Array.from
  return values;
}
export const percent = (share) => `${100 * share}%`;

// Where the pixels of an axis lie among the cells: straight lines between neighbors, held at the first and the last that
// are not of padding alone.
function places(pixels, cells, scale, offset) {
  const [start, stop] = [offset, scale + offset].sort((a, b) => a - b).map((end) => Math.min(Math.max(end, 0), 1) * cells);
  const [least, most] = [Math.min(Math.floor(start + NEAR), cells - 1), Math.max(Math.ceil(stop - NEAR) - 1, 0)];
  return Array.from({ length: pixels }, (_, i) => {
    const share = ((i + 0.5) / pixels) * scale + offset;
    const place = Math.min(Math.max(share * cells - 0.5, least), most);
    const first = Math.floor(place);
    return { seen: share >= 0 && share <= 1, first, next: Math.min(first + 1, cells - 1), part: place - first };
  });
}

// The values of a map's cells at every pixel of a picture of this size; NaN where the network was shown nothing of it.
export function spread({ grid: [h, w], at: [scaleX, offsetX, scaleY, offsetY] }, values, width, height) {
  const pixels = new Float32Array(width * height).fill(NaN);
  const columns = places(width, w, scaleX, offsetX);
  places(height, h, scaleY, offsetY).forEach((row, y) => {
    columns.forEach((column, x) => {
      if (!row.seen || !column.seen) return;
      const cell = (r, c) => values[r * w + c];
      const above = cell(row.first, column.first) * (1 - column.part) + cell(row.first, column.next) * column.part;
      const below = cell(row.next, column.first) * (1 - column.part) + cell(row.next, column.next) * column.part;
      pixels[y * width + x] = above * (1 - row.part) + below * row.part;
    });
  });
  return pixels;
}

export function shrunk([width, height], finest) {
  const shrink = Math.min(1, finest / Math.max(width, height));
  return [Math.max(Math.round(width * shrink), 1), Math.max(Math.round(height * shrink), 1)];
}

// `colors`: red, green, blue, opacity of 256 values; `finest`: pixels of the longer side, at most.
export function paint({ canvas, map, size, finest, colors }) {
  const [width, height] = ([canvas.width, canvas.height] = shrunk(size, finest));
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  spread(map, bytes(map.values), width, height).forEach((value, place) => {
    const level = Math.round(value);
    const line = (Math.floor(place / width) + (place % width)) % HATCH;
    if (level >= 0) for (let i = 0; i < 4; i++) image.data[4 * place + i] = colors[4 * level + i];
    else if (line < 2) image.data.set([255 * line, 255 * line, 255 * line, 150], 4 * place);
  });
  pen.putImageData(image, 0, 0);
}

// Puts an element where a box of the picture is, whose sides are shares of the picture's unless its size is given.
export function put(element, [x0, y0, x1, y1], [width, height] = [1, 1]) {
  const [left, top] = [percent(x0 / width), percent(y0 / height)];
  Object.assign(element.style, { left, top, width: percent((x1 - x0) / width), height: percent((y1 - y0) / height) });
  return element;
}

// Where a map is hottest, in words.
export function described(map) {
  const values = bytes(map.values);
  const top = values.indexOf(Math.max(...values));
  const [h, w] = map.grid;
  const [scaleX, offsetX, scaleY, offsetY] = map.at;
  const share = (place, cells, scale, offset) => ((place + 0.5) / cells - offset) / scale;
  const across = share(top % w, w, scaleX, offsetX);
  const down = share(Math.floor(top / w), h, scaleY, offsetY);
  const column = across < 0.4 ? "left" : across > 0.6 ? "right" : "";
  const row = down < 0.4 ? "upper" : down > 0.6 ? "lower" : "";
  const alone = { upper: "at the top", lower: "at the bottom", "": "in the middle" };
  const place = row && column ? `at the ${row} ${column}` : column ? `on the ${column}` : alone[row];
  return `heatmap by ${map.method} for ${map.target}: hottest ${place}`;
}

// A map's own place on a photograph, with its box.
export function layer(map) {
  const canvas = make("canvas");
  const placed = make("div", "layer", canvas);
  if (map.box.length) placed.append(put(make("i", "box"), map.box));
  return { canvas, placed };
}

export function guesses(predictions, least = 0.005) {
  return predictions.filter(([, share], place) => place === 0 || share >= least).map(([label, share]) => {
    const bar = make("i");
    bar.style.width = `${Math.max(100 * (share ?? 0), 0.5)}%`;
    return make("div", "guess", make("span", "", label), make("div", "", bar), make("span", "", (share ?? 0).toFixed(2)));
  });
}

export function table([heading, ...rows]) {
  const cells = (kind, row) => row.map((words, place) => make(!words ? "td" : place ? kind : "th", "", words));
  const body = make("tbody", "", ...rows.map((row) => make("tr", "", ...cells("td", row))));
  return make("table", "costs", make("thead", "", make("tr", "", ...cells("th", heading))), body);
}

// Parts of a text, each after what it is: "", "mark" or "unread".
export function marked(text) {
  return text.map(([kind, words]) => (kind === "mark" ? make("mark", "", words) : make("span", kind, words)));
}

// What was read of a picture closely: a numbered box for each part, a chart of the answer after each (or their numbers,
// where there is none), and the chosen one as it was read. `panels` show parts; `id` is unlike all others of the page.
export function readings({ id, parts, panels, size, chosen = () => {} }) {
  const boxes = parts.map((part, number) => {
    const box = make("button", `part level${part.level}`, make("span", "tag", part.name));
    Object.assign(box, { type: "button", tabIndex: -1, ariaHidden: "true", hidden: part.level < 2 });
    box.style.setProperty("--hue", part.ink);
    box.style.zIndex = part.level;
    const alike = parts.slice(0, number).filter(({ box }) => String(box) === String(part.box)).length;
    box.style.setProperty("--alike", alike); // its number stands beside those of the same place
    return box;
  });
  const place = () => parts.forEach(({ box }, number) => put(boxes[number], box, size));
  place();

  const view = make("img");
  const words = make("p", "dim");
  const closer = make("div", "closer", view, words);
  Object.assign(closer, { id: `${id}-closer`, role: "tabpanel", tabIndex: 0 });
  const tabs = parts.map((part, number) => {
    const bar = make("i");
    const value = part.share === null ? "" : part.share.toFixed(2);
    bar.style.height = percent(part.share ?? 0);
    const unseen = (words) => make("span", "unseen", words); // but heard
    const around = part.level < 2 ? ["", ""] : part.share === null ? ["region ", ""] : ["glimpse ", `, level ${part.level}`];
    const name = make("b", "", unseen(around[0]), part.name, unseen(around[1]));
    const tab = make("button", "", make("span", "bar", make("small", "", value), bar), name);
    if (part.ahead) tab.append(make("small", "ahead", unseen("ahead: "), part.ahead));
    Object.assign(tab, { type: "button", role: "tab", id: `${id}-${number}`, title: part.ahead });
    tab.setAttribute("aria-controls", closer.id);
    tab.style.setProperty("--hue", part.ink);
    return tab;
  });
  const steps = make("div", parts.some((part) => part.share !== null) ? "steps chart" : "steps", ...tabs);
  steps.role = "tablist";

  function choose(number, fly = true) {
    tabs.forEach((tab, place) => {
      tab.ariaSelected = String(place === number);
      tab.tabIndex = place === number ? 0 : -1;
      boxes[place].classList.toggle("chosen", place === number);
    });
    const { panel, box: [x0, y0, x1, y1] } = parts[number];
    closer.setAttribute("aria-labelledby", tabs[number].id);
    Object.assign(view, { src: panels[panel].src, alt: tabs[number].querySelector("b").textContent });
    view.style.aspectRatio = `${x1 - x0} / ${y1 - y0}`;
    view.style.setProperty("--proportion", (x1 - x0) / (y1 - y0));
    words.textContent = panels[panel].caption;
    if (fly) steps.scrollLeft = tabs[number].offsetLeft - steps.clientWidth / 2;
    chosen(parts[number], fly);
  }
  [...boxes.entries(), ...tabs.entries()].forEach(([number, element]) => {
    const light = (on) => [boxes[number], tabs[number]].forEach((one) => one.classList.toggle("lit", on));
    for (const kind of ["pointerenter", "focus"]) element.addEventListener(kind, () => light(true));
    for (const kind of ["pointerleave", "blur"]) element.addEventListener(kind, () => light(false));
    element.addEventListener("click", () => choose(number));
  });
  steps.addEventListener("keydown", (event) => {
    const number = stepped(event, tabs.length, tabs.indexOf(document.activeElement));
    if (number === undefined) return;
    choose(number);
    tabs[number].focus();
  });
  return { boxes, steps, closer, choose, place };
}

// Where the arrow keys, Home and End lead in a row of so many; undefined for other keys.
export function stepped(event, count, now) {
  const next = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: count - 1 }[event.key];
  if (next === undefined) return undefined;
  event.preventDefault();
  return Math.min(Math.max(next, 0), count - 1);
}
