"""The patches of all pictures as columns, small enough for tens of thousands of pictures."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fovea.evidence.audit.examined import Examined

FAR = 0.1  # of the picture's sides: patches nearer than this to one another are at the same place


@dataclass(frozen=True)
class PatchTable:
    """Pictures are P, patches M; `picture` is whose a patch is."""

    names: list[str]  # P
    truth: NDArray[np.int32]  # P  -1 where nobody knows
    answer: NDArray[np.int32]  # P
    runner_up: NDArray[np.int32]  # P
    probability: NDArray[np.float32]  # P
    margin: NDArray[np.float32]  # P
    told_by: NDArray[np.float32]  # P
    evidence_inside: NDArray[np.float32]  # P  NaN where a picture has no boxes
    without: NDArray[np.int32]  # P  -1 where it has none
    picture: NDArray[np.int32]  # M
    boxes: NDArray[np.float32]  # M,4
    centers: NDArray[np.float32]  # M,2
    evidence: NDArray[np.float32]  # M
    alone: NDArray[np.float32]  # M
    carries: NDArray[np.bool_]  # M
    needed: NDArray[np.bool_]  # M
    inside: NDArray[np.float32]  # M  NaN
    vectors: NDArray[np.float16]  # M,WIDTH  centered on the mean of all, of unit length

    @classmethod
    def of(cls, rows: Iterable[tuple[Examined, NDArray[np.float16]]]) -> "PatchTable":
        pictures, patches, names, vectors = list[tuple[float, ...]](), list[tuple[float, ...]](), list[str](), []
        for place, (one, own) in enumerate(rows):
            truth = -1 if one.truth is None else one.truth
            inside = np.nan if one.inside is None else one.inside
            about = one.probability, one.margin, one.told_by, inside
            pictures.append((truth, one.answer, one.runner_up, -1 if one.without is None else one.without, *about))
            names.append(one.name)
            vectors.append(own)
            for patch in one.patches:
                within = np.nan if patch.inside is None else patch.inside
                told = patch.evidence, patch.alone, patch.carries, patch.needed, within
                patches.append((place, *patch.box, *patch.center, *told))
        p, m = np.array(pictures, np.float32).reshape(-1, 8).T, np.array(patches, np.float32).reshape(-1, 12).T
        truth, answer, runner, without = p[:4].astype(np.int32)
        return cls(
            names=names,
            truth=truth,
            answer=answer,
            runner_up=runner,
            probability=p[4],
            margin=p[5],
            told_by=p[6],
            evidence_inside=p[7],
            without=without,
            picture=m[0].astype(np.int32),
            boxes=m[1:5].T,
            centers=m[5:7].T,
            evidence=m[7],
            alone=m[8],
            carries=m[9].astype(bool),
            needed=m[10].astype(bool),
            inside=m[11],
            vectors=_centered(vectors),
        )

    def __len__(self) -> int:
        return len(self.names)

    def of_class(self, label: int) -> NDArray[np.int64]:
        """The patches of pictures that are taken for it."""
        return np.flatnonzero(self.answer[self.picture] == label)

    def near(self, place: NDArray[np.float32]) -> NDArray[np.bool_]:
        """M: which patches lie there."""
        return np.abs(self.centers - place).max(1) < FAR


def _centered(parts: list[NDArray[np.float16]]) -> NDArray[np.float16]:
    """What all patches have in common tells none apart."""
    if not parts:
        return np.zeros((0, 1), np.float16)
    every = np.concatenate(parts).astype(np.float32)
    every -= every.mean(0)
    lengths = np.linalg.norm(every, axis=1, keepdims=True)
    return (every / np.maximum(lengths, 1e-9)).astype(np.float16)
