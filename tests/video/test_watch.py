from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from conftest import Pooled, seeded
from fovea.heatmaps.methods import find
from fovea.pictures import Clip, Prepare, read_clip
from fovea.results import read
from fovea.video import film
from fovea.video.watch import Watching, watch_batches
from made_clips import make_clip

LABELS = ["cat", "dog", "crane", "lynx", "ox"]


@pytest.fixture
def net(pooled: nn.Module) -> fovea.Network:
    """Of a frame of 64 x 48 its own transform keeps the middle 48 x 48."""
    return fovea.wrap(pooled, Prepare((24, 24), crop=1.0), labels=LABELS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_clip(tmp_path / "clip.mp4", 20)


class Together(nn.Module):
    """A network over frames: N,T,C,H,W."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 6, 3, 2, 1), nn.ReLU())
        self.rnn = nn.GRU(6, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        n, t = x.shape[:2]
        return self.rnn(self.cnn(x.flatten(0, 1)).mean((2, 3)).unflatten(0, (n, t)))[0][:, -1]


@pytest.mark.parametrize("crop", [True, False])
@pytest.mark.parametrize(("method", "target"), [("l2caf", "output"), ("l2caf", "lynx"), ("gradcam", [1, "ox"])])
def test_every_frame_is_a_picture(crop: bool, method: str, target: object, net: fovea.Network, path: Path) -> None:
    (seen,) = fovea.watch(net, path, frames=4, method=method, target=target, fit="crop" if crop else "squash", batch=3)  # type: ignore[arg-type]
    wanted = fovea.explain(
        net if crop else net.squashed(), list(read_clip(path, 4).frames), method=method, target=target
    )  # type: ignore
    count = wanted.values.shape[1]
    assert tuple(seen.map.values.shape) == (1, 4, count, 6, 6)
    assert torch.allclose(seen.map.values[0], wanted.values, atol=1e-6)
    assert seen.boxes.tolist() == wanted.boxes.tolist()
    assert seen.map.boxes.shape == (1, 4, count, 4)
    assert seen.map.targets[0] == wanted.targets[0]
    assert (seen.numbers, seen.rate) == ((2, 7, 12, 17), 10.0)
    assert seen.times == pytest.approx([0.2, 0.7, 1.2, 1.7])
    drawn = seen.boxes[seen.boxes.any(-1)]  # in the clip's own pixels, where the crop is from 8 to 56
    assert drawn[:, 0].min() >= (8 if crop else 0)
    assert drawn[:, 2].max() <= (56 if crop else 64)


def test_three_frames_and_the_whole_output_unless_told(net: fovea.Network, path: Path) -> None:
    (seen,) = fovea.watch(net, path)
    assert len(seen) == 3
    assert seen.map.targets == (("output",),)
    assert (seen.share, seen.shares[0]) == ((), ())
    assert len(seen.best) == 5
    assert seen.title().startswith(f"where it looks · says {seen.best[0][0]} 0.")


class Gray(nn.Module):
    """Two classes by hand: a frame's gray g (0 to 1) gives the logits 4 g and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([[4 / 3] * 3, [0.0] * 3]).view(2, 3, 1, 1))
            self.conv.bias.copy_(torch.tensor([0.0, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).mean((2, 3))


def test_one_class_is_followed_through_the_clip() -> None:
    """The last frame alone is light. Its class is the clip's when the mean of the logits says so, not two of three."""
    net = fovea.wrap(Gray(), Prepare((8, 8), mean=(0.0,) * 3, std=(1.0,) * 3), labels=["light", "dark"])
    for last, wanted in ((0.7, "dark"), (0.9, "light")):  # mean logits: 4 last / 3 against 1
        frames = tuple(Image.new("RGB", (8, 8), (round(255 * g),) * 3) for g in (0.0, 0.0, last))
        clip = Clip("made", frames, (0.0, 1.0, 2.0), (0, 1, 2), 1.0)
        (seen,) = fovea.watch(net, clip, target="top1")
        assert seen.map.targets == ((wanted,),)
        light = 1 / (1 + np.exp(1 - 4 * last / 3))
        assert seen.share[0] == pytest.approx(light if wanted == "light" else 1 - light, abs=5e-3)
        own = 1 / (1 + np.exp(1 - 4 * last))
        assert seen.shares[2][0] == pytest.approx(own if wanted == "light" else 1 - own, abs=5e-3)
        both = (wanted, "dark" if wanted == "light" else "light")
        assert fovea.watch(net, clip, target="top2")[0].map.targets == (both,)


def test_frames_that_stay_in_the_file_give_the_same(net: fovea.Network, path: Path) -> None:
    """With room for one frame only, every k-th is read, looked at and let go."""
    (here,) = fovea.watch(net, path, every=3, target="top1")
    (there,) = fovea.watch(net, path, every=3, target="top1", max_pixels=64 * 48, batch=2)
    assert torch.allclose(here.map.values, there.map.values, atol=1e-6)
    assert (here.numbers, here.title()) == (there.numbers, there.title())
    assert np.array_equal(np.asarray(here.draw()), np.asarray(there.draw()))


@pytest.mark.parametrize("told", [True, False])
def test_a_network_over_frames(told: bool, path: Path) -> None:
    module = seeded(Together)
    if not told:
        module.takes_frames = True  # type: ignore[assignment]
    net = fovea.wrap(module, Prepare((16, 16)))
    (seen,) = fovea.watch(net, path, frames=4, clip_network=told, fit="squash")
    frames = torch.stack([net.squashed().prepare(image)[0] for image in read_clip(path, 4).frames])
    wanted = fovea.explain(net, frames.unsqueeze(0))  # 1,T,C,H,W
    assert tuple(seen.map.values.shape) == (1, 4, 1, 4, 4)
    assert torch.allclose(seen.map.values, wanted.values, atol=1e-5)
    assert seen.map.targets == (("output",),)
    assert seen.map.boxes.shape == (1, 4, 1, 4)
    assert fovea.watch(net, path, frames=1, clip_network=True)[0].map.values.shape[:2] == (1, 1)


def test_a_network_that_mixes_frames_at_once(path: Path) -> None:
    class Volume(nn.Module):
        takes_frames = True

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv3d(3, 4, 3, 1, 1), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.conv(x.transpose(1, 2)).relu().mean((2, 3, 4)))

    with pytest.raises(fovea.BadNetwork, match="no map of each frame"):
        fovea.watch(fovea.wrap(seeded(Volume), Prepare((16, 16))), path)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        *(
            (single, "targets for all its frames")
            for single in ("pair", fovea.each([1, 2, 3]), torch.tensor([1, 2, 3]))
        ),
        ("top9", "top9 needs an output of at least 9 classes"),
        ("lyns", "did you mean 'lynx'"),
    ],
)
def test_wrong_targets(target: object, words: str, net: fovea.Network, path: Path) -> None:
    with pytest.raises(fovea.BadChoice, match=words):
        fovea.watch(net, path, target=target)  # type: ignore[arg-type]


def test_other_wrong_choices(net: fovea.Network, path: Path) -> None:
    with pytest.raises(fovea.BadChoice, match="every frame of a Clip is explained"):
        fovea.watch(net, read_clip(path), frames=3)
    with pytest.raises(fovea.BadChoice, match="batch is 1 to 65,536; got 0"):
        fovea.watch(net, path, batch=0)
    with pytest.raises(fovea.BadNetwork, match="clip_network=True"):
        fovea.watch(fovea.wrap(seeded(Together), Prepare((16, 16))), path)  # it does not say that it takes frames


def test_several_methods_share_a_pass(net: fovea.Network, path: Path) -> None:
    methods = [find(fovea.L2CAF()), find(fovea.GradCAM())]
    steps = list(watch_batches(net, path, methods, "top1", Watching(frames=4, batch=3)))
    assert [row["method"] for row in steps[-1].results[0].to_dict()["maps"]] == ["l2caf", "gradcam"]
    done = [(step.done, step.total) for step in steps[:-1]]
    assert done == [(3, 8), (4, 8), (7, 8), (8, 8)]  # the mean of the logits first, then the maps


def test_frames_are_cropped_where_asked(net: fovea.Network, path: Path) -> None:
    (cropped,) = fovea.watch(net, path, fit="crop")
    assert cropped.map.shown[0].placement.window == (8, 0, 56, 48)  # type: ignore[union-attr]


def test_several_clips_and_one_that_cannot_be_read(net: fovea.Network, tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        make_clip(tmp_path / name, 6)
    (tmp_path / "broken.mp4").write_text("hello")
    with pytest.warns(UserWarning, match="broken.mp4 is damaged"):
        watched = fovea.watch(net, tmp_path)
    assert [Path(clip.name).name for clip in watched] == ["a.mp4", "b.mp4"]
    assert [Path(name).name for name, _ in watched.skipped] == ["broken.mp4"]


def test_maps_between_frames(net: fovea.Network, path: Path) -> None:
    (seen,) = fovea.watch(net, path, frames=2, target="cat")  # at 0.5 s and 1.5 s
    first, last = seen.values[:, 0]
    assert np.allclose(seen.at(0.75), 0.75 * first + 0.25 * last)
    assert np.allclose(seen.at(0.5), first)
    for time, held in ((0.0, first), (1.5, last), (1.9, last)):
        assert np.allclose(seen.at(time), held)


def written(path: Path) -> tuple[list[float], float, av.VideoStream]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        times = [frame.time for frame in container.decode(video=0)]
        return times, float(stream.duration * stream.time_base), stream


def test_film_keeps_times_and_length(net: fovea.Network, tmp_path: Path) -> None:
    stamps = [0, 100, 150, 400, 1000, 1100]
    path = make_clip(tmp_path / "varying.mp4", 6, stamps=stamps)
    (seen,) = fovea.watch(net, path, frames=2)
    seen.save_film(tmp_path / "film.mp4")
    times, length, stream = written(tmp_path / "film.mp4")
    assert times == pytest.approx([stamp / 1000 for stamp in stamps], abs=1e-3)
    assert length == pytest.approx(seen.end, abs=1e-3)
    assert 1.1 < seen.end < 2
    assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")


def test_film_of_a_stretch_and_of_odd_sizes(net: fovea.Network, tmp_path: Path) -> None:
    path = make_clip(tmp_path / "odd.mkv", 20, (333, 251), codec="ffv1", pixels="bgr0")
    done = []
    (seen,) = fovea.watch(net, path, frames=2, start=0.5, stop=1.0)
    seen.save_film(tmp_path / "film.mp4", advance=lambda *told: done.append(told))
    times, length, stream = written(tmp_path / "film.mp4")
    assert times == pytest.approx([0, 0.1, 0.2, 0.3, 0.4], abs=1e-3)
    assert length == pytest.approx(0.5, abs=1e-3)
    assert (stream.width, stream.height, stream.average_rate) == (332, 250, Fraction(10))
    assert done[-1] == (5, 5)


def test_film_is_whole_or_not_there(
    net: fovea.Network, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (seen,) = fovea.watch(net, path, frames=2)
    real, calls = film._drawn, []

    def failing(*arguments: object) -> Image.Image:
        calls.append(arguments)
        if len(calls) > 3:
            raise RuntimeError("out of memory")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(film, "_drawn", failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        seen.save_film(tmp_path / "film.mp4")
    assert [one.name for one in tmp_path.iterdir()] == ["clip.mp4"]


def test_strip_shows_the_frames_above_their_maps(net: fovea.Network, path: Path) -> None:
    strip = np.asarray(fovea.watch(net, path, frames=3, target="cat")[0].draw()).astype(int)
    width = 3 * 320 + 2 * 12
    assert strip.shape[1] == width
    gray = [(row, column) for row in range(0, strip.shape[0], 4) for column in (300, 632, 964)]
    for column, number in ((300, 3), (632, 10), (964, 16)):  # frames of 64 x 48 are drawn as 320 x 240
        own = [row for row, at in gray if at == column and abs(strip[row, column] - number * 8).max() < 6]
        assert len(own) * 4 > 200


def test_strip_of_many_frames_is_not_endless(net: fovea.Network, path: Path) -> None:
    few, many = (fovea.watch(net, path, every=k)[0].draw() for k in (2, 1))  # 10 and 20 frames
    assert few.width < many.width <= 6 * 320 + 5 * 12
    assert many.height < 2 * few.height


def test_files(net: fovea.Network, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (seen,) = fovea.watch(net, path, frames=4, target=["cat", "ox"])
    seen.save(out, files=True)
    (row,) = read(out).results
    assert (row["name"], row["size"], row["rate"]) == (str(path), [64, 48], 10.0)
    assert [frame["number"] for frame in row["frames"]] == [2, 7, 12, 17]
    assert [maps["target"] for maps in row["maps"]] == ["cat", "ox"]
    for k, (maps, files) in enumerate(zip(row["maps"], row["files"]["maps"], strict=True)):
        values = np.load(out / files["values"])
        assert np.array_equal(values, seen.values[:, k])  # T,h,w
        assert maps["boxes"] == [[box] for box in seen.boxes[:, k].tolist()]
        assert len(maps["loss"]) == len(maps["probabilities"]) == 4
        assert files["film"] == f"clip.l2caf.{maps['target']}.film.mp4"
        assert all((out / name).is_file() for name in files.values())


def test_one_map_has_short_names(net: fovea.Network, path: Path, tmp_path: Path) -> None:
    fovea.watch(net, path).save(tmp_path / "out", files=True)
    names = sorted(file.name for file in (tmp_path / "out").iterdir() if file.is_file())
    assert names == ["clip.film.mp4", "clip.l2caf.output.npy", "clip.strip.png", "index.html", "results.json"]


def test_a_blank_frame_is_told(path: Path) -> None:
    """Of a black frame nothing speaks for 'light'; the others are light."""
    net = fovea.wrap(Gray(), Prepare((8, 8), mean=(0.0,) * 3, std=(1.0,) * 3), labels=["light", "dark"])
    noise = [np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8) for i in range(3)]
    noise[1][:] = 0
    clip = Clip("made", tuple(map(Image.fromarray, noise)), (0.0, 1.0, 2.0), (0, 1, 2), 1.0)
    (seen,) = fovea.watch(net, clip, method="gradcam", target="light")
    assert (seen.map.diagnosis[0][0] or "").startswith("frame 1: ")
    assert seen.boxes[1].tolist() == [[0, 0, 0, 0]]


def test_damaged_frames_are_warned_of(net: fovea.Network, tmp_path: Path) -> None:
    path = make_clip(tmp_path / "cut.mp4", 60, options={"g": "5"})
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.75)])
    for limit in (10**9, 64 * 48):  # in memory; read as it is looked at
        with pytest.warns(UserWarning, match="cannot be decoded"):
            (seen,) = fovea.watch(net, path, every=4, max_pixels=limit)
        assert len(seen.times) == len(seen.numbers) == seen.map.values.shape[1] < 15
        assert any("cannot be decoded" in note for note in seen.notes)


def test_pooled_networks_are_exact(path: Path) -> None:
    (seen,) = fovea.watch(fovea.wrap(seeded(Pooled), Prepare((24, 24)), labels=LABELS), path, target="cat")
    assert seen.map.solver == "exact"
    assert seen.map.loss is not None
    assert tuple(seen.map.loss.shape) == (1, 3, 1)
