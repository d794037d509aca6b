"""Encoders of pictures and texts, as CLIP and SigLIP: a text is a target, and texts may be the classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fovea.basics import BadChoice
from fovea.networks.adapters import Adapted, Facade, Read, adapter
from fovea.networks.adapters.processors import from_config
from fovea.networks.threads import alone, in_eval
from fovea.pictures import Placement

PAIRS = (("get_image_features", "get_text_features"), ("encode_image", "encode_text"))  # transformers; CLIP, open_clip


@adapter("texts", about="CLIP and its like: where is 'a red bicycle'; zero-shot classes by labels=[texts]")
def texts(given: Adapted) -> Adapted | None:
    model: Any = given.module
    names = next((pair for pair in PAIRS if all(callable(getattr(model, name, None)) for name in pair)), None)
    if names is None or given.output is not None:
        return None
    asked = Texts(model, getattr(model, names[1]), given.tokenizer)
    can = {"embedding"} if given.labels is None else set[str]()
    can |= {"several"} if hasattr(model, "logit_bias") else set()
    return replace(
        given,
        module=PictureSide(model, names[0]),
        transform=given.transform or (from_config(model) if hasattr(model, "config") else None),
        output=asked.read(given.labels, ()) if given.labels is not None else None,
        abilities=given.abilities | can,
        asked=asked,
    )


class PictureSide(Facade):
    """Pictures to their embeddings."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__(model)
        self.name = name

    def forward(self, batch: Tensor) -> Tensor:
        return _vector(getattr(self.model[0], self.name)(batch))


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts as targets: how like a text's embedding a picture's is, as the model weighs it for its own probabilities:
    the cosine times `logit_scale`, and its bias where it has one."""

    model: nn.Module
    encode: Callable[..., Any]
    tokenizer: Any
    known: dict[str, Tensor] = field(default_factory=dict)
    placed = False

    def takes(self, item: Any) -> bool:
        return isinstance(item, str)

    def name(self, item: Any) -> str:
        return str(item)

    def read(self, items: Sequence[Any], placements: Sequence[Placement | None]) -> Read:
        self.embeddings(items)  # a refusal comes before pictures are read

        def read(out: Any) -> Tensor:
            scale, bias = (getattr(self.model, name, None) for name in ("logit_scale", "logit_bias"))
            likeness = normalize(out, dim=1) @ self.embeddings(items).to(out).T  # N,K
            likeness = likeness if scale is None else likeness * scale.detach().exp()
            return likeness if bias is None else likeness + bias.detach()

        return read

    def embeddings(self, items: Sequence[str]) -> Tensor:
        """Of unit length, K,D."""
        if self.tokenizer is None:
            mend = "fovea.wrap(model, processor), or fovea.wrap(model, transform, tokenizer=tokenizer)"
            raise BadChoice(f"a text such as {items[0]!r} needs the model's tokenizer: {mend}")
        parts = list(self.model.modules())
        device = next(self.model.parameters()).device
        for text in dict.fromkeys(items):
            if text not in self.known:
                with alone(device), in_eval(parts), torch.no_grad():
                    self.known[text] = normalize(_vector(self._encoded(text, device)), dim=1).cpu()
        return torch.cat([self.known[text] for text in items])

    def _encoded(self, text: str, device: torch.device) -> Any:
        if not hasattr(self.tokenizer, "model_max_length"):  # open_clip's
            return self.encode(self.tokenizer([text]).to(device))
        config: Any = getattr(self.model.config, "text_config", self.model.config)
        longest = min(int(getattr(config, "max_position_embeddings", 77)), self.tokenizer.model_max_length)
        padding = "max_length" if getattr(self.tokenizer, "pad_token", None) is not None else False
        how = {"padding": padding, "max_length": longest, "truncation": True, "return_attention_mask": True}
        words = self.tokenizer([text], return_tensors="pt", **how)
        taken = ("input_ids",) if hasattr(self.model, "logit_bias") else ("input_ids", "attention_mask")  # as SigLIP's
        return self.encode(**{name: words[name].to(device) for name in taken})


def _vector(out: Any) -> Tensor:
    """An embedding as models return it."""
    return getattr(out, "pooler_output", out)
