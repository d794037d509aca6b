"""Grad-CAM++ (Chattopadhay et al. 2018): every cell's gradient counts by how much it is needed."""

from fovea.heatmaps import Aim, Finding, Look, method, score_of


@method(
    "gradcam++",
    about="channels weighted by their positive gradients, cell by cell",
    passes=1,
    paper="Chattopadhay et al. 2018",
)
def gradcam_plusplus(look: Look, aim: Aim) -> Finding:
    """M = ReLU(sum_k w_k A_k), with w_k = sum_p alpha_kp ReLU(g_kp), Eqs. 5 and 6, and g = dy/dA. For Y = exp(y), whose
    second and third derivatives are g^2 Y and g^3 Y, Eq. 19 is alpha_kp = g_kp^2 / (2 g_kp^2 + g_kp^3 sum_q A_kq) = 1 /
    (2 + g_kp sum_q A_kq), and nothing need be added to keep the quotient finite where gradients are small."""
    gradient = look.gradient(*score_of(aim))  # B,k,P
    needed = 2 + gradient * look.cells.sum(2, keepdim=True)  # B,k,P
    weights = (gradient.relu() / needed.where(needed != 0, 1.0)).sum(2)  # B,k
    return look.weigh(weights)
