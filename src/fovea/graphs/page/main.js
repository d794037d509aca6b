// The network answers in this page: a picture is decoded, prepared and run through the graph, and its map painted.
const FINEST = 720; // pixels of the longer side of a painted map
const SHOWN = 1440; // of the photograph
const MOST = 100e6; // pixels of a picture, about 400 MB when it is decoded
const TOP = 5;
const at = (id) => document.getElementById(id);
const about = JSON.parse(at("about").textContent);
const labels = about.labels?.map((label) => label.replaceAll("_", " "));
const names = labels?.map((label, place) => (labels.indexOf(label) < place ? `${label} (${place})` : label)); // two may share one
const main = document.querySelector("main");
const colors = bytes(main.dataset.colors);
const form = document.querySelector("form.controls");
let picture = null; // with its name and what was prepared of it
let turn = 0; // of two pictures at once the last one stays

function said(words, busy = false) {
  at("status").textContent = words;
  at("status").classList.toggle("busy", busy);
  return new Promise((go) => setTimeout(go, 40)); // so that it is seen before the page is busy
}

function failed(words) {
  said("");
  at("alert").textContent = words;
  at("alert").hidden = false;
}

async function unpacked(id) {
  const packed = new Blob([bytes(at(id).textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  at(id).remove();
  return new Uint8Array(await new Response(packed).arrayBuffer());
}

async function start() {
  await said("Starting the network: unpacking", true);
  Object.assign(ort.env.wasm, { numThreads: 1, wasmBinary: await unpacked("runtime") });
  const graph = await unpacked("model");
  await said("Starting the network", true);
  const session = await ort.InferenceSession.create(graph, { executionProviders: ["wasm"] });
  if (!picture) said("Ready");
  return session;
}

function probabilities(logits) {
  const scaled = Float64Array.from(logits, (logit) => logit / (about.temperature ?? 1));
  if (about.several) return scaled.map((logit) => 1 / (1 + Math.exp(-logit)));
  const most = scaled.reduce((a, b) => Math.max(a, b));
  const powers = scaled.map((logit) => Math.exp(logit - most));
  const total = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / total);
}

// As pages of results have it: bytes over the map's range on the picture, and the box in shares of the picture.
function painted(values, grid, target) {
  const size = shrunk([picture.bitmap.width, picture.bitmap.height], FINEST);
  const cells = Float32Array.from(values, (value) => (value > 0 ? value : 0)); // nor what is no number
  const drawn = spread({ grid, at: picture.at }, cells, ...size).map((value) => value || 0);
  const [low, high] = [drawn.reduce((a, b) => Math.min(a, b)), drawn.reduce((a, b) => Math.max(a, b))];
  const share = (value) => (high > low ? Math.min(Math.max((value - low) / (high - low), 0), 1) : 0);
  const box = high > low ? hottest(drawn.map(share), size, about.threshold) : [];
  const levels = Array.from(cells, (value) => String.fromCharCode(Math.round(255 * share(value))));
  return { method: about.method, target, grid, at: picture.at, values: btoa(levels.join("")), box: box.map((side, place) => side / size[place % 2]) };
}

function show(map, seconds) {
  const { canvas, placed } = layer(map);
  paint({ canvas, map, size: [picture.bitmap.width, picture.bitmap.height], finest: FINEST, colors });
  Object.assign(placed, { role: "img", ariaLabel: described(map) });
  at("picture").querySelector(".layer")?.remove();
  at("picture").append(placed);
  const blank = "The map is the same everywhere: no place speaks for it more than another.";
  at("caption").textContent = map.box.length ? `What speaks for ${map.target} by ${map.method}.` : blank;
  at("answer").hidden = form.hidden = false;
  const hurried = `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  return said(`${picture.name}: heatmap of ${map.target}, ${hurried}`);
}

function list(shares) {
  const order = Array.from(shares.keys()).sort((a, b) => shares[b] - shares[a]).slice(0, TOP);
  const rows = guesses(order.map((place) => [names[place], shares[place]]), 0);
  at("guesses").replaceChildren(
    ...rows.map((row, place) => {
      const button = Object.assign(make("button", "guess", ...row.childNodes), { type: "button", title: `map of ${names[order[place]]}` });
      button.dataset.class = order[place];
      button.addEventListener("click", () => explain(order[place]));
      return button;
    }),
  );
  at("said").textContent = `${names[order[0]]} ${shares[order[0]].toFixed(2)}`;
}

async function explain(target = -1) {
  const mine = ++turn;
  const began = performance.now();
  try {
    const session = await started;
    await said(`Looking at ${picture.name}`, true);
    if (mine !== turn) return;
    const feeds = { pixels: new ort.Tensor("uint8", picture.pixels, [1, ...picture.shape]) };
    if (session.inputNames.includes("target")) feeds.target = new ort.Tensor("int64", BigInt64Array.of(BigInt(target)), [1]);
    const { logits, heatmap, explained } = await session.run(feeds, ["logits", "heatmap", "explained"]);
    if (mine !== turn) return;
    const [place, grid] = [Number(explained.data[0]), heatmap.dims.slice(1)];
    const shares = labels ? probabilities(logits.data) : [];
    const map = painted(heatmap.data, grid, names?.[place] ?? "the whole output");
    window.fovea = { about, logits: logits.data, shares, heatmap: heatmap.data, grid, explained: place, map, prepared: picture }; // for whoever looks into the page
    if (labels && target < 0) list(shares);
    for (const button of at("guesses").children) button.ariaPressed = String(button.dataset.class === String(place));
    await show(map, (performance.now() - began) / 1000);
  } catch (error) {
    failed(`The network could not look at ${picture.name}: ${error.message}`);
  }
}

async function take(file) {
  if (!file) return;
  const mine = ++turn;
  const name = file.name || "pasted picture";
  at("alert").hidden = true;
  await said(`Reading ${name}`, true);
  const options = { imageOrientation: "from-image", colorSpaceConversion: "none", premultiplyAlpha: "none" };
  const bitmap = await createImageBitmap(file, options).catch(() => null);
  if (mine !== turn) return;
  if (!bitmap) return failed(`${name} is not a picture that this browser can read: give a whole JPEG, PNG, WebP, GIF or AVIF file`);
  const { width, height } = bitmap;
  const size = `${name} is ${width.toLocaleString("en")} x ${height.toLocaleString("en")} pixels`;
  if (Math.min(width, height) < 2) return failed(`${size}: at least 2 x 2 are needed to look anywhere`);
  if (width * height > MOST) return failed(`${size}: more than ${MOST.toLocaleString("en")} do not fit into a page; make it smaller, or run fovea explain`);
  picture?.bitmap.close();
  picture = { name, bitmap, ...prepare(bitmap, about.input) };
  const photo = at("photo");
  [photo.width, photo.height] = shrunk([width, height], SHOWN);
  const pen = photo.getContext("2d", { alpha: false });
  Object.assign(pen, { fillStyle: "white", imageSmoothingQuality: "high" });
  pen.fillRect(0, 0, photo.width, photo.height);
  pen.drawImage(bitmap, 0, 0, photo.width, photo.height);
  photo.ariaLabel = name;
  at("picture").style.aspectRatio = `${width} / ${height}`;
  at("picture").style.setProperty("--proportion", width / height);
  await explain();
}

const started = start();
started.catch((error) => failed(`The network does not run in this browser: ${error.message}`));
at("file").addEventListener("change", ({ target }) => take(target.files[0]).then(() => (target.value = "")));
document.addEventListener("paste", ({ clipboardData }) => take(clipboardData.files[0]));
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", ({ relatedTarget }) => relatedTarget || document.body.classList.remove("dropping"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  take(event.dataTransfer.files[0]);
});

const { fade, boxes } = form.elements;
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", () => {
  main.style.setProperty("--fade", fade.value / 100);
  main.classList.toggle("unboxed", !boxes.checked);
});
at("others").hidden = !labels;
at("classes").append(...(names ?? []).map((name) => Object.assign(make("option"), { value: name })));
at("others").addEventListener("change", ({ target }) => {
  const place = names.findIndex((name) => name.toLowerCase() === target.value.trim().toLowerCase());
  at("alert").hidden = true;
  if (place >= 0) explain(place);
  else if (target.value) failed(`This network has no class ${target.value}: choose one of the list`);
});
