// The service: every request of the page goes through here, with the token where there is one.
import { doing } from "./status.js";

const TRIES = 5; // of a service that is busy
const LONG = 5000; // milliseconds after which a refusal is no matter of waiting: it was worked at

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname + location.search); // nobody reads it over a shoulder, or in a link
}
addEventListener("hashchange", () => location.hash.includes("token=") && location.reload()); // another address was pasted
const token = sessionStorage.getItem("token");
export const headers = token ? { Authorization: `Bearer ${token}` } : {};

// What was refused, in the service's words.
export class Refused extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

async function refusal(answer) {
  const said = await answer.json().then(({ detail }) => detail, () => "");
  if (answer.status === 401) return new Refused(401, `${said || "a token is needed"}: open the address that 'fovea serve' printed`);
  return new Refused(answer.status, said || `the service answered ${answer.status} ${answer.statusText}`);
}

const pause = (seconds, signal) =>
  new Promise((done, failed) => {
    setTimeout(done, 1000 * seconds);
    signal?.addEventListener("abort", () => failed(signal.reason));
  });

// A busy service is asked again when it says so.
async function send(path, options = {}) {
  for (let tries = 1; ; tries++) {
    const start = performance.now();
    let answer;
    try {
      answer = await fetch(path, { ...options, headers: { ...headers, ...options.headers } });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused(0, "the service cannot be reached; see whether 'fovea serve' still runs, then try again");
    }
    if (answer.ok) return answer;
    if (answer.status !== 503 || tries === TRIES || performance.now() - start > LONG) throw await refusal(answer);
    const seconds = Number(answer.headers.get("Retry-After")) || 2;
    doing(`The service is busy; trying again in ${seconds} s`);
    await pause(seconds, options.signal);
  }
}

export const get = async (path) => (await send(path)).json();
export const getBytes = async (path) => new Uint8Array(await (await send(path)).arrayBuffer());
export const getImage = async (path) => URL.createObjectURL(await (await send(path)).blob());

export function post(path, body, signal) {
  const options = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal };
  return send(path, options);
}

export async function upload(file, name) {
  const form = new FormData();
  form.append("picture", file, name);
  return (await send("/v1/pictures", { method: "POST", body: form })).json();
}
