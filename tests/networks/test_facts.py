"""What weights files say about themselves is not believed."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import fovea
from checks import raises, refused
from forging import Forge, opened
from fovea.networks import model
from fovea.networks.facts import SOURCE, facts

pytestmark = pytest.mark.security
TWO_STREAMS = {"side": 32, "patch": 32, "hidden": 4, "steps": 2}


def said(path: Path, **how: Any) -> str:
    """The one line that a file is refused by."""
    with pytest.raises(fovea.BadNetwork) as error:
        fovea.load(path, **how)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    return str(error.value)


def test_an_honest_file_loads(forge: Forge) -> None:
    net = fovea.load(forge(options={"drop_rate": 0.1}, labels=["a", "b", "caf\udce9"], temperature=1.5))
    assert (net.labels, net.module.drop_rate, net.temperature) == (("a", "b", "caf\udce9"), 0.1, 1.5)


SOURCES = """checkpoint_path pretrained pretrained_cfg pretrained_cfg_overlay pretrained_strict cache_dir weights
    weights_backbone state_dict hub_id file url model_path"""


@pytest.mark.parametrize("option", SOURCES.split())
@pytest.mark.parametrize("network", ["timm/test_resnet", "torchvision/resnet18", "smallnet", "gap/timm/test_resnet"])
def test_no_file_says_where_weights_come_from(option: str, network: str, forge: Forge) -> None:
    path = forge(network=network, options={option: {"url": "http://127.0.0.1/x.pth"}})
    assert f"option {option} of {path} is refused: no file says where weights come from" in said(path)


def test_nor_does_a_recipe_or_the_caller_among_options() -> None:
    for name in ("timm/test_resnet", "torchvision/resnet18", "efficientnet_lite0", "gap/timm/test_resnet"):
        words = "option checkpoint_path is refused: weights are given by weights=FILE"
        refused(words, fovea.load, name, pretrained=False, options={"checkpoint_path": "x.pth"})


def test_options_of_fovea_are_not_taken_for_sources() -> None:
    ours = {name for entry in model for name in model.get(entry).types}
    assert {"drop_path", "side", "source"} <= ours
    assert not [name for name in ours if SOURCE.fullmatch(name)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features_only": True}, "option features_only of .* the network declares no such option"),
        ({"drop_rat": 0.1}, "did you mean 'drop_rate'"),
        ({"act_layer": "/etc/passwd"}, "option act_layer of .* a short text that is no path"),
        ({"act_layer": "http://127.0.0.1"}, "option act_layer of .* is refused"),
        ({"act_layer": "x" * 201}, "option act_layer of .* is refused"),
        ({"act_layer": "nothing"}, "is damaged, or not fovea's .*KeyError: 'nothing'"),
        ({"drop_rate": {"a": 1}}, "option drop_rate of .* is refused"),
        ({"drop_rate": float("nan")}, "option drop_rate of .* is refused"),
        ({"channels": [[1], [2]]}, "option channels of .* is refused"),
        ({"in_chans": 10**9}, "option in_chans of .* a number up to 1,048,576"),
        ({"in_chans": -1}, "is damaged, or not fovea's"),
        ({str(number): 1 for number in range(101)}, "at most 100 items"),
    ],
)
def test_options_are_declared_and_plain(options: dict[str, Any], words: str, forge: Forge) -> None:
    raises(fovea.BadNetwork, words, fovea.load, forge(options=options))


def test_options_of_fovea_have_their_types(forge: Forge) -> None:
    assert "option side of" in said(forge(network="smallnet", options={"side": "32"}))
    assert "option widths of" in said(forge(network="smallnet", options={"widths": 8}))


@pytest.mark.parametrize(
    ("network", "options"),
    [
        ("timm/test_resnet", {"channels": [16384] * 4}),
        ("timm/resnet18", {"layers": [16384] * 4, "channels": [1] * 4, "stem_width": 1}),  # small, but many
        ("smallnet", {"widths": [16384, 16384]}),
        ("textcnn", {"width": 16384, "words": [str(number) for number in range(10_000)]}),
        ("twostream/timm/test_resnet", {**TWO_STREAMS, "hidden": 16384}),
        ("timm/vit_giant_patch14_224", {}),
    ],
)
def test_what_is_built_is_in_proportion_to_the_file(network: str, options: dict[str, Any], forge: Forge) -> None:
    assert "would have more than" in said(forge(network=network, options=options))


def test_a_caller_cannot_ask_for_memory_by_accident_either() -> None:
    refused("classes is 1 to 100,000; got 1000000000", fovea.load, "smallnet", classes=10**9)
    refused("levels is 1 to 16", fovea.load, "tnet-bagnet77", options={"levels": 1000})


TRANSFORM = {"size": [8, 8], "mean": [0.5], "std": [0.5], "crop": None, "interpolation": "bicubic"}


@pytest.mark.parametrize(
    "said_of_it",
    [
        *({"options": text} for text in ("{", "[]", "3", "null", "[" * 10**5, '{"a":' * 10**5, "1" * 5000)),
        *({"labels": labels} for labels in ("x", {"a": 1}, [1, 2, 3], 3, [["a"]], "[" * 10**5, ["a" * 1001] * 3)),
        *({"transform": TRANSFORM | {"size": size}} for size in ([0, 1], [16385, 1], [16384, 16384], "ab", [1.5, 2])),
        *({"transform": TRANSFORM | {"mean": mean}} for mean in ([], [1, 2], ["a"], [float("nan")], [1e300])),
        *({"transform": TRANSFORM | {"std": std}} for std in ([0], [-1], [1e-300], [1, 1, 1])),
        *({"transform": TRANSFORM | {"crop": crop}} for crop in (0, -1, 1e9, "a", float("inf"))),
        *({"transform": TRANSFORM | more} for more in ({"interpolation": "box"}, {"whole": 7}, {"more": 1})),
        *({"transform": text} for text in ("{}", "[]", "x", "[" * 10**5)),
        *({"network": name} for name in ("", "/", "timm/", "../x", "timm/../x", "a\n", "a\x1b[31m", "a" * 201, "~/x")),
        *({"network": f"{'gap/' * times}timm/test_resnet"} for times in (4, 3000)),
        *({"temperature": value} for value in (0, -1, 0.009, 101, 1e300, "NaN", "Infinity", "x", [1.5], True)),
        *({"borrowed": "x"}, {"sha256": "x"}, {"more": "x"}),
    ],
    ids=lambda said: str(said)[:40],
)
def test_damage_is_one_error(said_of_it: dict[str, Any], forge: Forge) -> None:
    assert " is damaged, or not fovea's (" in said(forge(**said_of_it))


@pytest.mark.parametrize(
    "name", ["os:system", "antigravity:fly", "timm/hf-hub:some/one", "timm/local-dir:some", "nothing", "gap/os:system"]
)
def test_no_code_is_imported_and_no_hub_asked_for_a_name(name: str, forge: Forge) -> None:
    said(forge(network=name))


def test_features_of_a_file_are_not_fetched(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fovea.networks.hubs.hub", lambda name: pytest.fail(f"{name} is fetched"))
    for name in ("embedding/timm/test_resnet", "gap/embedding/timm/test_resnet", "gap/embedding/torchvision/resnet18"):
        path = forge(network=name, options={"frozen": True}, labels="null")
        assert "its features would be fetched" in said(path)
    assert "its features would be fetched" in said(
        forge(network="embedding/gap/timm/test_resnet", labels="null", options={"frozen": True})
    )


def test_features_of_a_file_are_not_read_from_another(
    forge: Forge, honest: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm/other.safetensors").write_bytes(honest.read_bytes())
    monkeypatch.chdir(tmp_path)
    for name in ("gap/timm/other.safetensors", "timm/other.safetensors"):
        assert "other" in said(forge(network=name))


@pytest.mark.parametrize(
    "source",
    [
        "l2caf:timm/resnet18",
        "l2caf:some.safetensors",
        "l2caf:a=b.safetensors",
        "l2caf:,,some.pth",
        "antigravity:efficientnet_lite0",
        "os.path:join:efficientnet_lite0",
        "l2caf:gap/timm/resnet18",
    ],
)
def test_a_patch_source_of_a_file_comes_with_fovea(source: str, forge: Forge) -> None:
    path = forge(network="twostream/timm/test_resnet", options={**TWO_STREAMS, "source": source})
    assert f"option source of {path} is refused" in said(path)
    assert "does not fit TwoStream" in said(path, options={"source": source})  # the caller may ask for it


@pytest.mark.parametrize(
    "source", ["whole", "random:count=3", "l2caf:efficientnet_lite0,thresholds=0.1/0.2", "embedded"]
)
def test_a_two_stream_network_keeps_a_source_of_fovea(source: str, tmp_path: Path) -> None:
    options = {**TWO_STREAMS, "source": source, "share": True}
    net = fovea.load("twostream/timm/test_resnet", pretrained=False, classes=3, options=options)
    net.save(tmp_path / "two.safetensors")
    assert fovea.load(tmp_path / "two.safetensors").origin == net.origin


def test_too_large_pictures_by_an_option(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    fovea.load("smallnet", pretrained=False, options={"side": 32}).save(path)
    about, tensors = opened(path)
    del about["fovea.transform"]
    save_file(tensors, str(path), about | {"fovea.options": '{"side": 10000}'})
    assert "at most 16,777,216 are taken" in said(path)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner))
names = st.sampled_from(["drop_rate", "in_chans", "channels", "layers", "act_layer", "checkpoint_path"]) | st.text()
keys = st.sampled_from(["network", "labels", "options", "transform", "temperature", "borrowed"])
texts = values.map(json.dumps) | st.text() | st.builds(json.dumps, st.dictionaries(names, values))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(keys, texts, min_size=1))
def test_any_metadata_is_read_or_refused(forge: Forge, said_of_it: dict[str, str]) -> None:
    path = forge(**{key: text.encode(errors="replace").decode() for key, text in said_of_it.items()})
    try:
        net = fovea.load(path)
    except fovea.BadNetwork:
        assert len(said(path)) < 2000
    else:
        assert net.labels is None or all(isinstance(label, str) for label in net.labels)
        assert facts(path).network == "timm/test_resnet"
