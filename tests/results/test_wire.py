"""What travels comes back as it was: of every result of the verbs, and of all kinds of numbers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

import fovea
import made_twostream
from conftest import Pooled, seeded
from fovea.basics import Damaged, Later
from fovea.evidence import Evidence
from fovea.glimpses import ZoomAnswer
from fovea.heatmaps import HeatMap, HeatMaps
from fovea.networks import Prediction
from fovea.patches import LocalizedPicture, LocalizedText
from fovea.pictures import Picture, Prepare, gather
from fovea.results import pack, unpack


def noise(seed: int = 0, size: tuple[int, int] = (60, 40)) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8))


def pooled() -> fovea.Network:
    return fovea.wrap(seeded(Pooled), Prepare((24, 24)), labels=["cat", "dog", "crane", "lynx", "ox"])


def tiny(name: str, **options: Any) -> fovea.Network:
    torch.manual_seed(0)
    return fovea.load(name, pretrained=False, classes=3, options=options)


def tnet() -> fovea.Network:
    return tiny("tnet-bagnet77", width=0.0625)


def protopnet() -> fovea.Network:
    return tiny("protopnet/timm/resnet10t", channels=[8, 8, 16, 16], stem_width=8, width=4, prototypes=2)


TEXT = "a film that is merely bland, and yet quite touching"
VERBS: dict[str, tuple[type, Callable[[Picture], Sequence[Any]]]] = {
    "explain": (HeatMap, lambda it: fovea.explain(pooled(), [it], target=["top1", "dog"])),
    "explain whole": (HeatMap, lambda it: fovea.explain(pooled(), [it], fit="whole")),
    "explain pixels": (HeatMap, lambda it: fovea.explain(pooled(), [it], method="input-x-gradient")),
    "localize": (LocalizedPicture, lambda it: fovea.localize(pooled(), [it])),
    "localize by branches": (LocalizedPicture, lambda it: fovea.localize(tiny("anchornet", side=128), [it])),
    "localize texts": (LocalizedText, lambda it: fovea.localize("anchornet_text-mr", [TEXT])),
    "zoom": (ZoomAnswer, lambda it: fovea.zoom(tnet(), [it])),
    "look": (Evidence, lambda it: fovea.look(pooled(), [it])),
    "look longer": (Evidence, lambda it: fovea.look(made_twostream.made(), [it])),
    "look at prototypes": (Evidence, lambda it: fovea.look(protopnet(), [it])),
    "look in glimpses": (Evidence, lambda it: fovea.look(tnet(), [it])),
    "predict": (Prediction, lambda it: pooled().predict([it])),
}


def same(a: Any, b: Any) -> bool:
    """Whether they are the same bit for bit; sequences may be of other kinds, and what draws is not looked at."""
    if isinstance(a, (Tensor, np.ndarray)):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and pack(a) == pack(b)
    if isinstance(a, HeatMap):
        return same(a.alone(), b.alone())
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.compare)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, Sequence) and not isinstance(a, str):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b and type(a) is type(b)


@pytest.mark.parametrize("verb", VERBS)
def test_results_come_back(verb: str) -> None:
    kind, call = VERBS[verb]
    (picture,) = gather([noise()])
    (result,) = call(picture)
    sent = json.dumps(pack([result]), allow_nan=False)
    assert "fovea" not in sent
    (found,) = unpack(list[kind], json.loads(sent), picture)  # type: ignore[valid-type]
    assert same(found, result)
    assert found.to_dict() == result.to_dict()
    if verb != "predict":
        assert np.array_equal(found.boxes, result.boxes)
        assert found.line() == result.line()
        assert found.draw().tobytes() == result.draw().tobytes()
        seen, wanted = found.view(), result.view()
        drawn = [image.size for image in wanted.pictures()]
        rest = drawn, [""] * len(drawn), [""] * len(drawn)
        assert seen.to_dict(*rest) == wanted.to_dict(*rest)


def test_the_readers_picture_names_the_result() -> None:
    (sent, here) = gather([noise()])[0], Picture("mine/cat.png", noise())
    (result,) = fovea.look(pooled(), [sent])
    found = unpack(Evidence, pack(result), here)
    assert (found.name, found.heatmap.name, found.shown.picture) == ("mine/cat.png", "mine/cat.png", here)
    assert unpack(Evidence, pack(result)).shown.picture is None


def test_one_of_many_travels_without_the_others() -> None:
    many = fovea.explain(pooled(), [noise(seed) for seed in range(9)])
    packed = [pack(heatmap) for heatmap in many]
    assert packed[3]["maps"]["cells"]["shape"] == [1, *many.values.shape[1:]]
    found = [unpack(HeatMap, data) for data in packed]
    assert all(torch.equal(a.values, b.values) for a, b in zip(found, many, strict=True))
    apart = unpack(HeatMaps, pack(replace(many, cells=tuple(many.values))))
    assert isinstance(apart.cells, tuple)
    assert torch.equal(torch.stack(apart.cells), many.values)


@given(
    st.sampled_from(["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool"]),
    st.lists(st.integers(0, 3), max_size=4),
    st.integers(0, 99),
)
def test_tensors_keep_every_bit(dtype: str, shape: list[int], seed: int) -> None:
    bits = torch.randint(0, 256, (8 * int(np.prod(shape)),), generator=torch.Generator().manual_seed(seed))
    size = getattr(torch, dtype).itemsize
    values = bits[: size * int(np.prod(shape))].byte().view(getattr(torch, dtype)).reshape(shape)
    values = values != 0 if dtype == "bool" else values
    assert same(unpack(Tensor, json.loads(json.dumps(pack(values)))), values)
    if dtype != "bfloat16":
        assert same(unpack(np.ndarray, pack(values.numpy())), values.numpy())


def test_arrays_that_lie_otherwise_in_memory() -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    for seen in (values[::-1, ::2], values.T, np.broadcast_to(values[0], (3, 6))):
        assert np.array_equal(unpack(np.ndarray, pack(seen)), seen)
    assert torch.equal(unpack(Tensor, pack(torch.tensor(values).T.requires_grad_())), torch.tensor(values).T)


@given(st.floats() | st.integers())
def test_numbers(number: float) -> None:
    found = unpack(float, json.loads(json.dumps(pack(number), allow_nan=False)))
    assert repr(found) == repr(number)
    assert repr(unpack(float, pack(np.float64(number)))) == repr(float(number))


@dataclass(frozen=True)
class Made:
    some: frozenset[int]
    later: Sequence[tuple[str, int | None]]
    settings: Mapping[str, Any]
    either: Tensor | tuple[Tensor, ...] = ()


def test_sequences_sets_and_what_is_made_later() -> None:
    made = Made(frozenset({3, 1}), Later(2, lambda: [("a", 1), ("b", None)]), {"net": "x", "input": [4, None]})
    assert pack(made)["some"] == [1, 3]
    assert unpack(Made, pack(made)) == Made(made.some, (("a", 1), ("b", None)), made.settings)


@pytest.mark.parametrize("value", [object(), b"bytes", lambda: 1, {1: 2}, torch.nn.ReLU(), int, np.array(["a"])])
def test_what_does_not_travel(value: Any) -> None:
    with pytest.raises(fovea.FoveaError, match="cannot be sent"):
        pack({"a": [value]})


def deep(times: int) -> Any:
    value: Any = 1
    for _ in range(times):
        value = [value]
    return value


GOOD = pack(torch.zeros(2, 3))
SHOWN = {"name": "a", "placement": None, "picture": None}
WRONG: list[tuple[Any, Any]] = [
    (Tensor, GOOD | {"shape": [2, 4]}),
    (Tensor, GOOD | {"shape": [10**12, 10**12]}),
    (Tensor, GOOD | {"shape": [-2, -3]}),
    (Tensor, GOOD | {"shape": [2.0, 3]}),
    (Tensor, GOOD | {"shape": [2, True, 3]}),
    (Tensor, GOOD | {"shape": "23"}),
    (Tensor, {"dtype": "float32", "shape": [0, 2**62, 2**62], "data": ""}),
    (Tensor, {"dtype": "float32", "shape": [0] * 9, "data": ""}),
    (Tensor, GOOD | {"dtype": "object"}),
    (Tensor, GOOD | {"dtype": "load"}),
    (Tensor, GOOD | {"dtype": []}),
    (Tensor, GOOD | {"data": "?" * 32}),
    (Tensor, GOOD | {"data": None}),
    (Tensor, GOOD | {"class": "os.system"}),
    (Tensor, [1, 2]),
    (np.ndarray, "abc"),
    (int, True),
    (int, 1.5),
    (float, "1.5"),
    (float, None),
    (str, 3),
    (bool, 1),
    (tuple[int, int], [1]),
    (tuple[int, ...], {"a": 1}),
    (frozenset[int], [[1]]),
    (frozenset[int], 3),
    (Mapping[str, int], [["a", 1]]),
    (Any, deep(500)),
    (Made, {"some": [], "later": []}),
    (Made, pack(Made(frozenset(), (), {})) | {"more": 1}),
    (Made, "Made"),
    (Any | None, {"a": deep(40)}),
    (Callable[[], int], "os.getcwd"),
    (fovea.Network, {"module": "timm"}),
    (Picture, {"name": "a", "source": GOOD}),
    (HeatMap, {"maps": {}, "place": 0}),
    (HeatMap, {"place": 0}),
]


@pytest.mark.parametrize(("kind", "data"), WRONG)
def test_what_is_damaged_is_refused_in_words(kind: Any, data: Any) -> None:
    with pytest.raises(Damaged, match="what came is no ") as refused:
        unpack(kind, data)
    assert len(str(refused.value)) < 300
    assert "\n" not in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(GOOD),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([HeatMap, Evidence, LocalizedPicture, LocalizedText, ZoomAnswer, Prediction]), JSON, st.data())
def test_anything_may_come(kind: Any, data: Any, draw: st.DataObject) -> None:
    """A field or two of a dataclass, too."""
    names = draw.draw(st.lists(st.sampled_from([field.name for field in fields(kind)]), max_size=3))
    for sent in (data, dict.fromkeys(names, data)):
        try:
            assert isinstance(unpack(kind, sent), kind)
        except Damaged:
            continue
