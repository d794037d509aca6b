// The box of a map's hottest part, as basics/boxes.py draws it: the largest of its segments (diagonal neighbors belong
// together) at or above a share of its range. [] where the map is the same everywhere.
export function hottest(shares, [width, height], threshold) {
  const left = shares.map((share) => share >= threshold); // 1 until it has been looked at
  let best = { size: 0, box: [] };
  for (let seed = left.indexOf(1); seed >= 0; seed = left.indexOf(1, seed)) {
    const found = { size: 0, box: [width, height, 0, 0] };
    const open = [seed];
    left[seed] = 0;
    while (open.length) {
      const place = open.pop();
      const [x, y] = [place % width, Math.floor(place / width)];
      const [x0, y0, x1, y1] = found.box;
      found.box = [Math.min(x0, x), Math.min(y0, y), Math.max(x1, x + 1), Math.max(y1, y + 1)];
      found.size++;
      for (let v = Math.max(y - 1, 0); v <= Math.min(y + 1, height - 1); v++) {
        for (let u = Math.max(x - 1, 0); u <= Math.min(x + 1, width - 1); u++) {
          if (left[v * width + u]) open.push(v * width + u);
          left[v * width + u] = 0;
        }
      }
    }
    if (found.size > best.size) best = found;
  }
  return best.box;
}
