"""Cut any module: a hook takes a layer's output out of the running network and puts another in its place."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fovea.basics import BadNetwork
from fovea.networks.cutting.choosing import POOLS, choose, stirred
from fovea.networks.cutting.heads import Head
from fovea.networks.cutting.parts import Alone, Cut, Trunk, need_space, one_map, root
from fovea.networks.cutting.replay import Replay
from fovea.networks.running import Runnable
from fovea.networks.threads import alone, heard


def hook_cut_at(network: Runnable, batch: Tensor, layer: str) -> Cut:
    result = _hook_cut(network, layer)
    with torch.no_grad():
        features = result.enter(batch, False)[0]
    need_space(layer, features, batch)
    return result


def hook_cut_anywhere(network: Runnable, batch: Tensor) -> Cut:
    """Watch every layer once and take the last that gives a map the output still reads."""
    name = _last_watched(network, network.module, batch) or _last_watched(network, stirred(network.module), batch)
    if name is None:
        way = "name one with layer=, or wrap a network that has one"
        way = "fovea.zoom tells what it reads" if network.can("glimpses") else way
        name = type(network.module).__name__
        raise BadNetwork(f"no layer of {name} gives a spatial map that its output depends on; {way}")
    return _hook_cut(network, name)


def _last_watched(network: Runnable, module: nn.Module, batch: Tensor) -> str | None:
    seen: list[tuple[str, Tensor, bool]] = []

    def keep(name: str, one: nn.Module, _: Any, out: Any) -> Tensor | None:
        if not isinstance(out, Tensor):
            return None
        seen.append((name, out, isinstance(one, nn.Linear)))
        return out.clone()  # a later in-place layer must not change what was kept

    named = ((name, one) for name, one in module.named_modules() if name and not isinstance(one, POOLS))
    # twice, so that what is the same for all pictures, as a table of positions, is not taken for a picture's
    batch = torch.cat([batch, batch]) if batch.is_floating_point() else batch
    given = batch.detach().clone().requires_grad_(batch.is_floating_point())
    with heard((one, partial(keep, name)) for name, one in named):
        output = network.read(replace(network, module=module).answer(given))
    calls = Counter(name for name, *_ in seen)
    once = {1, batch.shape[1]} if batch.ndim == 5 else {1}
    steps = [step for step in seen if calls[step[0]] in once and step[1].shape != output.shape]
    return choose(steps, output, batch, network.can("pixels"))


def _hook_cut(network: Runnable, layer: str) -> Cut:
    def enter(batch: Tensor, differentiable: bool) -> tuple[Tensor, Tensor, Head, Trunk, bool]:
        roots: list[Tensor] = []
        replay = Replay(network.module, layer)

        def reroot(call: int, value: Tensor) -> Tensor:
            torch.set_grad_enabled(True)  # from here on: the head
            replay.done = True
            roots.append(root(value, differentiable))
            return roots[-1].clone()

        with torch.set_grad_enabled(differentiable), replay.recording():
            output = _run_with(network, batch, layer, reroot)
        if not roots:
            raise BadNetwork(f"layer {layer!r} did not run for this input")
        count = len(roots)
        if count > 1 and (batch.ndim != 5 or count != batch.shape[1]):
            raise BadNetwork(f"layer {layer!r} runs {count} times for one input: name a layer that runs once")

        def head(features: Tensor) -> Tensor:
            parts = _by_call(features, len(batch), count)
            wanted = torch.is_grad_enabled()

            def put(call: int, _: Tensor) -> Tensor:
                torch.set_grad_enabled(wanted)
                return parts[call].clone()

            with torch.no_grad(), alone(network.device), replay.replaying():
                return _run_with(network, batch, layer, put)

        with torch.no_grad():
            if differentiable or count > 1 or not torch.allclose(head(roots[0]), output, rtol=1e-4, atol=1e-5):
                replay.kept.clear()
        if count == 1:
            return roots[0], output, Alone(head) if replay.kept else head, lambda: roots[0], False
        features = root(torch.stack(roots, dim=1).flatten(0, 1), differentiable)
        return features, head(features.clone()), head, lambda: features, False

    return Cut(layer, "hook", enter)


def _by_call(features: Tensor, samples: int, calls: int) -> tuple[Tensor, ...]:
    """What each call of the layer gave: features are N*T with T the calls."""
    if calls == 1:
        return (features,)
    return tuple(features.view(samples, calls, *features.shape[1:]).unbind(1))


def _run_with(network: Runnable, batch: Tensor, layer: str, put: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Run the network with the layer's output replaced, call by call."""
    calls = 0

    def hook(_: nn.Module, __: Any, out: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return put(calls - 1, one_map(out, layer))

    before = torch.is_grad_enabled()
    with alone(network.device), heard([(network.module.get_submodule(layer), hook)]):
        try:
            return network(batch)
        finally:
            torch.set_grad_enabled(before)
