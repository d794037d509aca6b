// A class by search: an editable combobox with a list, by the ARIA 1.2 pattern. Focus stays in the field; arrows move in
// the list, Enter takes, Escape leaves all as it was.
import { field, unique } from "./controls.js";
import { make } from "./painting.js";

const MOST = 60; // options that are listed

// `options(typed)`: [value, words] of what fits; `said(value)`: the words for a value.
export function combobox(words, name, { value, options, said, change }) {
  const list = make("ul", "options");
  Object.assign(list, { id: unique("list"), role: "listbox", ariaLabel: words, hidden: true });
  const input = Object.assign(make("input"), { name, type: "text", role: "combobox", value: said(value), spellcheck: false });
  Object.assign(input, { autocomplete: "off", ariaAutoComplete: "list", ariaExpanded: "false" });
  input.setAttribute("aria-controls", list.id);
  let found = [];
  let active = -1;
  let opening = null; // Enter may come before the list does

  function mark(place) {
    active = place;
    [...list.children].forEach((option, number) => (option.ariaSelected = String(number === place)));
    if (place < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[place].id);
    list.children[place].scrollIntoView({ block: "nearest" });
  }
  async function open(typed) {
    const fitting = await options(typed.trim().toLowerCase());
    if (document.activeElement !== input) return;
    found = fitting.slice(0, MOST);
    list.replaceChildren(
      ...found.map(([, words], place) => {
        const option = Object.assign(make("li", "", words), { id: `${list.id}-${place}`, role: "option" });
        option.addEventListener("pointerdown", (event) => event.preventDefault()); // focus stays in the field
        option.addEventListener("click", () => take(place));
        return option;
      }),
    );
    list.hidden = !found.length;
    input.ariaExpanded = String(!list.hidden);
    mark(typed && found.length ? 0 : -1);
  }
  function close() {
    list.hidden = true;
    input.ariaExpanded = "false";
    mark(-1);
    input.value = said(value);
  }
  function take(place) {
    const before = value;
    value = found[place][0];
    close();
    if (value !== before) change(value);
  }

  input.addEventListener("click", () => list.hidden && (input.select(), (opening = open(""))));
  input.addEventListener("focus", () => input.select());
  input.addEventListener("input", () => (opening = open(input.value)));
  input.addEventListener("blur", close);
  input.addEventListener("keydown", async (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) await open("");
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (found.length) mark((active + step + found.length + (active < 0 && step < 0)) % found.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      await opening;
      if (active >= 0) take(active);
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
      input.select();
    }
  });
  const made = field(words, input);
  made.classList.add("combobox");
  made.append(list);
  const set = (next) => (input.value = said((value = next)));
  return { element: made, set };
}
