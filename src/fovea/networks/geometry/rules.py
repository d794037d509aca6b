"""How far the results of one operation look, given how far its arguments do.

A rule works on one array: a number for each element of a tensor, of which a larger one sees more, and -inf for nothing.
Arrays are as wide as their tensor, but an axis along which nothing changes is expanded and takes no memory."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

NOTHING = -math.inf


@dataclass(frozen=True)
class Call:
    """One operation: its name without the underscore of in-place variants, its arguments and the tensors it gave."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]  # less what it writes to
    named: dict[str, Any]  # every argument by name, defaults included
    tensors: list[Tensor]  # among the arguments
    results: list[Tensor]
    beyond: bool = False  # follow padding as if the map went on, not as nothing

    def again(self, *args: Any) -> Any:
        """The same operation, out of place, on other arguments."""
        return getattr(torch.ops.aten, self.name)(*args, **self.kwargs)

    def several(self, name: str, axes: int, default: int) -> list[int]:
        """An argument for each axis: given as one number, as a list, or left out."""
        value = self.named.get(name)
        value = [value] if isinstance(value, int) else list(value or [default])
        return value * axes if len(value) == 1 else value


See = Callable[[Tensor], Tensor]
Rule = Callable[[Call, Tensor], Tensor | Sequence[Tensor]]  # of the first tensor; others are taken to reach all results
Joint = Callable[[Call, See], Tensor | Sequence[Tensor]]  # of all tensors


def thin(array: Tensor) -> Tensor:
    """Without the copies along axes where nothing changes."""
    return array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.stride())]


def widest(array: Tensor) -> Tensor:
    """The one number that sees as much as all of them."""
    return thin(array).amax() if array.numel() else array.new_tensor(NOTHING)


def fit(array: Tensor, shape: Sequence[int]) -> Tensor:
    """Spread over a result's shape; where the shapes do not tell how, every element gets the widest."""
    spare = len(shape) - array.ndim
    if spare < 0 or any(own not in (1, n) for own, n in zip(array.shape, shape[spare:], strict=True)):
        array = widest(array)
    return array.expand(shape)


def join(first: Tensor, *others: Tensor) -> Tensor:
    return reduce(torch.maximum, others, first)


def over(array: Tensor, axes: Sequence[int]) -> Tensor:
    """Every element along these axes sees what any of them sees."""
    return thin(array).amax(tuple(axes), keepdim=True) if axes else array


def padded(array: Tensor, left: int, right: int, beyond: bool) -> Tensor:
    """More (or, below 0, fewer) elements on the last axis: blank ones, or ones that go on as those at the border do."""
    count = array.shape[-1]
    if not beyond or count < 2:
        return F.pad(array, (left, right), value=NOTHING)
    at = torch.arange(-left, count + right, device=array.device)
    inside = at.clamp(0, count - 1)
    steps = torch.where(at < 0, array[..., 1:2] - array[..., :1], array[..., -1:] - array[..., -2:-1])
    return array[..., inside] + (at - inside) * steps.nan_to_num(0, 0, 0)


def slid(
    array: Tensor, axis: int, count: int, kernel: int, stride: int, left: int, dilation: int, beyond: bool
) -> Tensor:
    """A window moved along an axis, `count` times."""
    moved = array.movedim(axis, -1)
    length = (count - 1) * stride + 1
    moved = padded(moved, left, length + (kernel - 1) * dilation - left - moved.shape[-1], beyond)
    places = (slice(first, first + length, stride) for first in range(0, kernel * dilation, dilation))
    return join(*(moved[..., place] for place in places)).movedim(-1, axis)


def convolution(call: Call, array: Tensor) -> Tensor:
    (result,), weight, groups = call.results, call.named["weight"], call.named["groups"]
    array = array[:, :1] if array.stride(1) == 0 else torch.unflatten(array, 1, (groups, -1)).amax(2)  # N,groups,*space
    if array.shape[1] > 1:
        array = array.repeat_interleave(result.shape[1] // groups, 1)
    axes = result.ndim - 2
    strides, paddings, dilations = (call.several(name, axes, 1) for name in ("stride", "padding", "dilation"))
    settings = zip(weight.shape[2:], strides, paddings, dilations, strict=True)
    for i, (kernel, stride, padding, dilation) in enumerate(settings):
        beyond = call.beyond
        if call.named["transposed"]:  # a convolution of the map with blanks between its cells
            array = blanks_between(array, 2 + i, stride)
            stride, padding, beyond = 1, dilation * (kernel - 1) - padding, False
        array = slid(array, 2 + i, result.shape[2 + i], kernel, stride, padding, dilation, beyond)
    return array


def blanks_between(array: Tensor, axis: int, stride: int) -> Tensor:
    wide = list(array.shape)
    wide[axis] = (array.shape[axis] - 1) * stride + 1
    spread = array.new_full(wide, NOTHING)
    spread.movedim(axis, -1)[..., ::stride] = array.movedim(axis, -1)
    return spread


def dimensions(call: Call) -> int:
    """The 2 of max_pool2d."""
    return next(int(letter) for letter in call.name if letter.isdigit())


def pooling(call: Call, array: Tensor) -> Tensor:
    axes, result = dimensions(call), call.results[0]
    kernels = call.several("kernel_size", axes, 1)
    strides = call.several("stride", axes, 0)
    paddings, dilations = call.several("padding", axes, 0), call.several("dilation", axes, 1)
    array = array.narrow(-axes - 1, 0, 1) if array.stride(-axes - 1) == 0 else array  # channels alike
    settings = zip(range(-axes, 0), kernels, strides, paddings, dilations, strict=True)
    for axis, kernel, stride, padding, dilation in settings:
        array = slid(array, axis, result.shape[axis], kernel, stride or kernel, padding, dilation, call.beyond)
    return array


def adaptive_pooling(call: Call, array: Tensor) -> Tensor:
    axes = dimensions(call)
    pool: Callable[[Tensor, Sequence[int]], Tensor] = getattr(F, f"adaptive_max_pool{axes}d")
    return pool(array, call.results[0].shape[-axes:])


def linear_upsampling(call: Call, array: Tensor) -> Tensor:
    """Each cell mixes the two that it lies between: found by sending the cells' own numbers through."""
    first, *rest = call.args
    for axis in range(2, first.ndim):
        numbers = torch.arange(float(first.shape[axis]), device=first.device)
        ramp = numbers.view(-1, *[1] * (first.ndim - 1 - axis)).expand(1, 1, *first.shape[2:])
        at = call.again(ramp, *rest)[(0, 0, *[slice(None) if one == axis else 0 for one in range(2, first.ndim)])]
        near = 1e-3  # rounding may give a neighbor a tiny share
        last = first.shape[axis] - 1
        low, high = (at - near).floor().clamp(0, last).long(), (at + near).ceil().clamp(0, last).long()
        array = join(array.index_select(axis, low), array.index_select(axis, high))
    return array


def constant_padding(call: Call, array: Tensor) -> Tensor:
    pairs = list(zip(call.named["pad"][::2], call.named["pad"][1::2], strict=True))
    for i, (left, right) in enumerate(pairs):  # the last axis first
        array = padded(array.movedim(-1 - i, -1), left, right, call.beyond).movedim(-1, -1 - i)
    return array


def reduction(call: Call, array: Tensor) -> Tensor:
    given = call.named.get("dim")
    axes = list(range(array.ndim)) if given is None or given == [] else [given] if isinstance(given, int) else given
    wide = over(array, axes)
    return wide if call.results[0].ndim == array.ndim else wide.squeeze(tuple(axes))


def batch_norm(call: Call, array: Tensor) -> Tensor:
    """With running statistics every element for itself; with the batch's, a channel at once."""
    own = call.named.get("training", call.name.endswith("batch_norm_legit_no_stats"))
    return over(array, [axis for axis in range(array.ndim) if axis != 1]) if own else thin(array)


def embedding(call: Call, see: See) -> Tensor:
    weight, indices = call.tensors
    return join(thin(see(indices)).unsqueeze(-1), widest(see(weight)))


def moving(call: Call, array: Tensor) -> Tensor | Sequence[Tensor]:
    return call.again(array, *call.args[1:])


def pointwise(call: Call, see: See) -> Tensor:
    return join(*(thin(see(tensor)) for tensor in call.tensors))


def product(call: Call, see: See) -> Tensor:
    """A matrix product, perhaps added to something: a row of the first factor meets a column of the second."""
    *added, rows, columns = call.tensors
    return join(over(see(rows), [-1]), over(see(columns), [-2]), *(thin(see(one)) for one in added))


def attention(call: Call, see: See) -> Tensor:
    query, *others = call.tensors  # N,heads,L,d
    keys, rest = others[:2], others[2:]
    wide = [*(over(see(key), [1, 2, 3]) for key in keys), *(widest(see(one)) for one in rest)]
    return join(over(see(query), [-1]), *wide)


def fresh(call: Call, see: See) -> Tensor:
    return torch.full((), NOTHING, device=call.results[0].device)


def _named(rule: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
    **_named(convolution, "convolution _convolution"),
    **_named(pooling, "max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d"),
    **_named(adaptive_pooling, "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d"),
    **_named(linear_upsampling, "upsample_linear1d upsample_bilinear2d upsample_trilinear3d"),
    **_named(constant_padding, "constant_pad_nd"),
    **_named(reduction, "mean sum prod amax amin max min aminmax argmax argmin var var_mean std std_mean any all"),
    **_named(reduction, "logsumexp linalg_vector_norm norm _softmax _log_softmax _safe_softmax cumsum cumprod"),
    **_named(reduction, "sort topk median mode glu"),
    **_named(batch_norm, "native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit"),
    **_named(batch_norm, "_native_batch_norm_legit_no_training _native_batch_norm_legit_no_stats"),
    **_named(
        lambda call, array: over(array, range(-len(call.named["normalized_shape"]), 0)),
        "native_layer_norm _fused_rms_norm",
    ),
    "native_group_norm": lambda call, array: over(array, range(1, array.ndim)),
    **_named(lambda call, array: array.reshape(call.results[0].shape), "view _unsafe_view reshape _reshape_alias"),
    **_named(
        moving, "permute transpose t slice select unsqueeze squeeze expand split split_with_sizes unbind roll flip"
    ),
    **_named(moving, "unsafe_split unsafe_split_with_sizes repeat unfold diagonal index index_select gather"),
    **_named(moving, "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle"),
    **{f"{kind}_pad{n}d": moving for kind in ("reflection", "replication") for n in (1, 2, 3)},
    **{f"{kind}{n}d": moving for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)},
}
JOINT: dict[str, Joint] = {
    **_named(
        lambda call, see: call.again(*tree_map_only(Tensor, see, call.args)), "cat stack slice_scatter select_scatter"
    ),
    **_named(product, "mm bmm addmm baddbmm"),
    **_named(embedding, "embedding"),
    **_named(pointwise, "hardswish _prelu_kernel copy fill _to_copy detach alias lift_fresh floor_divide"),
    **_named(fresh, "zeros_like ones_like empty_like full_like rand_like randn_like zero"),
    **_named(fresh, "new_zeros new_ones new_empty new_full new_empty_strided"),
    **_named(attention, "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu"),
    **_named(attention, "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"),
}
