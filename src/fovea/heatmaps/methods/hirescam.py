"""HiResCAM (Draelos and Carin 2020): what each cell really adds, no gradient averaged over cells."""

from fovea.heatmaps import Aim, Finding, Look, method, score_of


@method("hirescam", about="each cell's features times their own gradient", passes=1, paper="Draelos and Carin 2020")
def hirescam(look: Look, aim: Aim) -> Finding:
    """M(p) = ReLU(sum_k g_kp A_kp), with g = dy/dA. Of a head that is linear in the cells the sum over p, before the
    ReLU, is the score without its bias; with average pooling it is CAM."""
    raw = look.slope(*score_of(aim))  # B,P
    return Finding(raw.relu(), raw)
