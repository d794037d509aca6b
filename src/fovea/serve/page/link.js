// Settings in the page's address, so that a link brings them back; never the picture, nor a text.
export const USUAL = {
  view: "look",
  net: "",
  method: "",
  class: "",
  against: "", // "yes": a second map is wiped against the first
  method2: "",
  class2: "",
  methods: "",
  map: "", // which of the maps is shown
  count: "",
  overlap: "0.5",
  share: "0.05",
  branch: "",
  glimpses: "",
  neighbors: "",
  opacity: "100",
  blend: "normal",
  boxes: "yes",
  example: "",
};

export function read(search) {
  const given = Object.fromEntries([...new URLSearchParams(search)].filter(([key]) => key in USUAL));
  return { ...USUAL, ...given };
}

export function written(settings) {
  const unusual = Object.entries(settings).filter(([key, value]) => value !== USUAL[key]);
  const query = new URLSearchParams(unusual).toString();
  return location.pathname + (query && `?${query}`);
}
