from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import refused
from conftest import Pooled, Through, seeded
from fovea.pictures import Prepare


@pytest.mark.parametrize(
    ("wrapped", "how"),
    [
        (lambda out: (out, out.sum()), "output=lambda out: out[0]"),
        (lambda out: {"scores": out}, 'output=lambda out: out["scores"]'),
        (lambda out: type("Output", (), {"scores": out})(), "output=lambda out: out.scores"),
    ],
)
def test_a_network_that_returns_no_tensor(
    wrapped: Callable[[Tensor], object], how: str, pooled: Pooled, batch: Tensor
) -> None:
    module = Through(lambda x, inner: wrapped(inner(x)), pooled)
    with pytest.raises(fovea.BadNetwork) as error:
        fovea.explain(fovea.wrap(module, labels=5), batch)
    assert "not a tensor: say which part to explain" in str(error.value)
    assert how in str(error.value)
    told = fovea.wrap(module, labels=5, output=eval(how.removeprefix("output=")))
    plain = fovea.explain(fovea.wrap(pooled, labels=5), batch)
    assert torch.allclose(fovea.explain(told, batch).values, plain.values, atol=1e-5)


def test_labels_by_name_and_number() -> None:
    net = fovea.wrap(nn.Identity(), labels=["tabby", "Egyptian cat", "crane", "lynx", "crane"])
    assert net.index("egyptian CAT") == net.index(1) == net.index("1") == 1
    assert net.label(3) == "lynx"
    refused(r"no class 'tabbi' among the network's 5; did you mean 'tabby'", net.index, "tabbi")
    refused(r"did you mean .*'Egyptian cat'", net.index, "cat")
    refused(r"'crane' names classes 2 and 4: give the index", net.index, "crane")
    birds = fovea.wrap(nn.Identity(), labels=["Painted_Bunting", "a b", "a_b"])
    assert [birds.index(name) for name in ("painted bunting", "Painted_Bunting", "a_b", "a b")] == [0, 0, 2, 1]
    for wrong in (5, -1, "99"):
        refused(r"does not exist: the network has classes 0 to 4", net.index, wrong)


def test_labels_that_are_only_a_number(pooled: nn.Module) -> None:
    assert fovea.wrap(pooled, labels=3).labels == ("0", "1", "2")
    refused(r"this network has no labels; give a class index", fovea.wrap(pooled).index, "cat")


def test_pictures_need_a_transform(pooled: nn.Module) -> None:
    with pytest.raises(fovea.BadChoice, match=r"no transform, so it takes tensors only; give fovea.wrap"):
        fovea.explain(fovea.wrap(pooled, labels=5), Image.new("RGB", (30, 30)))


def test_wrapping_what_is_no_module() -> None:
    refused(r"takes a torch.nn.Module; got function", fovea.wrap, lambda x: x)
    refused("transform must be callable", fovea.wrap, nn.Identity(), transform=3)


def test_weights_that_are_not_numbers_are_named(batch: Tensor) -> None:
    module = seeded(Pooled)
    module.fc.weight.data[0, 0] = float("nan")
    seen = fovea.explain(fovea.wrap(module, labels=5), batch, target=0)
    assert "weights hold values that are not numbers (first in 'fc.weight')" in str(seen.diagnosis[0][0])
    assert not seen.boxes.any()


def test_squashing_keeps_all_but_the_crop(pooled: nn.Module) -> None:
    net = fovea.wrap(
        pooled, Prepare((24, 24), (0.5,) * 3, (0.5,) * 3, 0.9, "bilinear"), labels=["a", "b", "c", "d", "e"]
    )
    whole = net.squashed()
    assert whole.transform == Prepare((24, 24), (0.5,) * 3, (0.5,) * 3, None, "bilinear")
    assert (whole.module, whole.labels) == (net.module, net.labels)
    assert whole.prepare(Image.new("RGB", (60, 30)))[1].window == (0, 0, 60, 30)
    assert net.prepare(Image.new("RGB", (60, 30)))[1].window == pytest.approx((16.5, 1.5, 43.5, 28.5))


def test_labels_must_fit_the_outputs(pooled: nn.Module, batch: Tensor) -> None:
    for count in (4, 6):
        with pytest.raises(fovea.BadNetwork, match=f"gives 5 numbers per picture and has {count} labels"):
            fovea.wrap(pooled, labels=count)(batch)
    refused("an embedding has no classes", fovea.wrap, pooled, labels=5, embedding=True)


def test_a_network_prints_in_one_line(pooled: nn.Module) -> None:
    assert repr(fovea.wrap(pooled, Prepare((24, 32)), labels=5)) == "<Network Pooled: 5 classes, 32 x 24 pixels, cpu>"
    assert repr(fovea.wrap(pooled)) == "<Network Pooled: no labels, cpu>"


def test_the_whole_picture_in_its_proportions(pooled: nn.Module) -> None:
    """Of 60 x 30 in 24 x 24 the middle twelve rows are the picture, and the others the mean color: zero."""
    net = fovea.wrap(pooled, Prepare((24, 24), crop=0.9), labels=5)
    tensor, placement = net.fitted("whole").prepare(Image.new("RGB", (60, 30), "white"))
    assert tensor[:, 6:18].min() > 2
    assert tensor[:, :6].abs().max() < 0.01
    assert tensor[:, 18:].abs().max() < 0.01
    assert (placement.scale, placement.offset) == ((2.5, 2.5), (0, -15))
    assert placement.window == (0, 0, 60, 30)
    assert net.fitted("squash").transform == net.squashed().transform
    assert net.fitted("crop") is net
    refused("no fit 'squish'; did you mean 'squash'", net.fitted, "squish")
    refused("transform is not fovea's own", fovea.wrap(pooled, lambda image: torch.zeros(3, 24, 24)).fitted, "whole")


def test_only_a_named_network_is_saved(pooled: nn.Module, tmp_path: object) -> None:
    with pytest.raises(fovea.BadNetwork, match=r"only a network made by fovea.load has a name"):
        fovea.wrap(pooled).save(f"{tmp_path}/a.safetensors")


def test_a_network_of_few_classes_says_which_it_knows(tmp_path: Path) -> None:
    few = fovea.load("anchornet-imagenette")
    assert few.knows.startswith("anchornet-imagenette knows only: tench, English springer, cassette player")
    assert "(10 classes of imagenette)" in few.knows
    birds = fovea.load("efficientnet_lite0-cub100")
    assert "Red winged Blackbird and 90 more (100 classes of cub100)" in birds.knows
    assert not fovea.load("efficientnet_lite0").knows  # ImageNet's 1000
    assert not fovea.load("anchornet-imagenette", pretrained=False).knows  # it knows nothing
    assert not fovea.load("anchornet-imagenette", classes=3).knows
    assert not fovea.load("anchornet_text-mr").knows
    few.save(tmp_path / "mine.safetensors")  # of the user's own, with a card or without
    assert "parachute (10 classes)" in fovea.load(tmp_path / "mine.safetensors").knows
    (tmp_path / "card.json").write_text('{"trained_on": "my\\nphotos:split=train"}')
    assert "\n" not in fovea.load(tmp_path / "mine.safetensors").knows
    (tmp_path / "card.json").write_text("{" * 100_000)
    assert "parachute (10 classes)" in fovea.load(tmp_path / "mine.safetensors").knows


def test_results_say_what_a_network_knows(photographs: Path) -> None:
    said = fovea.explain("anchornet-imagenette", photographs / "chelsea.png", method="gradcam").settings["note"]
    assert said == fovea.load("anchornet-imagenette").knows
    assert "note" not in fovea.explain("efficientnet_lite0", photographs / "chelsea.png", method="gradcam").settings
