"""XGrad-CAM (Fu et al. 2020): Grad-CAM with the weights that its own axioms ask for."""

from fovea.heatmaps import Aim, Finding, Look, method, score_of


@method("xgradcam", about="channels weighted by their gradient where they are active", passes=1, paper="Fu et al. 2020")
def xgradcam(look: Look, aim: Aim) -> Finding:
    """M = ReLU(sum_k w_k A_k), with w_k = sum_p A_kp g_kp / sum_p A_kp and g = dy/dA (Eq. 8): the mean gradient, cells
    counting as they are active. Where a channel's gradient is the same in every cell, as before average pooling, that
    is Grad-CAM's weight."""
    cells = look.cells  # B,k,P
    active = cells.sum(2)  # B,k
    pulled = (cells * look.gradient(*score_of(aim))).sum(2)  # B,k
    return look.weigh(pulled / active.where(active != 0, 1.0))
