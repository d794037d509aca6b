// The living page: what is asked of a picture, by which network and how; each view asks and shows by itself.
import { compare } from "./compare.js";
import { button, select, slider, toggle } from "./controls.js";
import { downloads } from "./downloads.js";
import { explain } from "./explain.js";
import { read, USUAL, written } from "./link.js";
import { localize } from "./localize.js";
import { look } from "./look.js";
import { newest } from "./newest.js";
import { make, stepped } from "./painting.js";
import { photograph } from "./photo.js";
import { ofExample, ofFile, send } from "./picture.js";
import { sanity } from "./sanity.js";
import { search } from "./search.js";
import { get, getBytes, getImage, post } from "./service.js";
import * as status from "./status.js";
import { text } from "./text.js";
import { zoom } from "./zoom.js";

const VIEWS = { look, explain, compare, localize, zoom, text, search, sanity };
const KEPT = 60; // answers, so that going back asks nothing
const BLENDS = [["normal", "over the picture"], ["multiply", "multiply"], ["screen", "screen"], ["alone", "the map alone"]];
const at = (name) => document.querySelector(`#${name}`);
const SOON = 300; // milliseconds after which settings are in the address: browsers bound how often it changes
const PLACES = ["choice", "below", "photo", "controls", "answer", "tools", "downloads"];
const places = Object.fromEntries(PLACES.map((name) => [name, at(name)]));

// What views know and do.
const page = {
  places,
  about: null, // /v1/models
  colors: null,
  settings: read(location.search),
  picture: null,
  text: "",
  predictions: [], // of the picture, the best first
  boxes: {}, // controls that answers set
  get view() {
    return VIEWS[this.settings.view] ?? look; // an address may say anything
  },
  networks(view = this.view) {
    return this.about.models.filter(({ verbs, takes }) => verbs.includes(view.verb) && (takes === "texts") === Boolean(view.texts));
  },
  get model() {
    const all = this.networks();
    const usual = this.about.usual.net[this.view.texts ? "text" : this.view.verb];
    return all.find(({ name }) => name === this.settings.net) ?? all.find(({ name }) => name === usual) ?? all[0];
  },
  async labels() {
    const { name } = this.model;
    known[name] ??= get(`/v1/labels?net=${encodeURIComponent(name)}`);
    try {
      return await known[name];
    } catch (error) {
      delete known[name]; // it is asked for again
      status.failed(error.message);
      return { labels: [] };
    }
  },
  keep(settings) {
    Object.assign(this.settings, settings);
    clearTimeout(writing);
    writing = setTimeout(() => history.replaceState(null, "", written(this.settings)), SOON);
  },
  // `hurry`: what is asked now is of no use any more; `rebuild`: the controls depend on it.
  change(settings, { hurry = true, rebuild = false } = {}) {
    status.clear();
    this.keep(settings);
    if (rebuild) controls();
    run(hurry);
  },
  lay(...layers) {
    photo?.sheet.replaceChildren(...layers);
  },
  fly(box) {
    photo?.fly(box);
  },
  answer(...parts) {
    const focused = places.answer.contains(document.activeElement) && document.activeElement.title;
    places.answer.replaceChildren(...parts);
    places.answer.hidden = false;
    if (focused) [...places.answer.querySelectorAll("button")].find(({ title }) => title === focused)?.focus();
  },
  empty: emptied,
  ask,
};
const known = {}; // labels of networks
const nets = {}; // of each view, the network that was chosen
const answers = new Map();
const times = {}; // milliseconds that a verb took a network the last time
let names = []; // of views that there are
let writing = null;
let opened = 0;
let failure = ""; // why the page could not start
let photo = null;
let asked = null;

async function ask(verb, fields, { doing, signal, output = "maps" }) {
  const picture = "text" in fields ? null : page.picture;
  const body = { output, ...(page.model && { net: page.model.name }), ...fields };
  const key = JSON.stringify([verb, body]);
  const about = times[verb + body.net];
  const words = about > 1500 ? `${doing} (about ${Math.round(about / 1000)} s)` : doing;
  const answer = answers.get(key) ?? (await (await request(picture, verb, body, words, signal)).json());
  signal.throwIfAborted(); // it is of another picture, or another view
  times[verb + body.net] = answer.ms;
  answers.set(key, answer);
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
  const again = (output) => request(picture, verb, { ...body, output }, `Drawing the ${output} file`);
  asked = { verb, answer, again, name: picture?.name ?? "text" };
  return answer;
}

// The picture goes first where the service does not have it, or has let go of it.
async function request(picture, verb, body, words, signal) {
  for (let again = false; ; again = true) {
    if (picture && (await sooner(send(picture), signal))) display();
    status.doing(words);
    try {
      return await post(`/v1/${verb}`, { ...body, ...(picture && { picture_id: picture.id }) }, signal);
    } catch (error) {
      if (error.status !== 404 || again || !picture?.file) throw error;
      picture.id = null;
    }
  }
}

// What is sent goes on when nobody waits for it here.
const sooner = (work, signal) =>
  new Promise((done, failed) => {
    work.then(done, failed);
    signal?.addEventListener("abort", () => failed(signal.reason));
  });

const run = newest(async (signal) => {
  const { view, picture } = page;
  if (!page.about) return;
  if (!view.texts && !picture) return status.done();
  try {
    places.photo.ariaBusy = "true";
    const words = await view.run(page, signal);
    if (signal.aborted) return;
    status.clear(run);
    status.done(words);
    places.downloads.hidden = places.answer.hidden;
  } catch (error) {
    if (signal.aborted) return;
    emptied(); // what was there is not of these settings
    display();
    status.failed(error.message, run);
    if (!error.status && error.status !== 0) console.error(error);
  } finally {
    places.photo.ariaBusy = "false";
  }
});

// The picture anew, with nothing over it.
function display() {
  photo?.close();
  photo = null;
  const { view, picture } = page;
  const empty = !picture && !view.texts;
  at("drop").hidden = !empty;
  places.photo.hidden = empty;
  places.tools.hidden = !picture || !view.shows;
  places.tools.dataset.shows = view.shows;
  if (view.texts) return;
  places.photo.replaceChildren();
  if (!picture) return;
  photo = photograph(picture);
  places.photo.append(photo.element);
}

function emptied() {
  for (const place of [places.choice, places.below, places.answer]) place.replaceChildren();
  places.answer.hidden = places.downloads.hidden = true;
  page.view.emptied?.();
  page.lay();
}

// `opening` gives the picture; the one before stays where that fails.
async function open(opening, example = "") {
  const turn = ++opened;
  const view = [page.settings.view, ...names].find((name) => names.includes(name) && !VIEWS[name].texts);
  if (failure) return status.failed(failure);
  if (page.about && !view) return status.failed("No network here takes pictures: type a text");
  status.clear();
  status.doing("Opening the picture");
  try {
    const picture = await opening();
    if (!picture.image) await send(picture);
    if (turn !== opened) return URL.revokeObjectURL(picture.url);
    if (page.picture) URL.revokeObjectURL(page.picture.url);
    answers.clear();
    Object.assign(page, { picture, predictions: [] });
    page.keep({ example });
    for (const chosen of document.querySelectorAll("[name=example]")) chosen.value = example;
    if (view && view !== page.settings.view) return show(view);
    const focused = at("drop").contains(document.activeElement); // which is hidden now
    emptied();
    display();
    if (focused) at("panel").focus();
    run(true);
  } catch (error) {
    if (turn === opened) status.failed(error.message);
  }
}

function controls() {
  const focused = document.activeElement?.name;
  page.boxes = {};
  at("about").textContent = page.view.about;
  places.controls.replaceChildren(...page.view.controls(page));
  if (focused) places.controls.elements[focused]?.focus();
  places.downloads.replaceChildren(...downloads(page.view.keeps, () => asked, busy));
}

async function busy(job) {
  status.clear();
  try {
    await job();
    status.done();
  } catch (error) {
    status.failed(error.message);
  }
}

function show(name) {
  const { view, net, class: target } = page.settings;
  const { model } = page;
  nets[view] = net;
  page.keep({ view: name, net: nets[name] ?? "", map: "" });
  if (page.model !== model || ["top5", "contrast"].includes(target)) page.keep({ class: "", class2: "" }); // not all know it
  openView();
}

function openView() {
  for (const tab of at("tabs").children) {
    const chosen = tab.id === `tab-${page.settings.view}`;
    tab.ariaSelected = String(chosen);
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  at("panel").setAttribute("aria-labelledby", `tab-${page.settings.view}`);
  status.clear();
  emptied();
  display();
  controls();
  run(true);
}

function tabs(names) {
  const made = names.map((name) => {
    const tab = button(VIEWS[name].title, () => show(name));
    Object.assign(tab, { id: `tab-${name}`, role: "tab" });
    tab.setAttribute("aria-controls", "panel");
    return tab;
  });
  at("tabs").replaceChildren(...made);
  at("tabs").addEventListener("keydown", (event) => {
    const next = stepped(event, made.length, made.indexOf(document.activeElement));
    if (next === undefined) return;
    made[next].focus();
    show(names[next]);
  });
}

// How maps lie over the picture is the browser's affair: nothing is asked for.
function tools() {
  const { opacity, blend, boxes } = page.settings;
  const lay = (settings) => {
    page.keep(settings);
    at("stage").style.setProperty("--fade", page.settings.opacity / 100);
    at("stage").dataset.blend = page.settings.blend;
    at("stage").classList.toggle("unboxed", page.settings.boxes !== "yes");
  };
  const range = { min: 0, max: 100, value: opacity, said: (value) => `${value} %` };
  places.tools.replaceChildren(
    slider("Opacity of the map", "opacity", range, (opacity) => lay({ opacity })).element,
    select("Blend", "blend", BLENDS, blend, (blend) => lay({ blend })),
    toggle("Boxes", "boxes", boxes === "yes", (on) => lay({ boxes: on ? "yes" : "no" })),
    ramp(),
  );
  lay({});
}

function ramp() {
  const stops = Array.from({ length: 9 }, (_, i) => page.colors.slice(4 * Math.round(31.875 * i)));
  const bar = make("i");
  bar.style.background = `linear-gradient(90deg, ${stops.map(([r, g, b, a]) => `rgb(${r} ${g} ${b} / ${a / 255})`)})`;
  return make("div", "ramp", make("span", "", "does not matter"), bar, make("span", "", "matters most"));
}

function offer() {
  const { examples } = page.about;
  const options = [["", "Examples"], ...examples.map(({ name }) => [name, name])];
  const take = (name) => {
    const example = examples.find((example) => example.name === name);
    if (example) open(() => ofExample(example), name);
  };
  at("opening").prepend(select("Example", "example", options, page.settings.example, take));
}

async function examples() {
  for (const example of page.about.examples) {
    const image = Object.assign(make("img"), { alt: "", src: await getImage(`/v1/pictures/${example.id}/preview`) });
    at("examples").append(button("", () => open(() => ofExample(example), example.name), "example"));
    at("examples").lastChild.append(image, make("span", "", example.name));
  }
}

function listen() {
  const take = (file) => file && open(() => ofFile(file));
  at("file").addEventListener("change", ({ target }) => {
    take(target.files[0]);
    target.value = ""; // the same file may be chosen again
  });
  const isImage = ({ type }) => type.startsWith("image/");
  document.addEventListener("paste", ({ clipboardData }) => take([...clipboardData.files].find(isImage)));
  for (const kind of ["dragenter", "dragover"])
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      document.body.classList.add("dropping");
    });
  document.addEventListener("dragleave", ({ relatedTarget }) => relatedTarget || document.body.classList.remove("dropping"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    take(event.dataTransfer.files[0]);
  });
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("link").addEventListener("click", async () => {
    const link = new URL(written(page.settings), location.href).href;
    try {
      await navigator.clipboard.writeText(link); // which there is none of on a page of another machine without TLS
      status.note("The link is copied: it holds the settings, not the picture");
    } catch {
      status.note("Copy the link from the address bar");
    }
  });
}

async function start() {
  listen();
  try {
    [page.about, page.colors] = await Promise.all([get("/v1/models"), getBytes("/page/colors.bin")]);
  } catch (error) {
    failure = error.message;
    return status.failed(failure);
  }
  names = Object.keys(VIEWS).filter((name) => (name === "search" ? page.about.index : page.networks(VIEWS[name]).length));
  if (!names.includes(page.settings.view)) page.settings.view = names[0];
  page.text = page.about.texts[0] ?? "";
  tabs(names);
  tools();
  offer();
  const example = page.about.examples.find(({ name }) => name === page.settings.example);
  const unusual = written({ ...page.settings, view: USUAL.view }) !== location.pathname;
  if (!example && unusual) at("hint").textContent = "This link holds settings, not a picture: drop the picture to see it.";
  openView();
  if (example && !page.picture && !page.view.texts) await open(() => ofExample(example), example.name);
  await examples();
}

start();
