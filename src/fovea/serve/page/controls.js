// What settings are made with; all are native elements, for every keyboard and reader.
import { make } from "./painting.js";

let count = 0;
export const unique = (word) => `${word}-${++count}`;

export function field(words, input, note = "") {
  input.id ||= unique("field");
  const label = make("label", "", words);
  label.htmlFor = input.id;
  return make("div", "field", label, ...(note ? [note] : []), input);
}

// `options`: [value, words].
export function select(words, name, options, value, change) {
  const input = make("select", "", ...options.map(([value, words]) => Object.assign(make("option", "", words), { value })));
  Object.assign(input, { name, value });
  input.addEventListener("change", () => change(input.value));
  return field(words, input);
}

// `said` gives the value in words.
export function slider(words, name, { min, max, step = 1, value, said = String }, change) {
  const input = Object.assign(make("input"), { type: "range", name, min, max, step, value });
  const output = make("output", "", said(value));
  input.setAttribute("aria-valuetext", said(value));
  input.addEventListener("input", () => {
    output.value = said(input.value);
    input.setAttribute("aria-valuetext", said(input.value));
    change(input.value);
  });
  const set = (value) => {
    input.value = value;
    output.value = said(value);
    input.setAttribute("aria-valuetext", said(value));
  };
  return { element: field(words, input, output), set };
}

export function toggle(words, name, checked, change, kind = "toggle") {
  const input = Object.assign(make("input"), { type: "checkbox", name, checked });
  input.addEventListener("change", () => change(input.checked));
  return make("label", kind, input, ` ${words}`);
}

// One of a few, all in sight; `options`: [value, ...what shows it].
export function chips(words, name, options, value, change) {
  const legend = make("legend", "unseen", words);
  const made = options.map(([option, ...inside]) => {
    const input = Object.assign(make("input", "unseen"), { type: "radio", name, value: option, checked: option === value });
    input.addEventListener("change", () => change(option));
    return make("label", "chip", input, make("span", "", ...inside));
  });
  return make("fieldset", "chips", legend, ...made);
}

export function button(words, work, kind = "", title = "") {
  const made = Object.assign(make("button", kind, words), { type: "button", title });
  if (title) made.ariaLabel = title;
  made.addEventListener("click", work);
  return made;
}
