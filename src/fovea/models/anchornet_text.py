"""AnchorNet-T (Yang et al. 2020, Tables 5 and 6): three branches whose cells see 3, 5 and 7 words in a row.

The head and the attention's features are 1x1 convolutions, so a cell's evidence comes from its own words alone. The
tables name no non-linearity and no norm. Here the head only squeezes words' vectors and is linear, ReLU follows the
convolutions of the branches and of their attention, and there is no batch norm, whose statistics would count padding.

Padding stands at the end of a sentence. Only cells that lie in the sentence whole have attention, and with it evidence
in F; a sentence shorter than a branch's window has one cell, which sees all of it. So padding changes nothing, but for
`rescale=False`, where logits are divided by the number of all cells, as the paper's average over a fixed length does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.data import PADDING, Dropout, Read, Reading, cells_in, forget
from fovea.models import anchoring
from fovea.models.anchoring import PAPER, AnchorNetOutput, BranchOptions, BranchOutput, output_of
from fovea.networks import Network, as_found, model

HEAD = (32, 64)  # Table 5
WINDOWS = (3, 5, 7)  # Table 6: words that a cell of each branch sees
CHANNELS, ATTENDED = 128, 64
NONE = Dropout()


@dataclass(frozen=True)
class WordSpan:
    """Words `start` to `stop` (not included) of one sentence, and what they add to the logit of the decided class."""

    branch: int  # the place of its window among WINDOWS
    start: int
    stop: int
    value: float


class MaskedAttention(anchoring.Attention):
    """Eqs. 6 to 10 over some of the cells; the others have none."""

    def of(self, x: Tensor, seen: Tensor) -> Tensor:
        outside = ~seen  # N,P
        g = self.compact(x).squeeze(1).masked_fill(outside, -torch.inf).softmax(1)  # N,P  Eq. 6
        c = (x * g.unsqueeze(1)).sum(2).softmax(1)  # N,C  Eqs. 7, 8
        return (x * c.unsqueeze(2)).sum(1).masked_fill(outside, -torch.inf).softmax(1)  # N,P  Eqs. 9, 10


class TextBranch(anchoring.Branch):
    """A branch that knows which cells hold words. Without attention these weigh alike, so that F is 0 elsewhere."""

    def __init__(self, window: int, classes: int, dropout: float, form: BranchOptions):
        features = nn.Sequential(nn.Conv1d(HEAD[-1], CHANNELS, window), nn.ReLU(), nn.Dropout(dropout))
        attended = nn.Sequential(nn.Conv1d(CHANNELS, ATTENDED, 1), nn.ReLU()) if form.attention else None
        super().__init__(features, (CHANNELS, ATTENDED, classes), attended, nn.Conv1d, form)
        self.window = window
        if form.attention:
            self.attention = MaskedAttention(ATTENDED, nn.Conv1d)

    def look(self, x: Tensor, words: Tensor) -> BranchOutput:
        seen = cells_in(words, self.window)  # N,P
        alike = seen / seen.sum(1, keepdim=True)
        features = self.features(x)  # N,C,P
        evidence = self.classify(features)  # N,classes,P
        attention, auxiliary = alike, None
        if self.attended is not None:
            attended = self.attended(features)
            attention = self.attention.of(attended, seen)  # type: ignore[union-attr,operator]
            if self.training and self.auxiliary is not None:
                auxiliary = self.auxiliary((attended * alike.unsqueeze(1)).sum(2))
        weighed = (evidence * attention.unsqueeze(1)).sum(2)  # N,classes
        cells = float(seen.shape[1])
        logits = weighed if self.rescale else weighed / cells  # the mean of F
        return BranchOutput(evidence, attention, logits, auxiliary, cells if self.rescale else 1.0)


class AnchorNetText(anchoring.Branched):
    abilities = frozenset({"texts", "spans"})

    def __init__(
        self, classes: int, rows: int, width: int, form: BranchOptions = PAPER, dropout: Dropout = NONE
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(rows, width, PADDING)
        first, second = HEAD
        self.forgotten, self.drop = dropout.words, nn.Dropout(dropout.vectors)
        self.head = nn.Sequential(nn.Conv1d(width, first, 1), nn.Conv1d(first, second, 1))
        self.branches = nn.ModuleList(TextBranch(window, classes, dropout.features, form) for window in WINDOWS)
        for module in self.modules():
            if isinstance(module, nn.Conv1d) and module.out_channels in (*HEAD, CHANNELS, ATTENDED):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward(self, ids: Tensor) -> AnchorNetOutput:
        """N,L numbers of words; L is padded to the widest window where it is less."""
        ids = F.pad(ids, (0, max(WINDOWS[-1] - ids.shape[1], 0)), value=PADDING)
        words = ids != PADDING  # N,L
        if self.training and self.forgotten:
            ids = forget(ids, self.forgotten)
        features = self.head(self.drop(self.embedding(ids)).transpose(1, 2))  # N,64,L
        return output_of([branch.look(features, words) for branch in self.branches])  # type: ignore[operator]


def spans(out: AnchorNetOutput, label: Tensor | None = None) -> list[WordSpan]:
    """The top-1 span of each sentence among the maps of all branches, for the decided class or for the one given (N).
    Maps are compared by what a cell adds to its branch's logit: F without the rescaling."""
    chosen = out.decision.label if label is None else label
    rows = torch.arange(len(chosen), device=chosen.device)
    maps = []
    for one in out.branches:
        added = one.activation.detach()[rows, chosen] / one.scale  # N,P
        # a cell in the padding has no attention, and its 0 must not win against evidence below 0
        maps.append(added if one.attention is None else added.where(one.attention > 0, -torch.inf))
    value, place = torch.cat(maps, 1).max(1)
    borders = torch.tensor([0, *(one.shape[1] for one in maps[:-1])]).cumsum(0)  # where each branch's cells begin
    found = []
    for best, worth in zip(place.tolist(), value.tolist(), strict=True):
        branch = int((borders <= best).sum()) - 1
        start = best - int(borders[branch])
        found.append(WordSpan(branch, start, start + WINDOWS[branch], worth))
    return found


def localized(network: Network, reads: Sequence[Read], at_once: int = 256) -> list[WordSpan]:
    """The span of each text that a network of this kind finds. Its last window may run past the end of a short text."""
    found: list[WordSpan] = []
    with as_found(network), torch.no_grad():
        for start in range(0, len(reads), at_once):
            ids = torch.stack([read.ids for read in reads[start : start + at_once]])
            found += spans(network.module(ids.to(network.device)))
    return found


@dataclass(frozen=True)
class TextOptions(BranchOptions):
    words: Sequence[str] = ()  # they have the rows from 2 on of the embedding
    width: int = 300  # of the embedding
    length: int = 59  # tokens after which sentences are cut
    dropout: Sequence[float] = (0.0, 0.0, 0.0)  # of words, of their vectors, of features


@model("anchornet_text", about="three branches whose cells see 3, 5 and 7 words", can=("texts", "spans"))
def build(classes: int, options: TextOptions) -> Network:
    reading = Reading(tuple(options.words), options.length)
    module = AnchorNetText(classes, reading.rows, options.width, options, Dropout.of(options.dropout))
    return Network(module, reading, tuple(map(str, range(classes))), "head")  # type: ignore[arg-type]  # a text's
