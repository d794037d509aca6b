// Fills a page of results as one scrolls: predictions, maps painted over the photograph, what was read of it closely,
// figures, films, texts. It stands on painting.js and stage.js, which come before it in the same script.
(() => {
  const main = document.querySelector("main");
  const articles = [...main.querySelectorAll("article")];
  const colors = bytes(main.dataset.colors ?? "");
  const FINEST = 360; // pixels of the longer side of a painted map
  const DEEP = 1200; // of one that is zoomed into

  // What belongs to an article: inside it, or in a file beside the page, which from file:// can only be a script.
  const waiting = new Map();
  window.fovea = (stem, content) => waiting.get(stem)?.(content);
  const load = (article) => (article.loaded ??= asked(article));
  function asked(article) {
    const inside = article.querySelector("script");
    if (inside) return Promise.resolve(JSON.parse(inside.textContent));
    return new Promise((done, failed) => {
      if (!article.dataset.src) return failed();
      waiting.set(article.dataset.stem, done);
      run(article.dataset.src).then(failed);
    });
  }

  // Once a script beside the page has run, or cannot.
  function run(src) {
    return new Promise((done) => {
      const script = Object.assign(make("script"), { src });
      script.onload = script.onerror = () => done(script.remove());
      document.head.append(script);
    });
  }
  const running = new Map(); // those that serve all articles
  const once = (src) => running.get(src) ?? running.set(src, run(src)).get(src);

  function over(panel, map) {
    const photograph = Object.assign(make("img"), { src: panel.src, alt: "" });
    const { canvas, placed } = layer(map);
    const frame = make("div", "over", photograph, placed);
    frame.style.aspectRatio = panel.size.join(" / ");
    frame.title = "click to enlarge";
    frame.addEventListener("click", () => frame.parentNode.classList.toggle("large"));
    return { frame, canvas };
  }

  function targets(content, article) {
    const groups = new Map();
    article.maps = content.maps.map((map) => {
      const panel = content.panels[map.panel];
      const { frame, canvas } = over(panel, map);
      const caption = make("figcaption", "", make("b", "", map.method));
      if (panel.caption) caption.append(` ${panel.caption}`);
      if (map.note) caption.append(`: ${map.note}`);
      if (!groups.has(map.target)) groups.set(map.target, make("div", "tiles"));
      groups.get(map.target).append(make("figure", "", frame, caption));
      return { canvas, map, size: panel.size, finest: FINEST };
    });
    const said = groups.size === 1 && groups.has(`${article.dataset.label} ${article.dataset.share}`); // in the heading
    return [...groups].map(([target, tiles]) => make("div", "", ...(said ? [] : [make("h4", "", target)]), tiles));
  }

  // A figure, but for the first, which is there already; the same as a film, if any; and what it is.
  function figure(panel, number) {
    const parts = [];
    if (number > 0) parts.push(Object.assign(make("img"), { src: panel.src, alt: "", title: "click to enlarge" }));
    parts[0]?.addEventListener("click", (event) => event.target.parentNode.classList.toggle("large"));
    if (panel.film) parts.push(Object.assign(make("video"), { controls: true, preload: "metadata", src: panel.film }));
    return make("figure", "", ...parts, make("figcaption", "", panel.caption));
  }

  // Maps of the same big picture that another run left on the page.
  async function borrowed(article, content) {
    const others = content.viewer ? articles.filter((other) => other !== article && other.dataset.name === article.dataset.name) : [];
    const found = await Promise.all(others.map((other) => load(other).catch(() => null)));
    return found.filter((other) => String(other?.size) === String(content.size)).flatMap((other) => other.maps);
  }

  async function fill(article, content) {
    const folder = (article.dataset.src ?? "").replace(/[^/]*$/, "");
    const shown = article.querySelector("img");
    content.panels.forEach((panel, number) => {
      const at = (name) => (name && !name.startsWith("data:") ? folder + encodeURIComponent(name) : name);
      panel.film = at(panel.film);
      panel.src = number === 0 && shown ? shown.src : at(panel.src);
    });
    const body = article.querySelector(".body");
    if (content.words) article.querySelector("header").append(make("p", "dim", content.words));
    if (content.text.length) article.querySelector("h3").replaceChildren(...marked(content.text));
    if (content.size) {
      const size = content.panels[0].size;
      const finest = content.viewer ? DEEP : FINEST;
      const maps = content.maps.length ? content.maps : await borrowed(article, content);
      article.maps = maps.map((map) => ({ ...layer(map), map, size, finest }));
      article.stage = stage(article, content);
      if (content.predictions.length) body.querySelector(".photo").append(...guesses(content.predictions));
      if (content.table.length) body.append(table(content.table));
      if (content.viewer && !window.OpenSeadragon) return once(folder + content.viewer);
    } else if (content.maps.length) {
      body.querySelector(".photo").append(...guesses(content.predictions));
      body.append(make("div", "maps", ...targets(content, article)));
      const under = new Set(content.maps.map((map) => map.panel)); // what else was drawn
      const others = content.panels.map(figure).filter((_, number) => !under.has(number));
      if (others.length) article.append(make("div", "figures", ...others));
      if (content.table.length) article.append(table(content.table));
    } else {
      if (content.table.length) body.before(table(content.table));
      body.append(...content.panels.map(figure).filter((shown) => shown.textContent || shown.children.length > 1));
    }
  }

  // Painted while it is near what one sees; let go of where it is not, so that thousands take no memory.
  const near = new IntersectionObserver(
    (entries) => {
      for (const { target: article, isIntersecting } of entries) {
        article.near = isIntersecting;
        if (isIntersecting && !article.content) {
          article.content = load(article).then(
            (content) => fill(article, content),
            () => {},
          );
        }
        article.content?.then(() => {
          for (const painted of article.maps ?? []) {
            const { canvas } = painted;
            if (!article.near) canvas.width = canvas.height = 0;
            else if (!canvas.dataset.painted || !canvas.width) paint({ ...painted, colors });
            canvas.dataset.painted = "yes";
          }
          if (article.near) article.stage?.open();
          else article.stage?.close();
        });
      }
    },
    { rootMargin: "700px 0px" },
  );
  articles.forEach((article) => near.observe(article));

  const controls = document.querySelector("form.controls");
  if (!controls) return;
  controls.hidden = false;
  controls.addEventListener("submit", (event) => event.preventDefault());
  const { search, sort, fade, boxes, count } = controls.elements;
  articles.forEach((article, place) => {
    const { name, label } = article.dataset;
    article.key = { name, label, place, share: parseFloat(article.dataset.share), words: `${name} ${label}`.toLowerCase() };
  });

  function filter() {
    const words = (search?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const article of articles) {
      article.hidden = !words.every((word) => article.key.words.includes(word));
      left += !article.hidden;
    }
    count.value = !search ? "" : left === articles.length ? `${left}` : `${left} of ${articles.length}`;
  }

  const text = new Intl.Collator(undefined, { numeric: true }).compare;
  const known = (share) => (Number.isNaN(share) ? -1 : share);
  const orders = {
    given: (a, b) => a.place - b.place,
    name: (a, b) => text(a.name, b.name),
    label: (a, b) => text(a.label, b.label) || known(b.share) - known(a.share),
    sure: (a, b) => known(b.share) - known(a.share),
    unsure: (a, b) => known(a.share) - known(b.share),
  };

  function order() {
    const sorted = [...articles].sort((a, b) => orders[sort.value](a.key, b.key) || a.key.place - b.key.place);
    for (const run of main.querySelectorAll(".run")) run.append(...sorted.filter((article) => article.parentNode === run));
  }

  const look = () => {
    main.style.setProperty("--fade", (fade?.value ?? 100) / 100);
    main.classList.toggle("unboxed", boxes?.checked === false);
  };
  search?.addEventListener("input", filter);
  sort?.addEventListener("change", order);
  fade?.addEventListener("input", look);
  boxes?.addEventListener("change", look);
  filter(); // a browser that goes back has kept what was typed
  if (sort && sort.value !== "given") order();
  look();
})();
