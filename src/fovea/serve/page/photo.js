// The picture large, with a sheet over it on which maps and boxes lie; a big file is zoomed into, tile by tile.
import { button } from "./controls.js";
import { described, layer, make, paint } from "./painting.js";
import { headers } from "./service.js";
import { failed } from "./status.js";

const FINEST = 720; // pixels of the longer side of a painted map
export const SMALL = 160; // of one beside others
const TILE = 256;
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

export function photograph(picture) {
  const [width, height] = picture.size;
  const sheet = make("div", "sheet");
  const element = make("div", "picture");
  element.style.setProperty("--proportion", width / height);
  if (picture.deep) return { element, sheet, ...zoomable(picture, element, sheet) };
  element.append(Object.assign(make("img"), { src: picture.url, alt: picture.name }), sheet);
  element.style.aspectRatio = `${width} / ${height}`;
  return { element, sheet, fly: () => {}, close: () => {} };
}

// A painted map of a picture of this size, with words for those who do not see it.
export function heat(map, size, colors, finest = FINEST) {
  const { canvas, placed } = layer(map);
  paint({ canvas, map, size, finest, colors });
  Object.assign(placed, { role: "img", ariaLabel: described(map) });
  return placed;
}

// Everything but the boxes covered, or the boxes; in the picture's pixels.
export function cover([width, height], boxes, kept, words) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const rect = ([x0, y0, x1, y1]) => `M${x0} ${y0}H${x1}V${y1}H${x0}Z`;
  path.setAttribute("d", (kept ? rect([0, 0, width, height]) : "") + boxes.map(rect).join(""));
  path.setAttribute("fill-rule", "evenodd");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  Object.assign(svg, { role: "img", ariaLabel: words });
  svg.classList.add("cover");
  svg.append(path);
  return svg;
}

let library = null;
const viewers = () =>
  (library ??= new Promise((done) => {
    const script = make("script");
    script.src = "/page/openseadragon.js";
    script.onerror = () => {
      library = null; // it is loaded again with the next picture
      failed("The viewer of large pictures could not be loaded; see whether 'fovea serve' still runs");
    };
    script.onload = () => done(window.OpenSeadragon);
    document.head.append(script);
  }));

const steps = (port) => [
  button("+", () => port.zoomBy(1.6).applyConstraints(), "", "zoom in"),
  button("−", () => port.zoomBy(1 / 1.6).applyConstraints(), "", "zoom out"),
  button("all", () => port.goHome(still), "", "show all of the picture"),
];

function zoomable(picture, element, sheet) {
  const [width, height] = picture.size;
  let viewer = null;
  let closed = false;
  element.classList.add("deep");
  const rect = ([x0, y0, x1, y1]) => new OpenSeadragon.Rect(x0 / width, y0 / width, (x1 - x0) / width, (y1 - y0) / width);
  viewers().then((OpenSeadragon) => {
    if (closed) return;
    const getTileUrl = (level, x, y) => `/v1/pictures/${picture.id}/tiles/${level}/${x}/${y}`;
    viewer = new OpenSeadragon.Viewer({
      element,
      tileSources: { width, height, tileSize: TILE, getTileUrl },
      loadTilesWithAjax: Object.keys(headers).length > 0,
      ajaxHeaders: headers,
      drawer: "canvas",
      showNavigationControl: false,
      maxZoomPixelRatio: 4,
      visibilityRatio: 0.6,
      tileRetryMax: 3, // a busy service takes it later
      animationTime: still ? 0 : 0.8,
      gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
      gestureSettingsTouch: { clickToZoom: false, dblClickToZoom: true },
    });
    element.viewer = viewer; // for whoever looks into the page
    element.append(make("div", "zooming", ...steps(viewer.viewport)));
    viewer.canvas.role = "application";
    viewer.canvas.ariaLabel = `${picture.name}: arrow keys move it, plus and minus zoom, 0 shows all of it`;
    viewer.addHandler("open", () => viewer.addOverlay(sheet, rect([0, 0, width, height])));
    viewer.addHandler("canvas-click", (event) => {
      if (event.quick) event.originalTarget.closest?.(".part")?.click(); // it gets none of its own there
    });
    viewer.addHandler("canvas-scroll", (event) => {
      const zooms = element.contains(document.activeElement) || event.originalEvent.ctrlKey; // else the page scrolls on
      event.preventDefault = zooms;
      event.preventDefaultAction = !zooms;
    });
  });
  const fly = ([x0, y0, x1, y1]) => {
    const edge = 0.2 * Math.max(x1 - x0, y1 - y0);
    viewer?.viewport.fitBounds(rect([x0 - edge, y0 - edge, x1 + edge, y1 + edge]), still);
  };
  const close = () => {
    closed = true;
    viewer?.destroy();
  };
  return { fly, close };
}
