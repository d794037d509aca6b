"""TNet over a trained classifier as it is: overview and glimpses are averaged before the classifier's own last layer.

All of its classes stay, so only where to look is left to learn.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from fovea.basics import BadChoice
from fovea.models.locations import ByExcitation, Grid
from fovea.models.tnet import TimmExtractor, TimmOptions, TNet, maps_of
from fovea.models.trunks import prepare_of
from fovea.networks import Network, borrowed_of, hash_of, model


class Unplaced(nn.Module):
    """No place and scale in the vectors: a classifier's last layer has learned nothing of them."""

    def forward(self, vector: Tensor, position: Tensor, level: int) -> Tensor:
        return vector


class TNetOfClassifier(TNet):
    """With `frozen`, the classifier is as its name has it, in training too, and a weights file does without it."""

    def __init__(
        self, extractor: TimmExtractor, location: ByExcitation, last: nn.Linear, options: "ClassifierOptions"
    ) -> None:
        super().__init__(extractor, location, Unplaced(), last.out_features, options)
        self.classifier, self.frozen = last, options.frozen
        self.borrowed = ("extractor.module.", "classifier.") if options.frozen else ()
        self.lent = hash_of(borrowed_of(self, self.state_dict())[0]) if options.frozen else ""
        extractor.requires_grad_(not options.frozen)
        last.requires_grad_(not options.frozen)

    def train(self, mode: bool = True) -> "TNetOfClassifier":
        super().train(mode)
        if self.frozen:
            self.extractor.eval()
        return self


@dataclass(frozen=True)
class ClassifierOptions(TimmOptions):
    norms: str = "shared"
    frozen: bool = False


@model(
    "tnet-classifier",
    about="TNet over a trained classifier of timm's, its features averaged before its own last layer",
    over="classifier",
    can=("glimpses", "steps", "controls"),
)
def build(trained: Network, options: ClassifierOptions) -> Network:
    stage, prepare = maps_of(trained, options.stage), prepare_of(trained)
    base = prepare.size[0] if options.base is None else options.base
    last = trained.module.get_classifier()  # type: ignore[operator]
    if not isinstance(last, nn.Linear):
        raise BadChoice(f"{trained.name or 'this network'} does not end in a linear layer, before which to average")
    trained.module.reset_classifier(0)  # type: ignore[operator]
    extractor = TimmExtractor(trained.module, base, stage, options.levels if options.norms == "level" else 1)
    location = ByExcitation(extractor.channels, Grid(options.grid, options.fraction), None, options.sharpness)
    net = TNetOfClassifier(extractor, location, last, options)
    return Network(net, options.squashing(base, prepare), trained.labels)
