// One job at a time: of what is asked for meanwhile only the newest is done, as soon as the job before it has ended.
// `hurry` ends that one at once, where its answer is of no use any more.
export function newest(work) {
  let waiting = false;
  let running = false;
  let control = null;
  async function run() {
    running = true;
    while (waiting) {
      waiting = false;
      control = new AbortController();
      await work(control.signal);
    }
    running = false;
  }
  return (hurry) => {
    waiting = true;
    if (hurry) control?.abort();
    if (!running) run();
  };
}
