"""Eigen-CAM (Muhammad and Yeasin 2020): the first principal component of the features, whatever the class."""

from dataclasses import dataclass

import torch

from fovea.heatmaps import Aim, Finding, Look, method


@method(
    "eigencam",
    about="the first principal component of the features, for no class",
    passes=1,
    paper="Muhammad and Yeasin 2020",
    oblivious=True,
)
@dataclass(frozen=True)
class EigenCAM:
    """M = ReLU(A v), with A the features of the cells (P,k) and v their first right singular vector.

    The features are centered first, as for principal components; else v is close to the mean of the cells, and the map
    to how strong each cell is (`centered=False`, as the paper's formula is printed). A singular vector has no sign of
    its own: here it points to where the features are strong, sum_p M_p |A_p| >= 0, so that the map shows what is active
    rather than, by chance, what is not."""

    centered: bool = True
    name = "eigencam"
    oblivious = True

    def __call__(self, look: Look, aim: Aim) -> Finding:
        cells = look.cells.float() if look.cells.dtype in (torch.float16, torch.bfloat16) else look.cells  # B,k,P
        lost = ~cells.isfinite().flatten(1).all(1)  # of which there is no decomposition
        cells = torch.where(lost.view(-1, 1, 1), 0.0, cells)
        features = cells - cells.mean(2, keepdim=True) if self.centered else cells
        _, values, vectors = torch.linalg.svd(features, full_matrices=False)
        raw = values[:, :1] * vectors[:, 0]  # B,P: the cells' coordinate along v
        strong = (raw * cells.norm(dim=1)).sum(1, keepdim=True)  # B,1
        raw = torch.where(strong < 0, -raw, raw).masked_fill(lost.unsqueeze(1), torch.nan).to(look.cells.dtype)
        return Finding(raw.relu(), raw)
