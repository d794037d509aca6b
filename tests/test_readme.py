"""The README's figures are the ones that the commands wrote."""

import json
import re
from pathlib import Path

import pytest

from fovea.networks import loading as zoo

ROOT = Path(__file__).parents[1]


def table(heading: str) -> list[list[str]]:
    text = (ROOT / "README.md").read_text(encoding="utf-8").split(heading)[1].split("\n## ")[0]
    lines = re.findall(r"^\|(.+)\|$", text, re.M)
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_costs() -> None:
    rows = json.loads((ROOT / "results/bench-explain.json").read_text())["rows"]
    found = {(r["library"], r["method"], r["net"], r["batch"]): r.get("x_forward") for r in rows}
    nets = [("timm/resnet50", 1), ("timm/resnet50", 16), ("efficientnet_lite0", 1), ("efficientnet_lite0", 16)]
    lines = [line for line in table("## What it costs") if line[0].partition(" ")[0] in {key[0] for key in found}]
    assert len(lines) == 9
    for name, *cells in lines:
        library, _, method = name.partition(" ")
        figures = [found[library, method, *net] for net in nets]
        assert [float(cell) for cell in cells] == [pytest.approx(figure, abs=0.0051) for figure in figures]


def test_localisation() -> None:
    rows = json.loads((ROOT / "results/wsol-efficientnet_lite0.json").read_text())["rows"]
    found = {row["method"]: row for row in rows}
    lines = [line for line in table("## Does it find the object?") if line[0].strip("`") in found]
    assert len(lines) == len(rows)
    for name, *cells in lines:
        row = found[name.strip("`")]
        figures = [row["top1_loc"], row["top5_loc"], row["gt_known"], row["max_box_acc_v2"]]
        assert [float(cell) for cell in cells] == [pytest.approx(figure, abs=0.0006) for figure in figures]


def test_weights_that_come_with_fovea() -> None:
    lines = [line for line in table("## Train and measure") if line[0].strip("`") in zoo.ours()]
    assert len(lines) == len(zoo.ours())
    for name, _, score in lines:
        measured = ROOT / f"results/classify-{name.strip('`')}.json"
        card = zoo.ours()[name.strip("`")]["score"]  # of other media, and of networks that read patches
        if "recall_at_1" in card:
            assert f"R@1 {card['recall_at_1']:.3f}, NMI {card['nmi']:.3f} " in score
            continue
        top1 = json.loads(measured.read_text())["rows"][0]["top1"] if measured.is_file() else card["top1"]
        assert f"top-1 {top1:.3f} " in score


@pytest.mark.parametrize("data", ["imagenette", "cub100"])
def test_patches(data: str) -> None:
    rows = json.loads((ROOT / f"results/patches-{data}.json").read_text())["rows"]
    (line,) = (cells for cells in table("## Localise") if cells[0] == data)

    def of(kind: str, **wanted: str) -> dict[str, float]:
        (found,) = (
            row for row in rows if row["kind"] == kind and all(row.get(key) == value for key, value in wanted.items())
        )
        return dict(found)

    overall = of("patches", scale="overall")
    told = [of("patches", scale="full")["top1"], overall["top1"], overall["macs_ratio"]]
    assert [float(cell.removesuffix(" x")) for cell in line[1:4]] == [pytest.approx(one, abs=0.0051) for one in told]
    for cell, scale in zip(line[4:7], ("63", "95", "111"), strict=True):
        row = of("rescaled", scale=scale, pictures="all")
        rescaled, localised = map(float, cell.split(" / "))
        assert (rescaled, localised) == (
            pytest.approx(row["rescaled"], abs=6e-4),
            pytest.approx(row["localised"], abs=6e-4),
        )
    centre = of("localizer", scale="overall").get("centre_in_box")
    assert line[7] == ("" if centre is None else f"{centre:.3f}")


def test_time_of_patches() -> None:
    rows = json.loads((ROOT / "results/bench-patches.json").read_text())["rows"]
    (resnet,) = (row for row in rows if row["net"] == "timm/resnet50")
    assert f"takes {resnet['ratio']:.2f} of the time" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("data", "net", "counts", "whole"),
    [
        ("digits", "tnet-digits", (0, 1, 2, 4), "resnet10t-digits-224"),
        ("imagenette", "tnet-imagenette", (0, 1, 2, 3), "bagnet77-imagenette"),
    ],
)
def test_glimpses(data: str, net: str, counts: tuple[int, ...], whole: str) -> None:
    rows = json.loads((ROOT / f"results/zoom-{data}.json").read_text())["rows"]
    (line,) = (cells for cells in table("## Zoom") if cells[0].startswith(data))
    wanted = [(net, count) for count in counts] + [(whole, None)]
    for cell, (name, count) in zip(line[1:], wanted, strict=True):
        (row,) = (row for row in rows if (row["net"], row["glimpses"]) == (name, count))
        assert cell == f"{row['top1']:.3f} ({row['macs'] / 1e9:.2f} G)"


@pytest.mark.parametrize(
    ("row", "net", "result"),
    [
        ("global stream alone", "twostream-none", "twostream-cub100"),
        ("+ local stream: CNN", "twostream-cnn", "twostream-cub100"),
        ("+ LSTM, last step", "twostream-lstm", "twostream-cub100"),
        ("+ attention over the steps", "twostream-cub100", "twostream-cub100"),
        ("+ self-attention", "twostream-self", "twostream-cub100-more"),
        ("attention, a trunk for each stream", "twostream-apart", "twostream-cub100"),
    ],
)
def test_two_streams(row: str, net: str, result: str) -> None:
    rows = json.loads((ROOT / f"results/{result}.json").read_text())["rows"]
    (line,) = (cells for cells in table("## Look longer") if cells[0] == row)
    own = next(one for one in rows if one["net"] == net)  # its own way of putting steps together comes first
    assert own["seeds"] == 3
    gain = f"{own['gain']:.3f} ({own['gain_low']:.3f} to {own['gain_high']:.3f})" if own["local"] != "none" else ""
    assert line[1:3] == [f"{own['top1']:.3f}", gain]


@pytest.mark.parametrize("kind", ["l2caf", "whole", "anchornet", "prototypes", "tnet"])
def test_patch_sources(kind: str) -> None:
    text = (ROOT / "docs/twostream.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| `{kind}` \|(.+)\|$", text.split("## Which patches?")[1].split("\n## ")[0], re.M)
    placed = json.loads((ROOT / "results/patch-sources-cub100.json").read_text())["rows"]
    trained = json.loads((ROOT / "results/twostream-cub100.json").read_text())["rows"]
    where = next(row for row in placed if row["kind"] == kind)
    two = next(row for row in trained if (row["source"] or "").partition(":")[0] == kind and row["local"] == "attention"
               and not row["net"].endswith("apart"))  # fmt: skip
    told = [where["centre_in_box"], where["centre_in_box_all"], where["mean_area"], two["top1"], two["local_top1"]]
    assert [float(cell) for cell in line.split("|")] == [pytest.approx(one, abs=0.0051) for one in told]


def test_narrowing() -> None:
    row = json.loads((ROOT / "results/finer-twostream-cub100.json").read_text())["rows"][0]
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    assert row["attention"] == "narrows"
    assert f"from {row['first']:.3f} at step 1 to {row['last']:.3f} at step 10" in text
    assert f"in {row['narrowed']:.0%} of {row['images']} pictures".replace("%", " %") in text


@pytest.mark.parametrize(
    ("row", "net"),
    [("plain GAP", "gap"), ("ADL", "adl"), ("ACoL", "acol"), ("Hide-and-Seek", "has"), ("CutMix", "cutmix")],
)
def test_training_for_localisation(row: str, net: str) -> None:
    rows = json.loads((ROOT / "results/wsol-cub100-tuned.json").read_text())["rows"]
    (line,) = (cells for cells in table("## Judge") if cells[0] == row)
    cam, caf = (
        next(r for r in rows if (r["net"], r["method"]) == (f"{net}_lite0-cub100", m)) for m in ("cam", "l2caf")
    )
    assert cam["seeds"] == 3
    told = [cam["top1"], cam["top1_loc"], caf["top1_loc"], caf["gt_known"]]
    changes = [
        f"{caf[key]:+.3f} ({caf[f'{key}_low']:+.3f} to {caf[f'{key}_high']:+.3f})" if key in caf else ""
        for key in ("top1_change", "gt_known_change")
    ]
    assert line[1:7] == [*(f"{one:.3f}" for one in told), *changes]


@pytest.mark.parametrize(
    ("row", "net"),
    [
        ("triplet, EfficientNet-Lite0", "triplet_lite0"),
        ("N-pair, EfficientNet-Lite0", "npair_lite0"),
        ("triplet, EfficientNet-Lite1", "triplet_lite1"),
        ("N-pair, EfficientNet-Lite1", "npair_lite1"),
    ],
)
def test_localisation_by_embeddings(row: str, net: str) -> None:
    rows = json.loads((ROOT / "results/retrieval-loc-cub100.json").read_text())["rows"]
    own = {one["method"]: one for one in rows if one["net"] == f"{net}-cub100"}
    (line,) = (cells for cells in table("## Judge") if cells[0] == row)
    first = own["gradcam"]
    told = [first["nmi"], first["recall_at_1"], *(own[m]["loc"] for m in ("gradcam", "gradcam-abs", "l2caf-oblivious"))]
    assert line[1:6] == [f"{one:.3f}" for one in told]
