"""Grad-CAM for classes and embeddings, and its absolute form (L2-CAF paper, Eqs. 4 to 7)."""

from dataclasses import dataclass

from fovea.heatmaps import Aim, Finding, Look, method, score_of


@method("gradcam", about="channels weighted by their mean gradient", passes=1, paper="Selvaraju et al. 2017")
@method(
    "gradcam-abs",
    about="gradcam with evidence against shown too",
    options={"absolute": True},
    passes=1,
    paper="Taha et al. 2020",
)
@dataclass(frozen=True)
class GradCAM:
    """M = ReLU(sum_k alpha_k A_k), Eq. 4, with alpha_k the mean of dy/dA_k over the cells, Eq. 5. For an embedding
    dy/dA is the gradient of its sum, Eq. 6. `absolute` takes |.| in place of the ReLU, Eq. 7."""

    absolute: bool = False

    @property
    def name(self) -> str:
        return "gradcam-abs" if self.absolute else "gradcam"

    def __call__(self, look: Look, aim: Aim) -> Finding:
        raw = look.channels_weighted(*score_of(aim))  # B,P
        return Finding(raw.abs() if self.absolute else raw.relu(), raw)
