// What one may keep: the result drawn, as numbers, or as a page.
import { button } from "./controls.js";

const WORDS = { png: "Picture (PNG)", json: "Numbers (JSON)", html: "Page (HTML)" };

function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// `asked` gives the last answer, and `again` its request for another output; `work` says how that went.
export function downloads(kinds, asked, work) {
  return kinds.map((kind) =>
    button(WORDS[kind], () => {
      const { verb, answer, again, name } = asked();
      const file = `${name.replace(/\.\w+$/, "")}-${verb}.${kind}`;
      if (kind === "json") return save(new Blob([JSON.stringify(answer.result, null, 1)], { type: "application/json" }), file);
      return work(async () => save(await (await again(kind)).blob(), file));
    }),
  );
}
