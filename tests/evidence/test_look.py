import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import fovea
import made_twostream
from checks import left_as_found, refused
from commands import ran
from conftest import Branching, Pooled, seeded
from fovea.evidence import BACKGROUNDS, Evidence
from fovea.evidence.evidence import UNCALIBRATED
from fovea.pictures import Prepare
from fovea.results import read
from made_evidence import SIDE, counted, lit, painted, squares

LABELS = ["cat", "dog", "crane", "snow_leopard", "ox"]


def pooled(**how: object) -> fovea.Network:
    """Some of a picture's colors make it a cat, others a dog, and so on: logits differ by enough to be answers."""
    module = seeded(Pooled)
    with torch.no_grad():
        module.fc.weight.mul_(12)
    return fovea.wrap(module, Prepare((SIDE, SIDE)), labels=LABELS, **how)


def vit() -> fovea.Network:
    torch.manual_seed(0)
    module = timm.create_model("vit_tiny_patch16_224", img_size=48, depth=2, num_classes=5, pretrained=False).eval()
    return fovea.wrap(module, Prepare((48, 48)), labels=LABELS)


def noise(seed: int = 0, size: tuple[int, int] = (SIDE, SIDE)) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (7, 7, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def rows(results: Any) -> list[dict[str, Any]]:
    """What was found, but for the time that it took."""
    found = [result.to_dict() for result in results]
    for row in found:
        row["cost"].pop("ms")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    given = tmp_path / "given"
    given.mkdir()
    for i in range(3):
        noise(i, (140, 120)).save(given / f"{i}.png")
    return given


def test_all_of_it_by_hand() -> None:
    """The middle square is lit and counts; all numbers follow from that."""
    (found,) = fovea.look(squares({24: 1.0}, 0.8), Image.fromarray((lit(24)[0, 0].numpy() * 255).astype(np.uint8)))
    there = 1 / (1 + math.exp(-0.2))
    assert isinstance(found, Evidence)
    assert (found.label, found.runner_up, found.probability) == ("there", "gone", pytest.approx(there))
    assert found.unsure == ("there", "gone")  # 0.45 is above half of 0.55
    assert not found.calibrated
    assert found.note == UNCALIBRATED
    for part in (found.enough, found.needed):
        assert part is not None
        assert (part.patches, part.boxes, part.share) == ({24}, ((24, 24, 32, 32),), pytest.approx(1 / 49))
        assert part.alone == pytest.approx(dict.fromkeys(BACKGROUNDS, 1 / 49))
    assert found.enough.said["mean"].label == found.enough.said["blur"].label == "there"
    assert found.enough.said["mean"].probability == pytest.approx(there)
    assert found.needed.said["mean"].label == found.needed.said["blur"].label == "gone"
    assert found.needed.said["mean"].probability == pytest.approx(1 / (1 + math.exp(-0.8)))
    assert found.needed.said["mean"].answer == pytest.approx(1 / (1 + math.exp(0.8)))
    assert found.contrast is not None
    assert float(found.contrast.values[2].flatten()[24]) == pytest.approx(49)
    row = found.to_dict()
    assert [where["kind"] for where in row["where"]] == ["answer", "runner-up", "contrast"]
    assert [where["target"] for where in row["where"]] == ["there", "gone", "there vs gone"]
    assert row["where"][2]["exact"]
    assert row["where"][0]["place"] == row["where"][2]["place"] == "in the middle"
    assert (row["cost"]["pixels"], row["cost"]["picture"]) == (SIDE**2, SIDE**2)
    assert found.words.startswith(
        f"Not sure between there ({there:.2f}) and gone ({1 - there:.2f}), seen in the middle."
    )
    assert "2 % of the picture is enough; without 2 % of it the answer becomes gone." in found.words


@pytest.mark.parametrize(
    ("shares", "unsure"),
    [
        ((0.9, 0.05, 0.03, 0.01, 0.01), ()),
        ((0.5, 0.2, 0.1, 0.1, 0.1), ()),
        ((0.6, 0.31, 0.04, 0.03, 0.02), (0, 1)),  # more than half as probable
        ((0.6, 0.29, 0.06, 0.03, 0.02), ()),
        ((0.45, 0.22, 0.2, 0.1, 0.03), (0,)),  # doubtful by itself
        ((0.3, 0.25, 0.21, 0.16, 0.08), (0, 1, 2, 3)),
        ((0.2, 0.2, 0.2, 0.2, 0.2), (0, 1, 2, 3, 4)),
    ],
)
def test_unsure_by_hand(shares: tuple[float, ...], unsure: tuple[int, ...]) -> None:
    """A network that answers with these probabilities, whatever it is given."""
    network = pooled()
    with torch.no_grad():
        network.module.fc.weight.zero_()
        network.module.fc.bias.copy_(torch.tensor(shares, dtype=torch.float64).log() + 1e-6 * torch.arange(5).flip(0))
    (found,) = fovea.look(network, noise(), trust=False, forwards=20)
    assert found.unsure == tuple(LABELS[i] for i in unsure)
    assert found.to_dict()["unsure"] == list(found.unsure)
    assert found.enough is None  # with nothing left to search by


@pytest.mark.parametrize("seed", range(4))
def test_what_is_told_is_what_the_network_answers(seed: int) -> None:
    """Boxes lie on the user's pixels: they are cut out of the picture as it was given, and answered anew."""
    network, picture = pooled(), noise(seed, (2 * SIDE, 2 * SIDE))
    network.transform = Prepare((SIDE, SIDE), crop=None)
    (found,) = fovea.look(network, picture, fit="squash", forwards=100)
    assert isinstance(network.transform, Prepare)
    tensor = network.transform(picture)[None]
    for part, keeps in ((found.enough, True), (found.needed, False)):
        if part is None:
            continue
        inside = painted([[side / 2 for side in box] for box in part.boxes], (SIDE, SIDE))
        assert part.share == pytest.approx(float(inside.float().mean()))
        shares = network(torch.where(inside == keeps, tensor, torch.zeros(1))).detach().softmax(1)[0]
        best = int(shares.argmax())
        said = part.said["mean"]
        assert (said.label, said.probability) == (LABELS[best], pytest.approx(float(shares[best]), abs=1e-4))
        assert (said.label == found.label) == keeps
        assert said.answer == pytest.approx(float(shares[LABELS.index(found.label)]), abs=1e-4)
        assert all(0 < share <= part.share + 1e-6 for share in part.alone.values())
    assert found.enough is not None or found.needed is not None


NETWORKS: dict[str, Callable[[], fovea.Network]] = {"cnn": pooled, "vit": vit}
PASSES = [
    pytest.param(lambda: fovea.load("timm/test_resnet", pretrained=False, classes=5), "conv1.0", id="timm"),
    pytest.param(pooled, "trunk.0", id="cnn"),
    pytest.param(vit, "patch_embed.proj", id="vit"),
]


@pytest.mark.parametrize(("make", "first"), PASSES)
def test_no_more_passes_than_asked_for(make: Callable[[], fovea.Network], first: str) -> None:
    """All of the look counted, once it is known where to cut: also those of the copy, which has its hooks, too."""
    network = make()
    passed = counted(network.module.get_submodule(first))
    fovea.look(network, noise(9), trust=False, forwards=20)
    for size, forwards in (((SIDE, SIDE), 20), ((SIDE, SIDE), 30), ((600, 500), 30), ((600, 500), 60)):
        passed.clear()
        (found,) = fovea.look(network, noise(0, size), forwards=forwards)
        assert (found.closer is not None) == (size[0] > SIDE)
        assert sum(passed) <= forwards


@pytest.mark.parametrize(("make", "first"), PASSES[:1] + [pytest.param(*row.values, id=row.id) for row in PASSES[1:]])
def test_passes_are_told(make: Callable[[], fovea.Network], first: str) -> None:
    """Without copies, but for the one in which multiplications are counted."""
    network = make()
    passed = counted(network.module.get_submodule(first))
    fovea.look(network, noise(9), trust=False, forwards=20)
    for size, forwards in (((SIDE, SIDE), 20), ((SIDE, SIDE), 30), ((600, 500), 30), ((600, 500), 60)):
        passed.clear()
        (found,) = fovea.look(network, noise(0, size), forwards=forwards, trust=False)
        assert sum(passed) == found.cost.forwards + 1 <= forwards


@pytest.mark.parametrize("how", [{"trust": False}, {"glimpses": 0}, {"trust": False, "glimpses": 0}])
def test_what_is_left_out_saves_passes(how: dict[str, Any]) -> None:
    network, picture = pooled(), noise(0, (300, 200))
    everything, less = (fovea.look(network, picture, forwards=25, **given)[0] for given in ({}, how))
    assert (less.trust is None) == ("trust" in how)
    assert (less.closer is None) == ("glimpses" in how)
    assert everything.trust is not None
    assert everything.closer is not None
    assert torch.equal(less.heatmap.values, everything.heatmap.values)
    assert less.to_dict()["predictions"] == everything.to_dict()["predictions"]


@pytest.mark.parametrize("name", ["cnn", "vit", "hook"])
@pytest.mark.parametrize("training", [False, True])
def test_the_network_is_left_as_found(name: str, training: bool) -> None:
    network = NETWORKS[name]() if name in NETWORKS else fovea.wrap(seeded(Branching), Prepare((SIDE, SIDE)), labels=5)
    network.module.train(training)
    first = next(network.module.parameters()).requires_grad_(False)
    first.grad = torch.ones_like(first)
    with left_as_found(network.module):
        (found,) = fovea.look(network, noise())
    network.module.eval()
    assert rows([found]) == rows(fovea.look(network, noise()))


def test_also_when_it_fails() -> None:
    """Of a network that breaks where less than the whole is shown."""
    module = seeded(Pooled)
    calls = list[None]()

    def breaks(*_: object) -> None:
        calls.append(None)
        if len(calls) > 8:
            raise RuntimeError("enough")

    module.trunk[0].register_forward_pre_hook(breaks)
    network = fovea.wrap(module.train(), Prepare((SIDE, SIDE)), labels=5)
    with left_as_found(module), pytest.raises(Exception, match="enough"):
        fovea.look(network, noise())


@pytest.mark.parametrize("name", NETWORKS)
def test_frozen_networks_and_inside_no_grad(name: str) -> None:
    network = NETWORKS[name]()
    usual = rows(fovea.look(network, noise()))
    with torch.no_grad():
        assert rows(fovea.look(network, noise())) == usual
    with torch.inference_mode():
        assert rows(fovea.look(network, noise())) == usual
    network.module.requires_grad_(False)
    assert rows(fovea.look(network, noise())) == usual


@pytest.mark.parametrize("name", NETWORKS)
def test_one_batch_or_several(name: str) -> None:
    network, pictures = NETWORKS[name](), [noise(i, size) for i, size in enumerate([(80, 60), (56, 56), (60, 90)])]
    together, apart = (fovea.look(network, pictures, batch=batch) for batch in (3, 1))
    assert len(together) == len(apart) == 3
    for a, b in zip(rows(together), rows(apart), strict=True):
        assert (a["label"], a["unsure"], a["cost"]) == (b["label"], b["unsure"], b["cost"])
        assert [where["boxes"] for where in a["where"]] == [where["boxes"] for where in b["where"]]
        for part in ("enough", "needed"):
            assert (a[part] is None) == (b[part] is None)
            if a[part] is not None:
                assert (a[part]["share"], a[part]["boxes"]) == (b[part]["share"], b[part]["boxes"])
        assert a["trust"]["random"] == pytest.approx(b["trust"]["random"], abs=0.01)


def test_tensors() -> None:
    """What a picture becomes, given as it is: the same, but that there is nothing to look closer at."""
    network, picture = pooled(), noise(0, (SIDE, SIDE))
    network.transform = Prepare((SIDE, SIDE), crop=None)
    tensor = network.transform(picture)
    of_picture, of_tensor = rows(fovea.look(network, picture)), rows(fovea.look(network, tensor[None]))
    for part in ("label", "unsure", "needed", "closer"):
        assert of_tensor[0][part] == of_picture[0][part]
    assert of_tensor[0]["enough"]["boxes"] == of_picture[0]["enough"]["boxes"]
    assert of_tensor[0]["probability"] == pytest.approx(of_picture[0]["probability"], abs=1e-5)
    bare = fovea.look(network.module, torch.stack([tensor, tensor.flip(2)]))  # no labels, and no transform
    assert [found.label for found in bare] == [str(int(network(t[None]).argmax())) for t in (tensor, tensor.flip(2))]
    assert bare[0].enough.boxes == fovea.look(network, tensor[None])[0].enough.boxes
    assert list(bare[0].trust.changes) == ["shift", "flip"]
    assert (bare._repr_png_() or b"")[:4] == b"\x89PNG"


def test_a_bad_picture_is_skipped_and_told(folder: Path) -> None:
    (folder / "1.png").write_text("hello")
    with pytest.warns(UserWarning, match=r"1 picture\(s\) skipped: .*1\.png"):
        found = fovea.look(pooled(), folder)
    assert [Path(look.name).name for look in found] == ["0.png", "2.png"]
    assert [Path(name).name for name, _ in found.skipped] == ["1.png"]


def test_saved_and_read_again(folder: Path, tmp_path: Path) -> None:
    results = fovea.look(pooled(), folder, forwards=40)
    written = results.save(tmp_path / "out", files=True)
    saved = read(tmp_path / "out")
    assert (saved.what, saved.results) == ("look", written)
    assert saved.settings["forwards"] == 40
    assert saved.settings["temperature"] is None
    for row, found in zip(saved.results, results, strict=True):
        assert found.to_dict().items() <= row.items()
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
        drawn = Image.open(tmp_path / "out" / row["files"]["figure"])
        assert drawn.size == found.draw().size
    inside = results.page(tmp_path / "one.html").read_text()
    assert "data:image" in inside
    for i, found in enumerate(results):
        beside = (tmp_path / "out" / "index_files" / f"{i}.js").read_text()
        for sentence in found.words.split(". "):
            assert sentence in inside
            assert sentence in beside


def test_calibrated_networks_say_so(tmp_path: Path) -> None:
    network = pooled()
    (before,) = fovea.look(network, noise(1))
    network.temperature = 2.5
    results = fovea.look(network, noise(1))
    (after,) = results
    assert (before.calibrated, after.calibrated) == (False, True)
    assert (before.note, after.note) == (UNCALIBRATED, None)
    assert (before.to_dict()["calibrated"], after.to_dict()["calibrated"]) == (False, True)
    shares = (network(noise(1)).detach() / 2.5).softmax(1)[0]
    assert after.probability == pytest.approx(float(shares.max()), abs=1e-5)
    assert after.probability < before.probability
    assert after.label == before.label
    for part in ("enough", "needed"):
        cold, hot = getattr(before, part), getattr(after, part)
        assert cold is not None
        assert (cold.patches, cold.boxes) == (hot.patches, hot.boxes)
        assert hot.said["mean"].probability < cold.said["mean"].probability
    assert results.settings["temperature"] == 2.5
    results.save(tmp_path / "out")
    assert read(tmp_path / "out").results[0]["calibrated"]


def test_classes_that_do_not_exclude_each_other() -> None:
    """Each has a probability by itself."""
    network = pooled()
    network.abilities = frozenset({"several"})
    (found,) = fovea.look(network, noise())
    shares = network(noise()).sigmoid()[0].sort(descending=True).values
    assert [share for _, share in found.shown.predictions] == pytest.approx(shares.tolist(), abs=1e-5)


def test_other_maps_do_not_change_what_is_found(folder: Path) -> None:
    """What is enough is ranked by what cells add, whatever is shown."""
    usual, other = (fovea.look(pooled(), folder, method=method) for method in (None, "layercam"))
    for a, b in zip(usual, other, strict=True):
        assert (a.heatmap.solver, b.heatmap.method) == ("exact", "layercam")
        assert not torch.equal(a.heatmap.values, b.heatmap.values)
        assert torch.equal(a.contrast.values, b.contrast.values)
        for part in ("enough", "needed"):
            assert getattr(a, part) == getattr(b, part)


def test_with_an_index(folder: Path, tmp_path: Path) -> None:
    network = pooled()
    embedding = fovea.wrap(seeded(Pooled), Prepare((SIDE, SIDE)), embedding=True)
    fovea.index(embedding, folder, tmp_path / "made.fovea")
    index = fovea.open_index(tmp_path / "made.fovea", embedding)
    (found,) = fovea.look(network, folder / "1.png", index=index)
    assert found.like is not None
    near = found.to_dict()["like"]["neighbors"]
    assert found.like.neighbors[0].similarity == pytest.approx(1, abs=1e-3)
    assert "Nearest in the index: " in found.words
    assert Path(near[0]["name"]).name in found.words


def test_streams_and_prototypes_tell_their_own() -> None:
    (two,) = fovea.look(made_twostream.made(), made_twostream.planted_image())
    row = two.to_dict()
    assert two.longer is not None
    assert row["longer"]["global"]["label"] in ("red_bird", "green_bird")
    assert two.closer is None  # it has windows of its own
    torch.manual_seed(0)
    small = {"channels": [8, 8, 16, 16], "stem_width": 8, "width": 4, "prototypes": 2}
    network = fovea.load("protopnet/timm/resnet10t", pretrained=False, classes=3, options=small)
    (proto,) = fovea.look(network, noise(0, (64, 64)))
    reasons = proto.to_dict()["prototypes"]
    assert reasons
    assert f"prototype {reasons[0]['prototype']} of {reasons[0]['label']}" in proto.words


def test_glances_are_what_is_looked_at_closely() -> None:
    torch.manual_seed(0)
    network = fovea.load("tnet-bagnet77", classes=3, options={"width": 0.0625})
    (found,) = fovea.look(network, noise(0, (300, 200)))
    row = found.to_dict()
    assert found.closer is not None
    (answer,) = fovea.zoom(network, noise(0, (300, 200)))
    assert [window.box for window in found.closer.windows] == [glimpse.visible for glimpse in answer.glimpses]
    assert (found.closer.label, found.closer.probability) == (answer.label, answer.probability)
    assert (found.trust, found.contrast) == (None, None)
    assert [where["kind"] for where in row["where"]] == ["answer"]
    assert isinstance(found.draw(), Image.Image)


@pytest.mark.parametrize("how", [{"forwards": 19}, {"forwards": -1}, {"glimpses": -1}, {"batch": 0}, {"fit": "round"}])
def test_wrong_choices(how: dict[str, Any]) -> None:
    refused(next(iter(how)), fovea.look, pooled(), noise(), **how)


def test_what_takes_no_pictures_is_refused() -> None:
    clips = fovea.wrap(seeded(Pooled), Prepare((SIDE, SIDE)), labels=5)
    clips.abilities = frozenset({"frames"})
    refused("takes no pictures", fovea.look, clips, noise())


def test_the_command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    network = fovea.load("smallnet", pretrained=False, classes=3, options={"side": 32, "widths": [4, 6]})
    network.save(tmp_path / "small.safetensors")
    done = ran(["look", "given", "--net", "small.safetensors", "--out", "out", "--forwards", "30", "--json", "a.json"])
    saved = read(tmp_path / "out")
    assert [Path(row["name"]).name for row in saved.results] == ["0.png", "1.png", "2.png"]
    again = fovea.look(fovea.load(tmp_path / "small.safetensors"), folder, forwards=30)
    for row, found in zip(saved.results, again, strict=True):
        assert row["label"] == found.label
        assert row["enough"] == found.to_dict()["enough"]
        assert found.words.split(".")[0][:30] in done.output.replace("\n", " ")
    assert json.loads((tmp_path / "a.json").read_text())
