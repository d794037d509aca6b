from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from commands import Run
from fovea.heatmaps import method as heatmap_method
from fovea.models.twostream import TwoStream, add_local_stream
from fovea.pictures import Prepare
from fovea.results import read
from fovea.streams import METHODS
from made_twostream import BOX, STEPS, give_boxes, made, planted, planted_image, scrambled


def streams(network: fovea.Network) -> TwoStream:
    assert isinstance(network.module, TwoStream)
    return network.module


def noise(count: int = 2) -> torch.Tensor:
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("target", "cell"), [("red_bird", (1, 2)), ("green_bird", (3, 0))])
def test_gradcam_of_every_step_by_hand(target: str, cell: tuple[int, int]) -> None:
    """Red and green are equally much, so the LSTM's cell stays 0, where d phi_t / d mean = t (1, -1, 0).

    A mean is over 16 cells: the class's own cell has t / 16, the other one is negative and cut off.
    """
    (looked,) = fovea.look_longer(made(), planted(), target=target)
    assert (looked.target, looked.method, len(looked.patches)) == (target, "gradcam", 1)
    for t, step in enumerate(looked.patches[0].steps, 1):
        wanted = np.zeros((4, 4))
        wanted[cell] = t / 16
        assert step.number == t
        assert step.map.map() == pytest.approx(wanted, abs=1e-6)
        assert (step.map.method, step.map.layer, step.map.targets) == ("gradcam", "local stream", (target,))
    whole = np.zeros((8, 8))
    whole[(3, 4) if target == "red_bird" else (5, 2)] = 1 / 64  # the global stream's weight is 1, its cells 64
    assert looked.whole.map() == pytest.approx(whole, abs=1e-6)


def test_answers_are_the_modules_own() -> None:
    network = scrambled(made(boxes=(BOX, (0.0, 4.0, 32.0, 20.0))))
    batch = noise()
    found = fovea.look_longer(network, batch)
    with torch.no_grad():
        out = network.answer(batch)
        local = streams(network).local
        assert local is not None
        alone = local.classifier(out.steps.features).softmax(2)  # N*K,T,classes: on phi_t
    for i, looked in enumerate(found):
        for said, logits in ((looked.said, out.logits), (looked.whole_said, out.whole), (looked.local_said, out.local)):
            share, index = logits[i].softmax(0).max(0)
            assert said.label == network.label(int(index))
            assert said.probability == pytest.approx(float(share), abs=1e-6)
        assert looked.shown.predictions[0] == pytest.approx((looked.label, looked.probability))
        assert looked.target == looked.label
        for k, patch in enumerate(looked.patches):
            assert sum(step.weight for step in patch.steps) == pytest.approx(1, abs=1e-6)
            assert patch.said.label == network.label(int(out.steps.logits[2 * i + k].argmax()))
            for t, step in enumerate(patch.steps):
                assert step.said.label == network.label(int(alone[2 * i + k, t].argmax()))
                assert step.said.probability == pytest.approx(float(alone[2 * i + k, t].max()), abs=1e-6)
                assert step.weight == pytest.approx(float(out.steps.weights[2 * i + k, t]), abs=1e-6)


def test_maps_lie_inside_the_patch_and_nowhere_else() -> None:
    """A picture of 96 x 64 is squashed to 32 x 32: x is worth 3 pixels and y 2."""
    network = made(boxes=(BOX, (0.0, 16.0, 16.0, 32.0)))
    (looked,) = fovea.look_longer(network, planted_image(), target="red_bird")
    first, second = looked.patches
    assert first.box == pytest.approx((24, 16, 72, 48))
    assert second.box == pytest.approx((0, 32, 48, 64))
    for patch in looked.patches:
        x0, y0, x1, y1 = (round(side) for side in patch.box)
        pixels = patch.steps[0].map.pixels()
        assert pixels.shape == (64, 96)
        inside = np.zeros_like(pixels, dtype=bool)
        inside[y0:y1, x0:x1] = True
        assert not pixels[~inside].any()
        assert np.array_equal(looked.crops()[looked.patches.index(patch)].size, (x1 - x0, y1 - y0))
    best = np.unravel_index(first.steps[0].map.pixels().argmax(), (64, 96))
    assert best[0] in range(24, 32)  # the red cell's rows
    assert best[1] in range(48, 60)


def test_the_window_of_the_global_stream() -> None:
    """It sees the middle half: its map is 0 outside."""
    network = made()
    streams(network).crop = 0.5
    (looked,) = fovea.look_longer(network, planted_image(), target="red_bird")
    pixels = looked.whole.pixels()
    assert looked.whole.shown.placement is not None
    assert looked.whole.shown.placement.window == pytest.approx((24, 16, 72, 48))
    assert pixels.max() > 0
    assert not pixels[:16].any()
    assert not pixels[:, :24].any()


def test_l2caf_keeps_what_a_step_needs() -> None:
    """|f| = 1, and of the two cells that are anything, the one that speaks for the class is turned up."""
    (looked,) = fovea.look_longer(made(), planted(), method="l2caf", target="red_bird")
    for step in looked.patches[0].steps:
        found = step.map.map()
        assert np.linalg.norm(found) == pytest.approx(1, abs=1e-4)
        assert np.unravel_index(found.argmax(), (4, 4)) in ((1, 2), (3, 0))
        assert found[1, 2] > 0.5
        assert step.map.loss is not None
    assert looked.whole.solver == "exact"


def test_self_attention() -> None:
    network = scrambled(made(ask=True))
    found = fovea.look_longer(network, noise(), method="self-attention")
    with torch.no_grad():
        maps = network.answer(noise()).steps.maps
    for i, looked in enumerate(found):
        assert looked.whole.method == "gradcam"
        for t, step in enumerate(looked.patches[0].steps):
            assert step.map.map() == pytest.approx(maps[i, t].numpy(), abs=1e-6)
            assert step.map.map().sum() == pytest.approx(1, abs=1e-5)
    with pytest.raises(fovea.BadChoice, match="built without self-attention"):
        fovea.look_longer(made(), planted(), method="self-attention")


@pytest.mark.parametrize("method", ["gradcam", "self-attention"])
def test_a_batch_gives_what_each_picture_gives_alone(method: str) -> None:
    network = scrambled(made(ask=True))
    together = fovea.look_longer(network, noise(3), method=method, batch=2)
    for i, looked in enumerate(together):
        (alone,) = fovea.look_longer(network, noise(3)[i], method=method)
        for one, other in zip(looked.patches[0].steps, alone.patches[0].steps, strict=True):
            assert one.map.map() == pytest.approx(other.map.map(), abs=1e-5)


def test_the_network_is_left_as_found() -> None:
    network = made()
    module = streams(network)
    module.train()
    module.whole.eval()
    assert module.local is not None
    module.local.classifier.bias.requires_grad_(False)
    module.local.classifier.weight.grad = torch.ones(2, 1)
    modes = [one.training for one in module.modules()]
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    needed = [one.requires_grad for one in module.parameters()]
    random = torch.get_rng_state()
    for method in ("gradcam", "l2caf"):
        with torch.no_grad():
            fovea.look_longer(network, planted(), method=method)
    assert [one.training for one in module.modules()] == modes
    assert [one.requires_grad for one in module.parameters()] == needed
    assert [one.grad is None for one in module.parameters()].count(False) == 1
    assert torch.equal(module.local.classifier.weight.grad, torch.ones(2, 1))
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_a_bad_picture_among_good_ones(tmp_path: Path) -> None:
    for name in ("a", "c"):
        planted_image().save(tmp_path / f"{name}.png")
    (tmp_path / "b.png").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"1 picture\(s\) skipped"):
        found = fovea.look_longer(made(), tmp_path, truth=["red_bird", "red_bird", 1], batch=1)
    assert [Path(one.name).name for one in found] == ["a.png", "c.png"]
    assert [one.truth for one in found] == ["red_bird", "green_bird"]
    assert "empty" in found.skipped[0][1]
    with pytest.raises(fovea.BadPicture, match="empty"):
        fovea.look_longer(made(), tmp_path / "b.png")


def test_any_classifier_with_a_local_stream_added(pooled: nn.Module) -> None:
    """The plug-in's global stream is a classifier as it is, and its map what explaining that one gives."""
    prepare = Prepare((24, 24), (0.0,) * 3, (1.0,) * 3, None)
    classifier = fovea.Network(pooled, prepare, tuple("abcde"), name="classifier")
    network = add_local_stream(classifier, "whole", _small_backbone(), hidden=4, steps=2, patch=24)
    batch = torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(2))
    give_boxes(network, ((0.0, 0.0, 12.0, 12.0),))
    found = fovea.look_longer(network, batch, target="c")
    wanted = fovea.explain(classifier, batch, method="gradcam", target="c")
    for i, looked in enumerate(found):
        assert looked.whole.map() == pytest.approx(wanted.map(i), abs=1e-6)
        assert len(looked.patches[0].steps) == 2


def _small_backbone() -> fovea.Network:
    body = nn.Module()
    body.features = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU())
    return fovea.Network(body, Prepare((24, 24), (0.0,) * 3, (1.0,) * 3, None), ("a",))


def test_wrong_choices(pooled: nn.Module) -> None:
    with pytest.raises(fovea.BadChoice, match=r"fovea\.look_longer"):
        fovea.explain(made(), planted())
    with pytest.raises(fovea.BadChoice, match=r"fovea\.explain shows"):
        fovea.look_longer(fovea.wrap(pooled, labels=5), planted())
    with pytest.raises(fovea.BadChoice, match="not 'gradcm'; did you mean 'gradcam'"):
        fovea.look_longer(made(), planted(), method="gradcm")
    with pytest.raises(fovea.BadChoice, match="no class 'bleu_bird'"):
        fovea.look_longer(made(), planted(), target="bleu_bird")
    with pytest.raises(fovea.BadChoice, match="got 2 for 1"):
        fovea.look_longer(made(), planted(), truth=["red_bird"] * 2)
    with pytest.raises(fovea.BadChoice, match="no class 'blue'"):
        fovea.look_longer(made(), planted(), truth="blue")
    with pytest.raises(fovea.BadChoice, match="batch is 1 to 65,536"):
        fovea.look_longer(made(), planted(), batch=0)
    assert set(METHODS) - {"self-attention"} <= set(heatmap_method)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fovea.networks.loading.load", lambda *_, **__: made(boxes=(BOX, (0.0, 0.0, 32.0, 8.0))))
    monkeypatch.setattr("fovea.networks.demand_known", lambda name: None)
    monkeypatch.setattr("fovea.networks.labels_of", lambda name: None)
    Path("photos").mkdir()
    for name in "ab":
        planted_image().save(f"photos/{name}.png")
    return Run("explain", monkeypatch, capsys)


def test_the_command(run: Run) -> None:
    Path("photos/c.png").write_bytes(b"")
    Path("photos/d.mp4").write_bytes(b"clip")
    code, out, err = run("photos", "--net", "made", "--truth", "red_bird", "--files")
    assert code == 0
    assert "c.png is empty" in err
    assert out.startswith("a.png  red_bird  0.")
    assert "look_longer: 2 done, 2 skipped" in out
    found = read("out/explain")
    assert (found.what, found.settings) == ("look_longer", {"net": "made", "method": "gradcam", "target": None})
    assert [row["name"] for row in found.skipped] == ["photos/c.png", "photos/d.mp4"]
    for row in found.results:
        assert (row["label"], row["truth"]) == ("red_bird", "red_bird")
        assert {row["global"]["label"], row["local"]["label"]} <= {"red_bird", "green_bird"}
        assert Image.open(Path("out/explain", row["files"]["strip"])).width > 600
        assert np.load(Path("out/explain", row["files"]["values"])).shape == (8, 8)
        assert len(row["patches"]) == 2
        for patch, files in zip(row["patches"], row["files"]["patches"], strict=True):
            assert Image.open(Path("out/explain", files["patch"])).width > 1
            assert [step["step"] for step in patch["steps"]] == list(range(1, STEPS + 1))
            assert [np.load(Path("out/explain", name)).shape for name in files["values"]] == [(4, 4)] * STEPS
        (blank,) = {step["diagnosis"] for step in row["patches"][1]["steps"]}
        assert "all zero" in blank  # nothing is in the second patch
    assert "note on 2 result(s): " in err


def test_the_command_refuses(run: Run, monkeypatch: pytest.MonkeyPatch, pooled: nn.Module) -> None:
    for arguments, words in (
        (["--layer", "trunk"], "--layer: a two-stream network"),
        (["--fit", "whole"], "has windows of its own, and takes pictures as it was trained"),
        (["--method", "gradcam,l2caf"], "one method and one class"),
        (["--target", "0", "--target", "1"], "one method and one class"),
        (["--method", "cam"], "not 'cam'"),
        (["--method", "self-attention"], "built without self-attention"),
    ):
        code, _, err = run("photos/a.png", *arguments)
        assert (code, words in err) == (2, True), err
    assert not Path("out").exists()
    monkeypatch.setattr("fovea.networks.loading.load", lambda *_, **__: fovea.wrap(pooled, labels=5))
    monkeypatch.setattr("fovea.networks.demand_known", lambda name: None)
    monkeypatch.setattr("fovea.networks.labels_of", lambda name: None)
    code, _, err = run("photos/a.png", "--truth", "1")
    assert (code, "--truth marks steps of two-stream networks" in err) == (2, True)
