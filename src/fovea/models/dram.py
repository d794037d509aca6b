"""DRAM, the deep recurrent attention model (Ba et al. 2014), as Saccader's authors built it for photographs.

Glimpses are read one after the other by a ResNet-50. A first LSTM gathers what they show and answers; a second one,
above it, steers: it says where the next glimpse is. What it says first comes from an overview, the whole picture
shrunk, of which the answer sees nothing. A picture is never read whole in its full resolution."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice, within
from fovea.models.glimpsing import InTurn, Pixels, Scene, Walk, boxes_of
from fovea.models.norms import Statistics, scaled, unnormed
from fovea.networks import Network, model
from fovea.pictures import Prepare, constant

VIEWS = 3  # of the overview: a glimpse of the middle, the whole picture, and one halfway
STEM, CHANNELS, UNITS = 64, (256, 512, 1024, 2048), 1024


@dataclass(frozen=True)
class DramOptions:
    width: float = 1.0  # multiplies every number of channels
    locations: int = 8  # glimpses of a picture
    glimpse: int = 77  # pixels a side
    side: int = 224  # pictures are squashed to side x side
    spread: float = 0.1  # of places while training, a standard deviation
    norm: bool = True  # batch norm, as the authors have it

    def __post_init__(self) -> None:
        if not 0 < self.width <= 4:
            raise BadChoice(f"width multiplies the channels and is above 0 and at most 4; got {self.width}")
        within("locations", self.locations, 1, 4096)
        if not 1 <= self.glimpse <= self.side:
            raise BadChoice(f"a glimpse is 1 to {self.side} pixels a side, as pictures are; got glimpse={self.glimpse}")
        if self.spread <= 0:
            raise BadChoice(f"spread is the standard deviation of places while training and above 0; got {self.spread}")


class Dram(InTurn):
    """A glimpse is glimpse/side of a scene's height and width, read at glimpse x glimpse pixels: of a picture of `side`
    pixels it is cut out as it is.

    The glimpse network takes three views stacked, each with two channels that tell where its pixels are. An overview
    fills them all; a glimpse fills the first and the others are zero (in the repository they keep their mean color, so
    that there an answer does rest on pixels outside of its glimpses). Overviews and glimpses look so unlike each other
    that each kind has batch norm statistics of its own.

    Places are the middles of glimpses, from -1 to 1 across the picture; while training they are drawn from a normal
    distribution of standard deviation `spread` around what is said, else they are what is said. Nothing of the policy's
    gradient leaves the steering LSTM and the layer after it, so the overview learns by its own row of `Walk.each`: what
    the classifier makes of it. `each` and `after` are the same, since a step of a recurrent network is never alone."""

    abilities = frozenset({"glimpses", "steps"})

    def __init__(self, classes: int, options: DramOptions) -> None:
        super().__init__()
        import timm

        width, self.locations, self.glimpse = options.width, options.locations, options.glimpse
        self.side, self.spread = options.side, options.spread
        channels, units = tuple(scaled(channel, width) for channel in CHANNELS), scaled(UNITS, width)
        form = {"in_chans": VIEWS * 5, "channels": channels, "stem_chs": scaled(STEM, width)}
        self.eye = timm.create_model("resnetv2_50", num_classes=0, zero_init_last=not options.norm, **form)
        if not options.norm:
            unnormed(self.eye)  # each block begins as its shortcut
        self.statistics = Statistics(self.eye, 2)  # of overviews and of glimpses
        self.recognise, self.steer = nn.LSTMCell(channels[-1], units), nn.LSTMCell(units, units)
        self.classifier, self.emit = nn.Linear(units, classes), nn.Linear(units, 2)

    least = 1  # of the overview the answer sees nothing

    @property
    def most(self) -> int:
        """As many as it was built for."""
        return self.locations

    def forward(self, x: Tensor, glimpses: int | None = None) -> Walk:
        if x.ndim != 4 or x.shape[1] != 3:
            raise BadChoice(f"DRAM takes color pictures, N,3,H,W; got {tuple(x.shape)}")
        return self.walk(Pixels(x), glimpses)

    def walk(self, scene: Scene, glimpses: int | None = None) -> Walk:
        count = self.locations if glimpses is None else glimpses
        if not 1 <= count <= self.most:
            more = f". For more: options locations={count}" if count > self.most else ""
            raise BadChoice(f"this DRAM is built for 1 to {self.most} glimpses; got {count}{more}")
        if self.training and torch.is_grad_enabled():
            self.certainty.forget()
        *_, walk = self.turns(scene, count)
        return walk

    def turns(self, scene: Scene, glimpses: int) -> Iterator[Walk]:
        weight = self.emit.weight
        extent = self._extents(scene)[0]
        height, width = scene.size
        whole = constant([float(width), float(height)], weight.device)  # as places are: x, y
        own = constant([float(extent[1]), float(extent[0])], weight.device)
        reach = 1 - own / whole  # places whose glimpse lies in the picture
        context, _ = self.recognise(self._seen(self._overview(scene), 0))
        frame = boxes_of(torch.zeros(scene.count, 1, 2, dtype=torch.long, device=weight.device), scene.size)
        after, boxes, logs = [self.classifier(context)], [frame], list[Tensor]()
        known: tuple[Tensor, Tensor] | None = None  # of the overview nothing is kept here
        heading: tuple[Tensor, Tensor] = self.steer(context.detach())
        for turn in range(1, glimpses + 1):
            with torch.autocast(weight.device.type, enabled=False):  # half precision cannot tell near places apart
                said = self.emit(heading[0].to(weight.dtype)).tanh().float() * reach  # N,2
            place = torch.normal(said.detach(), self.spread) if self.training else said.detach()
            logs.append(log_normal(place, said, self.spread).sum(1))
            middle = (place.clamp(-reach, reach) + 1) / 2 * whole
            first = (middle - own / 2).round().clamp(torch.zeros_like(whole), whole - own)
            corners = first.long().unsqueeze(1)  # N,1,2
            known = self.recognise(self._seen(self._glimpse(scene, corners, extent), 1), known)
            after.append(self.classifier(known[0]))
            boxes.append(boxes_of(corners, extent))
            answers = torch.stack(after, 1)  # N,V,classes
            share = answers.new_full(answers.shape[:2], 1 / turn)  # a recurrent state keeps no account of its own
            share[:, 0] = 0
            levels, parents = (1, *(2,) * turn), (-1, *(0,) * turn)
            read = torch.cat(boxes, 1), levels, parents, torch.stack(logs, 1)
            yield Walk(answers[:, -1], answers, answers, *read, share, density=True)
            heading = self.steer(known[0].detach(), heading) if turn < glimpses else heading

    def _extents(self, scene: Scene) -> list[tuple[int, int]]:
        """Height and width of the three views, the narrowest first."""
        shares = torch.linspace(self.glimpse / self.side, 1, VIEWS).tolist()
        height, width = scene.size
        return [(max(round(height * share), 1), max(round(width * share), 1)) for share in shares]

    def _overview(self, scene: Scene) -> Tensor:
        """Three views of the middle: N,15,g,g."""
        height, width = scene.size
        views = []
        for extent in self._extents(scene):
            corner = constant([(width - extent[1]) // 2, (height - extent[0]) // 2], self.emit.weight.device)
            views.append(self._view(scene, corner.expand(scene.count, 1, 2), extent))
        return torch.cat(views, 1)

    def _glimpse(self, scene: Scene, corners: Tensor, extent: tuple[int, int]) -> Tensor:
        view = self._view(scene, corners, extent)
        return torch.cat([view, torch.zeros_like(view).repeat(1, VIEWS - 1, 1, 1)], 1)

    def _view(self, scene: Scene, corners: Tensor, extent: tuple[int, int]) -> Tensor:
        """A window and where its pixels are, from -1 to 1: N,5,g,g."""
        pixels = scene.read(corners, extent, self.glimpse)
        steps = (torch.arange(self.glimpse, device=pixels.device) + 0.5) / self.glimpse  # g
        sides = zip((0, 1), extent[::-1], scene.size[::-1], strict=True)
        across, down = ((corners[:, :, axis] + steps * own) * (2 / side) - 1 for axis, own, side in sides)  # N,g each
        shape = (-1, self.glimpse, self.glimpse)
        places = torch.stack([across[:, None, :].expand(shape), down[:, :, None].expand(shape)], 1)  # N,2,g,g
        return torch.cat([pixels, places.to(pixels.dtype)], 1)

    def _seen(self, views: Tensor, kind: int) -> Tensor:
        """N,D. `kind`: 0 of an overview, 1 of a glimpse."""
        with self.statistics.of(self.eye, kind):
            vector: Tensor = self.eye(views)
        return vector

    def reset_classifier(self, classes: int) -> None:
        """A new, untrained last layer for so many classes."""
        old = self.classifier
        self.classifier = nn.Linear(old.in_features, classes).to(old.weight)
        self.certainty.forget()


def log_normal(x: Tensor, mean: Tensor, deviation: float) -> Tensor:
    """The logarithm of a normal distribution's density."""
    return -(((x - mean) / deviation) ** 2) / 2 - math.log(deviation * math.sqrt(2 * math.pi))


@model("dram", about="reads glimpses one after the other (Ba et al. 2014)", can=("glimpses", "steps"))
def build(classes: int, options: DramOptions) -> Network:
    transform = Prepare((options.side, options.side), (0.5,) * 3, (0.5,) * 3, None, "bicubic")
    return Network(Dram(classes, options), transform, tuple(map(str, range(classes))))
