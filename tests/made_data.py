"""A few small pictures of every data set, in its published layout: the real names and formats of the files."""

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

Made = Callable[..., Path]  # what the fixture `made` gives


def save(path: Path, size: tuple[int, int] = (30, 20), shade: int = 99) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, shade, shade)).save(path)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def xml(name: str, *boxes: tuple[int, int, int, int], size: tuple[int, int] = (30, 20)) -> str:
    objects = "".join(
        f"<object><name>{name}</name><pose>Unspecified</pose><bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin>"
        f"<xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>"
        for x0, y0, x1, y1 in boxes
    )
    width, height = size
    return (
        f"<annotation><folder>val</folder><filename>x</filename><size><width>{width}</width><height>{height}</height>"
        f"<depth>3</depth></size><segmented>0</segmented>{objects}</annotation>"
    )


def cells(texts: list[str]) -> np.ndarray:
    """A MATLAB cell array, one column."""
    found = np.empty((len(texts), 1), object)
    found[:, 0] = texts
    return found


def structs(**fields: list[object]) -> np.ndarray:
    """A MATLAB struct array, 1 x N."""
    count = len(next(iter(fields.values())))
    found = np.empty((1, count), [(name, object) for name in fields])
    for name, values in fields.items():
        for i, value in enumerate(values):
            found[name][0, i] = value
    return found


def make_folder(root: Path) -> None:
    for name in ("train/cat/a", "train/dog/b", "test/dog/c", "test/emu/sub/d"):
        save(root / f"{name}.png")


def write_pack(
    root: Path, rows: Iterable[tuple[str, Image.Image | bytes, str, str, str]], names: Sequence[str] = ()
) -> None:
    """One shard and its manifest, of (name, picture, label, boxes, split); `names` of labels that are numbers."""
    lines = ["file,shard,label,boxes,split" + ",class_name" * bool(names)]
    with tarfile.open(root / "00.tar", "w") as tar:
        for name, picture, label, boxes, split in rows:
            buffer = io.BytesIO()
            if isinstance(picture, bytes):
                buffer.write(picture)
            else:
                picture.save(buffer, "png")
            info = tarfile.TarInfo(name)
            info.size = buffer.tell()
            buffer.seek(0)
            tar.addfile(info, buffer)
            lines.append(f"{name},00.tar,{label},{boxes},{split}" + (f",{names[int(label)]}" if names else ""))
    write(root / "manifest.csv", "\n".join(lines))


def make_pack(root: Path) -> None:
    parts = (("a.png", "cat", "train"), ("b.png", "ant", "train"), ("c.png", "cat", "test"))
    write_pack(root, [(one, Image.new("RGB", (30, 20)), name, "1 2 3 4;5 6 7 8", split) for one, name, split in parts])


def make_cub(root: Path) -> None:
    files = [f"001.Black_footed_Albatross/Black_Footed_Albatross_000{i}.jpg" for i in (1, 2)]
    files += ["002.Laysan_Albatross/Laysan_Albatross_0001.jpg"]
    for file in files:
        save(root / "images" / file)
    write(root / "images.txt", "".join(f"{i} {file}\n" for i, file in enumerate(files, 1)))
    write(root / "image_class_labels.txt", "1 1\n2 1\n3 2\n")
    write(root / "train_test_split.txt", "1 0\n2 1\n3 1\n")
    write(root / "bounding_boxes.txt", "1 6.0 2.0 10.0 15.0\n2 0.0 0.0 30.0 20.0\n3 1.0 1.0 2.0 2.0\n")
    write(root / "classes.txt", "1 001.Black_footed_Albatross\n2 002.Laysan_Albatross\n")


def make_dogs(root: Path) -> None:
    lists = {"train": ["n02085620-Chihuahua/n02085620_5927", "n02085782-Japanese_spaniel/n02085782_1039"]}
    lists["test"] = ["n02085620-Chihuahua/n02085620_2650"]
    for part, names in lists.items():
        for name in names:
            save(root / f"Images/{name}.jpg")
            write(root / f"Annotation/{name}", xml("Chihuahua", (0, 3, 29, 10)))
        labels = np.array([[1 if "Chihuahua" in name else 2] for name in names], np.uint8)
        files = cells([f"{name}.jpg" for name in names])
        content = {"file_list": files, "annotation_list": cells(names), "labels": labels}
        savemat(root / f"{part}_list.mat", content)


def make_cars(root: Path) -> None:
    (root / "devkit").mkdir(parents=True)
    names = np.empty((1, 2), object)
    names[0, :] = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012"]
    savemat(root / "devkit/cars_meta.mat", {"class_names": names})
    for part, place in (("train", "devkit/cars_train_annos.mat"), ("test", "cars_test_annos_withlabels.mat")):
        for i in (1, 2):
            save(root / f"cars_{part}/{i:05}.jpg")
        fields = {"bbox_x1": [1, 3], "bbox_y1": [1, 4], "bbox_x2": [30, 8], "bbox_y2": [20, 9]}
        content = structs(**fields, **{"class": [2, 1]}, fname=["00001.jpg", "00002.jpg"])
        savemat(root / place, {"annotations": content})


def make_old_cars(root: Path) -> None:
    names = np.empty((1, 2), object)
    names[0, :] = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012"]
    for i in (1, 2):
        save(root / f"car_ims/{i:06}.jpg")
    content = structs(
        relative_im_path=["car_ims/000001.jpg", "car_ims/000002.jpg"],
        bbox_x1=[1, 3], bbox_y1=[1, 4], bbox_x2=[30, 8], bbox_y2=[20, 9],
        **{"class": [1, 2]}, test=[0, 1],
    )  # fmt: skip
    savemat(root / "cars_annos.mat", {"annotations": content, "class_names": names})


def make_imagenet(root: Path) -> None:
    """The classes 0 (tench), 1 (goldfish) and 217 (English springer)."""
    for name in ("n01440764/n01440764_10026", "n01440764/n01440764_10027", "n02102040/n02102040_7"):
        save(root / f"Data/CLS-LOC/train/{name}.JPEG")
    write(root / "Annotations/CLS-LOC/train/n01440764/n01440764_10026.xml", xml("n01440764", (13, 2, 20, 14)))
    for i, wnid in enumerate(("n02102040", "n01443537"), 1):
        save(root / f"Data/CLS-LOC/val/ILSVRC2012_val_{i:08}.JPEG")
        boxes = [(0, 0, 29, 19), (4, 5, 6, 7)][:i]
        write(root / f"Annotations/CLS-LOC/val/ILSVRC2012_val_{i:08}.xml", xml(wnid, *boxes))


def make_tiny_imagenet(root: Path) -> None:
    write(root / "wnids.txt", "n02124075\nn01443537\n")
    words = "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02124075\tEgyptian cat\n"
    write(root / "words.txt", words)
    for wnid in ("n02124075", "n01443537"):
        for i in range(2):
            save(root / f"train/{wnid}/images/{wnid}_{i}.JPEG", (64, 64))
        write(root / f"train/{wnid}/{wnid}_boxes.txt", f"{wnid}_0.JPEG\t0\t10\t63\t58\n{wnid}_1.JPEG\t1\t2\t3\t4\n")
    for i in range(2):
        save(root / f"val/images/val_{i}.JPEG", (64, 64))
    write(root / "val/val_annotations.txt", "val_0.JPEG\tn02124075\t0\t32\t44\t62\nval_1.JPEG\tn01443537\t5\t6\t7\t8\n")
    save(root / "test/images/test_0.JPEG", (64, 64))


def make_fmow(root: Path) -> None:
    for part, category, box in (
        ("train", "airport", [3, 4, 10, 5]), ("train", "zoo", [1, 1, 8, 8]), ("val", "barn", [0, 0, 30, 20]),
    ):  # fmt: skip
        stem = root / f"{part}/{category}/{category}_0/{category}_0_1"
        for kind in ("rgb", "msrgb"):
            save(Path(f"{stem}_{kind}.jpg"))
        listed = [{"ID": 7, "box": box, "category": category}, {"ID": -1, "box": [9, 9, 1, 1], "category": "other"}]
        write(Path(f"{stem}_rgb.json"), json.dumps({"gsd": 0.5, "img_width": 30, "bounding_boxes": listed}))


def make_mnist(root: Path) -> None:
    random = np.random.default_rng(0)
    for part, count in (("train", 20), ("t10k", 10)):
        images = random.integers(0, 256, (count, 28, 28), np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, values in ((f"{part}-images-idx3-ubyte.gz", images), (f"{part}-labels-idx1-ubyte.gz", labels)):
            head = struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
            (root / name).write_bytes(gzip.compress(head + values.tobytes()))


def make_mr(root: Path) -> None:
    (root / "rt-polarity.pos").write_bytes(b"a gorgeous , witty film . \nit's good\x85don't miss it\n")
    (root / "rt-polarity.neg").write_bytes(b"simplistic , silly and tedious . \n")


MAKERS: dict[str, Callable[[Path], None]] = {
    "folder": make_folder,
    "pack": make_pack,
    "cub": make_cub,
    "dogs": make_dogs,
    "cars": make_cars,
    "old-cars": make_old_cars,
    "imagenet": make_imagenet,
    "tiny-imagenet": make_tiny_imagenet,
    "fmow": make_fmow,
    "mnist": make_mnist,
    "mr": make_mr,
}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def make(kind: str, called: str = "some-set") -> Path:
        root = tmp_path / called
        root.mkdir(parents=True, exist_ok=True)
        MAKERS[kind](root)
        return root

    return make
