// A picture of a page of results with what was read of it closely, and how one zooms into it.
function stage(article, content) {
  const [width, height] = content.size;
  const parts = content.parts ?? [];
  const id = `read-${[...document.querySelectorAll("article")].indexOf(article)}`;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

  let viewer = null;
  let raise = null; // a part above all others in the viewer

  const photo = article.querySelector(".photo");
  const picture = make("div", "picture", photo.querySelector("img"), ...article.maps.map(({ placed }) => placed));
  picture.style.aspectRatio = `${width} / ${height}`;
  picture.style.setProperty("--proportion", width / height);
  const tools = make("div", "tools");
  photo.classList.add("stage");
  photo.append(picture, tools);

  const chosen = (part, fly) => {
    raise?.(part); // as it was read, also where the picture is drawn finer
    if (fly) article.fly?.(part.box);
  };
  const { boxes, steps, closer, choose, place } = readings({ id, parts, panels: content.panels, size: content.size, chosen });
  picture.append(...boxes);

  const seen = make("label", "", Object.assign(make("input"), { type: "checkbox", checked: true }), " boxes");
  seen.addEventListener("change", (event) => photo.classList.toggle("bare", !event.target.checked));
  if (boxes.some((box) => !box.hidden) && !document.querySelector("form [name=boxes]")) tools.append(seen);
  if (parts.length) {
    const answer = `probability of ${article.dataset.label} after each`;
    const title = parts[0].share === null ? "read closely" : parts.some((part) => part.ahead) ? `${answer}; in gray what was ahead` : answer;
    steps.ariaLabel = title;
    photo.after(make("div", "reading", make("h4", "", title), steps), closer);
    choose(parts[0].share === null ? 0 : parts.length - 1, false); // of regions the best, of a descent where it ended
  }
  const none = content.maps.length ? [] : ["no map"]; // those of another run are there to be asked for
  if (article.maps.length + none.length > 1) {
    const names = [...none, ...article.maps.map(({ map }) => `${map.method}: ${map.target}`)];
    const which = make("select", "", ...names.map((name) => make("option", "", name)));
    const show = () =>
      article.maps.forEach(({ placed }, number) => placed.classList.toggle("off", number !== which.selectedIndex - none.length));
    which.ariaLabel = "map";
    which.addEventListener("change", show);
    tools.append(which);
    show();
  }
  // Where one zooms into the picture, what was read lies on it at its own resolution; without the viewer it is as above.
  function open() {
    if (viewer || !window.OpenSeadragon) return;
    const rect = ([x0, y0, x1, y1]) => new OpenSeadragon.Rect(x0 / width, y0 / width, (x1 - x0) / width, (y1 - y0) / width);
    const sharp = ({ panel, box: [x0, , x1] }) => content.panels[panel].size[0] / (x1 - x0);
    const whole = { panel: 0, box: [0, 0, width, height] };
    const layers = [whole, ...parts.filter((part) => part.level > 1)].sort((a, b) => sharp(a) - sharp(b)); // the finest on top
    const tileSources = layers.map(({ panel, box }) => {
      const { x, y, width } = rect(box);
      return { tileSource: { type: "image", url: content.panels[panel].src, buildPyramid: false }, x, y, width };
    });
    picture.classList.add("deep");
    viewer = new OpenSeadragon.Viewer({
      element: picture.appendChild(make("div", "viewer")),
      drawer: "canvas", // pictures beside a page from file:// are no textures
      tileSources,
      showNavigationControl: false,
      maxZoomPixelRatio: 8,
      minZoomImageRatio: 0.6,
      visibilityRatio: 0.6,
      immediateRender: true,
      animationTime: still ? 0 : 0.8,
      gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
      gestureSettingsTouch: { clickToZoom: false, dblClickToZoom: true },
    });
    article.viewer = viewer; // for whoever looks into the page
    viewer.addHandler("canvas-scroll", (event) => {
      // the page scrolls on, unless one works with the picture
      const zooms = picture.contains(document.activeElement) || event.originalEvent.ctrlKey;
      event.preventDefault = zooms;
      event.preventDefaultAction = !zooms;
    });
    viewer.addHandler("canvas-click", (event) => {
      const box = event.originalTarget.closest?.(".part"); // it gets no click of its own there
      if (event.quick && box) choose(boxes.indexOf(box));
    });
    viewer.addHandler("open", () => {
      const images = layers.map((_, place) => viewer.world.getItemAt(place));
      raise = (part) => {
        images.forEach((image, place) => viewer.world.setItemIndex(image, place));
        const place = layers.indexOf(part);
        if (place >= 0) viewer.world.setItemIndex(images[place], images.length - 1);
      };
      for (const { placed } of article.maps) viewer.addOverlay(placed, rect([0, 0, width, height]));
      boxes.forEach((box, number) => box.hidden || viewer.addOverlay(box, rect(parts[number].box)));
    });
    viewer.canvas.role = "application";
    viewer.canvas.ariaLabel = "the picture: arrow keys move it, plus and minus zoom, 0 shows all of it";
    article.fly = ([x0, y0, x1, y1]) => {
      const edge = 0.1 * Math.max(x1 - x0, y1 - y0);
      viewer.viewport.fitBounds(rect([x0 - edge, y0 - edge, x1 + edge, y1 + edge]), still);
    };
  }
  function close() {
    if (!viewer) return;
    viewer.destroy();
    article.viewer = viewer = raise = article.fly = null;
    picture.querySelector(".viewer").remove();
    picture.classList.remove("deep");
    for (const { placed } of article.maps) picture.append(Object.assign(placed, { style: "" }));
    place();
    picture.append(...boxes);
  }
  if (content.viewer) {
    const button = (words, title, work) => {
      const made = Object.assign(make("button", "", words), { type: "button", title });
      made.addEventListener("click", () => viewer && work(viewer.viewport));
      return made;
    };
    tools.prepend(
      button("+", "zoom in", (port) => port.zoomBy(1.6).applyConstraints()),
      button("−", "zoom out", (port) => port.zoomBy(1 / 1.6).applyConstraints()),
      button("all", "show all of the picture", (port) => port.goHome(still)),
    );
  }
  return { open, close };
}
