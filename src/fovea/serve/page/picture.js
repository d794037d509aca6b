// A picture as the page has it: the browser's own copy, shown at once, and the service's, asked about by its id.
import { getImage, upload } from "./service.js";
import { doing } from "./status.js";

const ALIKE = 0.02; // proportions of the two copies differ by less, unless the browser turned it another way

async function loaded(url) {
  const image = new Image();
  image.src = url;
  await image.decode();
  return image;
}

function shown(picture, image) {
  picture.size ??= [image.naturalWidth, image.naturalHeight];
  return Object.assign(picture, { image, url: image.src });
}

// `size` is of the whole picture; `image` may be a smaller copy of it.
export async function ofFile(file) {
  const name = file.name || "pasted picture";
  const sent = upload(file, name); // while it is decoded here
  sent.catch(() => {}); // told when it is asked about
  const picture = { name, file, sent, id: null, deep: false, size: null, image: null };
  const url = URL.createObjectURL(file);
  try {
    return shown(picture, await loaded(url)); // turned as its EXIF says
  } catch {
    URL.revokeObjectURL(url); // of a format that the service may know
    return picture;
  }
}

export async function ofExample({ id, name }) {
  const image = await loaded(await getImage(`/v1/pictures/${id}/preview`));
  return shown({ name, file: null, id, deep: false }, image);
}

const bytes = (count) => (count < 1e6 ? `${Math.max(Math.round(count / 1e3), 1)} kB` : `${(count / 1e6).toFixed(1)} MB`);

// Sent where the service does not have it (any more); whether what is shown changed by that.
export async function send(picture) {
  if (picture.id) return false;
  doing(`Uploading ${picture.name}, ${bytes(picture.file.size)}`);
  picture.sent ??= upload(picture.file, picture.name);
  const { id, width, height, deep } = await picture.sent.finally(() => (picture.sent = null));
  const [w, h] = picture.size ?? [0, 1];
  const same = picture.image && !deep && Math.abs(w / h / (width / height) - 1) < ALIKE;
  Object.assign(picture, { size: [width, height], deep });
  if (!same) {
    const { url } = picture;
    shown(picture, await loaded(await getImage(`/v1/pictures/${id}/preview`)));
    URL.revokeObjectURL(url);
  }
  picture.id = id;
  return !same;
}

// A part of the picture as pixels of another size, as a network reads it: an address.
export function cropped({ image, size: [width, height] }, [x0, y0, x1, y1], [w, h]) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(Math.round(w), 1);
  canvas.height = Math.max(Math.round(h), 1);
  const pen = canvas.getContext("2d");
  const [across, down] = [image.naturalWidth / width, image.naturalHeight / height];
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, x0 * across, y0 * down, (x1 - x0) * across, (y1 - y0) * down, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.92);
}
