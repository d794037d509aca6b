"""LayerCAM (Jiang et al. 2021): gradients weigh each cell on its own, and only those that speak for the target."""

from fovea.heatmaps import Aim, Finding, Look, method, score_of


@method(
    "layercam",
    about="each cell's features times their own gradient where it is positive",
    passes=1,
    paper="Jiang et al. 2021",
)
def layercam(look: Look, aim: Aim) -> Finding:
    """M(p) = ReLU(sum_k ReLU(g_kp) A_kp), with g = dy/dA, Eqs. 4 to 6: sharp at early layers, too."""
    raw = (look.gradient(*score_of(aim)).relu() * look.cells).sum(1)  # B,P
    return Finding(raw.relu(), raw)
