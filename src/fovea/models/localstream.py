"""The local stream of a two-stream network: from the map of a patch, over T steps of stacked LSTMs, to its classes."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice, within

Local = Literal["none", "cnn", "lstm", "attention"]
Asked = Literal["state", "first"]
READOUTS = {"cnn": "last", "lstm": "last", "attention": "attention"}  # by what kind the steps are usually made one


class SelfAttention(nn.Module):
    """`keys`: how many of the channels are keys; a sixteenth unless given."""

    def __init__(self, channels: int, hidden: int, keys: int | None = None, places: int = 64, width: int = 512) -> None:
        super().__init__()
        keys = max(channels // 16, 1) if keys is None else keys
        if not 0 < keys < channels:
            raise BadChoice(f"keys are some of the map's {channels} channels, 1 to {channels - 1}; got {keys}")
        if places < 0 or places % 4:
            raise BadChoice(f"places is a multiple of 4 (sines and cosines of x and of y); got {places}")
        self.keys, self.places, self.width = keys, places, width
        first, second, last = nn.Linear(hidden, width), nn.Linear(width, width), nn.Linear(width, keys + places)
        self.query = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
        self.answer = nn.Sequential(nn.Linear(channels - keys + places, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, features: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """M,C,h,w and M,T,D to answers M,T,width and attention maps M,T,h,w, each of which sums to 1."""
        grid = features.shape[2:]
        where = basis(grid[0], grid[1], self.places).to(features).expand(len(features), -1, -1, -1)
        keys, values = features[:, : self.keys], features[:, self.keys :]
        keys, values = (torch.cat([one, where], 1).flatten(2) for one in (keys, values))  # M,c+c_s,P
        scores = self.query(states) @ keys / math.sqrt(keys.shape[1])  # M,T,P, Eq. 7.1
        share = scores.float().softmax(2)
        found = share.to(values.dtype) @ values.transpose(1, 2)  # M,T,c_v+c_s
        return self.answer(found), share.view(*share.shape[:2], *grid)


def basis(height: int, width: int, size: int) -> Tensor:
    """The place of every cell as waves of growing frequency along y and along x: size,height,width."""
    count = size // 4
    found = []
    for axis, length in ((0, height), (1, width)):
        along = (torch.arange(length) + 0.5) / length * math.pi  # half a wave at the lowest frequency
        waves = along.unsqueeze(0) * torch.arange(1, count + 1).unsqueeze(1)  # count,length
        both = torch.cat([waves.sin(), waves.cos()])  # 2*count,length
        found.append(both.unsqueeze(2 - axis).expand(-1, height, width))
    return torch.cat(found)


@dataclass(frozen=True)
class Steps:
    """What the local stream made of M patches in T steps."""

    features: Tensor  # M,T,D: phi_t
    weights: Tensor  # M,T: alpha_t, which sum to 1
    each: Tensor  # M,T,classes: what each step says alone
    logits: Tensor  # M,classes
    maps: Tensor | None = None  # M,T,h,w: where self-attention looks


@dataclass(frozen=True)
class LocalOptions:
    """A local stream beside a global one."""

    local: Local = "attention"  # Table 6.1's row: none (the global stream alone), cnn, lstm, attention
    steps: int = 10
    hidden: int = 512  # numbers of an LSTM layer
    layers: int = 2
    shared_attention: bool = False  # one weight vector for all steps
    self_attention: bool = False  # chapter 7's
    asked_by: Asked = "state"  # self-attention's query: the state before, or the first layer, which sees the map's mean
    keys: int | None = None  # of the map's channels, of self-attention
    places: int = 64  # numbers that tell a cell's place, of self-attention
    readout: str | None = None
    last_pool: bool = False  # the local stream keeps a max-pool that the map comes from
    patch: int = 224  # pixels a side that a patch is read at
    weight: float = 1.0  # of the local stream
    patches: int = 1  # of a picture, read when it is used
    dropout: float = 0.0
    source: str | None = None  # where patches come from, as fovea.patches takes it, or "embedded"

    def __post_init__(self) -> None:
        if self.local not in get_args(Local):
            raise BadChoice(f"local is {', '.join(get_args(Local))}; got {self.local!r}")
        for name, most in (("steps", 1000), ("hidden", 2**16), ("layers", 100), ("patch", 4096), ("patches", 1000)):
            within(name, getattr(self, name), 1, most)
        if not 0 <= self.dropout < 1:
            raise BadChoice(f"dropout is a share, 0 or more and below 1; got {self.dropout}")
        if self.weight < 0:
            raise BadChoice(f"weight is the local stream's share, 0 or more; got {self.weight}")
        if self.readout == "attention" and self.local in ("cnn", "lstm"):
            raise BadChoice(f"a local stream {self.local!r} has no attention: leave readout out or name another")
        if self.asked_by not in get_args(Asked):
            raise BadChoice(f"asked_by is {' or '.join(get_args(Asked))}; got {self.asked_by!r}")
        if self.self_attention and self.local == "cnn":
            raise BadChoice("self-attention is asked by an LSTM, which local=cnn has none of: local=lstm or attention")
        if self.self_attention and self.asked_by == "first" and self.layers < 2:
            raise BadChoice('asked_by="first": self-attention sits between LSTM layers, and takes two or more')
        if self.readout is not None and self.local != "none":
            check_readout(self.readout, 1 if self.local == "cnn" else self.steps)

    def stream(self, channels: int, classes: int) -> "LocalStream | None":
        return None if self.local == "none" else LocalStream(channels, classes, self)


class Recurrent(nn.Module):
    """Stacked LSTMs from zero states that are given the same vector at every step, the map's mean (Eq. 3.4).

    With self-attention, as chapter 7 has it, the last layer's state of the step before asks the map, and the answer is
    all that a step is given. Asked by the first layer, which is given the map's mean at every step, the answers are
    what the second layer is given: then what was found has no say in what is asked next."""

    def __init__(self, channels: int, options: LocalOptions, ask: SelfAttention | None = None) -> None:
        super().__init__()
        hidden, layers = options.hidden, options.layers
        self.steps, self.ask, self.dropout = options.steps, ask, nn.Dropout(options.dropout)
        between = ask is not None and options.asked_by == "first"
        given = channels if ask is None or between else ask.width
        self.lstm = nn.LSTM(given, hidden, 1 if between else layers, batch_first=True)
        self.after = nn.LSTM(ask.width, hidden, layers - 1, batch_first=True) if ask is not None and between else None

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """M,C,h,w to M,T,D, and where self-attention looked, M,T,h,w."""
        if self.ask is not None and self.after is None:
            return self._asking(features, self.ask)
        vector = self.dropout(features.mean((2, 3)))  # M,C: dropped once, so that every step sees the same
        same = vector.unsqueeze(1).expand(-1, self.steps, -1).contiguous()  # M,T,C
        found, _ = self.lstm(same)  # M,T,D
        if self.ask is None or self.after is None:
            return found, None
        answers, maps = self.ask(features, found)
        return self.after(answers)[0], maps

    def _asking(self, features: Tensor, ask: SelfAttention) -> tuple[Tensor, Tensor]:
        states, maps, memory = [features.new_zeros(len(features), 1, self.lstm.hidden_size)], list[Tensor](), None
        for _ in range(self.steps):
            answer, looked = ask(features, states[-1])
            state, memory = self.lstm(self.dropout(answer), memory)
            states.append(state)
            maps.append(looked)
        return torch.cat(states[1:], 1), torch.cat(maps, 1)


class LocalStream(nn.Module):
    """From a patch's map to its classes. `kind` is Table 6.1's row: the CNN alone, the LSTM's last step, attention.
    `readout` replaces what the steps are made one by: "attention", "last", "mean", "sum:3" (of steps 1 to 3, Table 6.2)
    or "step:5" (that step alone, Fig. 6.1)."""

    def __init__(self, channels: int, classes: int, options: LocalOptions) -> None:
        super().__init__()
        self.kind, self.readout = options.local, options.readout or READOUTS[options.local]
        ask = SelfAttention(channels, options.hidden, options.keys, options.places) if options.self_attention else None
        self.recurrent = None if self.kind == "cnn" else Recurrent(channels, options, ask)
        width = channels if self.recurrent is None else options.hidden
        # zeros are mean pooling, from which each step's weights are learned
        vectors = torch.zeros(1 if options.shared_attention else options.steps, width)
        self.attention = nn.Parameter(vectors) if self.readout == "attention" else None
        self.dropout, self.classifier = nn.Dropout(options.dropout), nn.Linear(width, classes)

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: object) -> None:
        """Of a stream with attention, all but that: its steps may be read another way, and the read-out trained."""
        if self.attention is None:
            state.pop(f"{prefix}attention", None)
        super()._load_from_state_dict(state, prefix, *rest)  # type: ignore[arg-type]

    @property
    def steps(self) -> int:
        return 1 if self.recurrent is None else self.recurrent.steps

    def forward(self, features: Tensor) -> Steps:
        if self.recurrent is None:
            found, maps = features.mean((2, 3)).unsqueeze(1), None  # M,1,C
        else:
            found, maps = self.recurrent(features)
        weights = self.weigh(found, self.readout)
        each = self.classifier(self.dropout(found))
        return Steps(found, weights, each, self.answer(found, weights), maps)

    def answer(self, found: Tensor, weights: Tensor) -> Tensor:
        """M,T,D and M,T to M,classes."""
        pooled = (weights.to(found.dtype).unsqueeze(2) * found).sum(1)  # M,D, Eq. 3.5
        return self.classifier(self.dropout(pooled))

    def weigh(self, found: Tensor, readout: str) -> Tensor:
        """How much each step counts: M,T. Attention's, Eq. 3.6, sum to 1, and so do all but the sum's."""
        kind, _, number = readout.partition(":")
        if kind == "attention":
            if self.attention is None:
                raise BadChoice(f"a local stream of kind {self.kind!r} has no attention: its readout is another")
            return (found * self.attention).sum(2).float().softmax(1)
        weights = torch.zeros(found.shape[:2], device=found.device)
        upto = int(number or self.steps)
        if kind == "sum":
            weights[:, :upto] = 1
        elif kind == "mean":
            weights[:] = 1 / self.steps
        else:
            weights[:, upto - 1] = 1
        return weights


def check_readout(text: str, steps: int) -> str:
    """A readout as it is written, or an error that says how one is."""
    kind, colon, number = text.partition(":")
    numbered = kind in ("sum", "step") and number.isdecimal() and len(number) < 9 and 1 <= int(number) <= steps
    if not numbered and (colon or kind not in ("attention", "last", "mean")):
        raise BadChoice(f"a readout is attention, last, mean, sum:N or step:N with N from 1 to {steps}; got {text!r}")
    return text
