// Says what the page is doing, and what went wrong.
const SOON = 2000; // milliseconds after which the time is told
const line = document.querySelector("#status");
const [words, time] = line.children;
const alert = document.querySelector("#alert");
let timer;
let source = null; // of what went wrong

export function doing(text) {
  const start = performance.now();
  clearInterval(timer);
  line.classList.add("busy");
  words.textContent = text;
  time.textContent = "";
  timer = setInterval(() => {
    const spent = performance.now() - start;
    if (spent > SOON) time.textContent = `${Math.floor(spent / 1000)} s`;
  }, 250);
}

export function done(text = "") {
  clearInterval(timer);
  line.classList.remove("busy");
  words.textContent = text;
  time.textContent = "";
}

// Beside what is being done.
export function note(text) {
  words.textContent = text;
}

export function failed(text, by = null) {
  done();
  source = by;
  alert.textContent = text;
  alert.hidden = false;
}

// What `by` said went wrong, or whatever did.
export function clear(by = source) {
  if (by !== source) return;
  alert.hidden = true;
  alert.textContent = "";
}
