// A picture as the network takes it, to the byte: Prepare of pictures/transforms.py, with Pillow's way of resizing.
const BITS = 22; // of a weight, after the point
const STRIP = 1e6; // pixels that are read from the picture at once
const sinc = (x) => (x ? Math.sin(Math.PI * x) / (Math.PI * x) : 1);
const CURVES = {
  nearest: [0],
  bilinear: [1, (x) => 1 - x],
  bicubic: [2, (x) => (x < 1 ? (1.5 * x - 2.5) * x * x + 1 : (((x - 5) * x + 8) * x - 4) * -0.5)],
  lanczos: [3, (x) => sinc(x) * sinc(x / 3)],
}; // how far they reach, and their value at a distance

function even(number) {
  const nearest = Math.round(number); // a half upwards, where Python goes to the even one
  return nearest - number === 0.5 && nearest % 2 ? nearest - 1 : nearest;
}

// Which pixels of an axis, with which weights, make each of `count` new ones of the stretch from `start` to `stop`.
function weighted(size, start, stop, count, kind) {
  const [reach, curve] = CURVES[kind];
  const [from, to] = [Math.fround(start), Math.fround(stop)]; // in which Pillow takes them
  const scale = Math.fround(to - from) / count;
  const widened = Math.max(scale, 1);
  let added = from + scale / 2; // a half of a pixel is rounded as it is when scales are added up, by Pillow's `nearest`
  return Array.from({ length: count }, (_, place) => {
    const center = from + (place + 0.5) * scale;
    const under = Math.floor(added);
    added += scale;
    if (!reach) return { first: Math.min(under, size - 1), weights: [2 ** BITS] };
    const first = Math.max(Math.trunc(center - reach * widened + 0.5), 0);
    const end = Math.min(Math.trunc(center + reach * widened + 0.5), size);
    const distances = Array.from({ length: end - first }, (_, i) => Math.abs((first + i - center + 0.5) * (1 / widened)));
    const shares = distances.map((distance) => (distance < reach ? curve(distance) : 0));
    const total = shares.reduce((sum, share) => sum + share, 0);
    return { first, weights: shares.map((share) => Math.sign(share) * Math.round(Math.abs(share / total) * 2 ** BITS)) };
  });
}

// One pass over `lines` of red, green, blue; the next pixel of a line is `step` values on, the next line `line`.
function pass(from, [line, step], lines, axis, to, [toLine, toStep]) {
  for (let y = 0; y < lines; y++) {
    for (let x = 0; x < axis.length; x++) {
      const { first, weights } = axis[x];
      for (let channel = 0; channel < 3; channel++) {
        let sum = 2 ** (BITS - 1);
        for (let i = 0, at = y * line + first * step + channel; i < weights.length; i++, at += step) sum += from[at] * weights[i];
        to[y * toLine + x * toStep + channel] = sum >> BITS; // which is clamped to a byte there
      }
    }
  }
}

// A box of a picture at another size, transparency on white: H,W,3.
function resized(picture, [x0, y0, x1, y1], width, height, kind) {
  const across = weighted(picture.width, x0, x1, width, kind);
  const down = weighted(picture.height, y0, y1, height, kind);
  const { width: wide, height: high } = picture;
  const upright = high - height > Math.max(2 * (wide - width), 0); // Pillow's order of the passes, seen in the last bit
  const [lines, length] = upright ? [wide, high] : [high, wide];
  const count = Math.min(Math.max(Math.floor(STRIP / length), 1), lines);
  const canvas = Object.assign(document.createElement("canvas"), upright ? { width: count, height: high } : { width: wide, height: count });
  const pen = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
  pen.fillStyle = "white";
  const middle = new Uint8ClampedArray(3 * (upright ? wide * height : width * high));
  for (let start = 0; start < lines; start += count) {
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(picture, ...(upright ? [-start, 0] : [0, -start]));
    const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
    const some = Math.min(count, lines - start);
    if (upright) pass(data, [4, 4 * count], some, down, middle.subarray(3 * start), [3, 3 * wide]);
    else pass(data, [4 * wide, 4], some, across, middle.subarray(3 * width * start), [3 * width, 3]);
  }
  const small = new Uint8ClampedArray(3 * width * height);
  if (upright) pass(middle, [3 * wide, 3], height, across, small, [3 * width, 3]);
  else pass(middle, [3, 3 * width], width, down, small, [3, 3 * width]);
  return small;
}

function sized(how, width, height) {
  const { size: [h, w], step, longest, dynamic } = how;
  if (!step || !dynamic) return how;
  const stretch = Math.sqrt(((width / height) * h) / w);
  const bounded = Math.min(Math.max(stretch, 1 / longest), longest);
  const side = (own, wanted) => Math.max(own + step * even((wanted - own) / step), step);
  return { ...how, size: [side(h, h / bounded), side(w, w * bounded)], whole: bounded !== stretch };
}

// The input's bytes (H,W,C), its shape, and where it lies: the share of the input at share x of the picture's width is
// at[0] x + at[1]; of its height by the other two.
export function prepare(picture, how) {
  const { width, height } = picture;
  const { size: [h, w], whole, crop, interpolation, mean } = sized(how, width, height);
  const shrink = whole ? Math.max(width / w, height / h) : crop * Math.min(width / w, height / h);
  const inner = whole ? [width, height].map((side) => Math.max(even(side / shrink), 1)) : [w, h];
  const corner = [w, h].map((side, axis) => Math.floor((side - inner[axis]) / 2));
  const scales = whole || crop === null ? [width / inner[0], height / inner[1]] : [shrink, shrink];
  const starts = scales.map((scale, axis) => (whole || crop === null ? -scale * corner[axis] : ([width, height][axis] - scale * [w, h][axis]) / 2));
  const ends = [Math.min(starts[0] + scales[0] * w, width), Math.min(starts[1] + scales[1] * h, height)];
  const small = resized(picture, [Math.max(starts[0], 0), Math.max(starts[1], 0), ...(whole ? [width, height] : ends)], ...inner, interpolation);
  const pixels = new Uint8Array(3 * w * h).map((_, place) => even(255 * mean[place % 3 % mean.length]));
  for (let y = 0; y < inner[1]; y++) {
    pixels.set(small.subarray(3 * inner[0] * y, 3 * inner[0] * (y + 1)), 3 * ((corner[1] + y) * w + corner[0]));
  }
  const gray = (_, place) => (19595 * pixels[3 * place] + 38470 * pixels[3 * place + 1] + 7471 * pixels[3 * place + 2] + 0x8000) >> 16;
  const values = mean.length === 1 ? new Uint8Array(w * h).map(gray) : pixels;
  const lines = [[width, w], [height, h]].map(([side, length], axis) => [side / (scales[axis] * length), -starts[axis] / (scales[axis] * length)]);
  return { pixels: values, shape: [h, w, mean.length], at: lines.flat() };
}
