"""Programs as files: ONNX in three precisions, torch.export's own, and compiled by AOTInductor."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from fovea.basics import BadChoice, BadNetwork, FoveaError

FORMATS = {
    ".onnx": "ONNX, for onnxruntime, browsers and compilers of others",
    ".aoti.pt2": "compiled by AOTInductor for this kind of machine",
    ".pt2": "torch.export's own",
}
PRECISIONS = {
    "fp32": "as the network is",
    "fp16": "weights and features in half precision; inputs, outputs and the map's last steps in single",
    "int8": "weights and features of convolutions and products in bytes",
}
NEEDS = "graphs are written by packages that are not installed: pip install 'fovea[export]'"
LARGEST = 2**31 - 2**24  # bytes of weights in one file of ONNX
WIDE = ("MatMul", "Gemm", "Conv", "Transpose")  # of the map's part, in half precision as well
Feed = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Names:
    """What a program is given and gives."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    about: Mapping[str, Any]

    @property
    def text(self) -> str:
        return json.dumps(self.about, ensure_ascii=False)


@contextmanager
def needed() -> Iterator[None]:
    """Packages of the extra."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "fovea":
            raise
        raise FoveaError(NEEDS) from None


def format_of(out: Path) -> str:
    """The kind of a file, once what writes it is known to be installed."""
    kind = next((end for end in FORMATS if out.name.lower().endswith(end) and out.name.lower() != end), None)
    if kind is None:
        raise BadChoice(f"a graph is written to a file that ends in {', '.join(FORMATS)}; got {out}")
    if kind == ".onnx":
        with needed():
            for package in ("onnx", "onnxscript", "onnxruntime"):
                import_module(package)
    return kind


def write(
    program: ExportedProgram, out: Path, kind: str, names: Names, precision: str = "fp32", feeds: Sequence[Feed] = ()
) -> None:
    """A program as a file of a kind of FORMATS."""
    if kind == ".onnx":
        _write_onnx(program, out, names, precision, feeds)
    elif kind == ".pt2":
        torch.export.save(program, out, extra_files={"fovea.json": names.text})
    else:
        configs = {"aot_inductor.metadata": {"fovea": names.text}}
        torch._inductor.aoti_compile_and_package(program, package_path=str(out), inductor_configs=configs)


def _write_onnx(program: ExportedProgram, out: Path, names: Names, precision: str, feeds: Sequence[Feed]) -> None:
    size = sum(value.numel() * value.element_size() for value in program.state_dict.values())
    size += sum(value.numel() * value.element_size() for value in program.constants.values() if hasattr(value, "numel"))
    if size > LARGEST:
        raise BadNetwork(
            f"its weights take {size / 2**30:.1f} GB, and a file of ONNX holds less than 2: write a .pt2 instead"
        )
    with needed():
        import onnx
        import onnx_ir as ir

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=names.inputs, output_names=names.outputs
        )
    assert made is not None
    _tidy(made.model)
    made.model.metadata_props["fovea"] = names.text
    made.model.producer_name = "fovea"
    model = ir.to_proto(made.model)
    if precision == "fp16":
        model = _half(model)
    if precision == "int8":
        _in_bytes(model, out, feeds)
    else:
        onnx.save(model, out)


def _tidy(model: Any) -> None:
    """No traces of where it was made; axes called N, H and W, and those of the heatmap h and w."""
    graph = model.graph
    axes = "NHWC" if graph.inputs[0].name == "pixels" else "NCHW"
    called = {str(size): name for size, name in zip(graph.inputs[0].shape, axes, strict=True)}
    for node in graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
    for value in (
        *graph.inputs,
        *graph.initializers.values(),
        *(out for node in graph.all_nodes() for out in node.outputs),
    ):
        value.metadata_props.clear()
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int):
                value.shape[axis] = called.get(str(size), "Nhw"[axis] if value.name == "heatmap" else None)
    model.metadata_props.clear()
    graph.metadata_props.clear()


def _of_the_map(model: Any) -> list[Any]:
    """Nodes that logits do not depend on."""
    makers = {name: node for node in model.graph.node for name in node.output}
    waiting, found = [model.graph.output[0].name], set[str]()
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            waiting += node.input
    return [node for node in model.graph.node if node.name not in found]


def _half(model: Any) -> Any:
    with needed():
        from onnxruntime.transformers.float16 import convert_float_to_float16

    exact = [node.name for node in _of_the_map(model) if node.op_type not in WIDE]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights that are too small or too large
        half = convert_float_to_float16(model, keep_io_types=True, node_block_list=exact)
    _join(half.graph, set(exact))
    return half


def _join(graph: Any, exact: set[str]) -> None:
    """Between nodes that stay in single precision nothing is cast there and back; and a cast is there once."""
    makers = dict[str, Any]()
    for node in graph.node:
        makers.setdefault(node.output[0], node)
    instead = dict[str, str]()
    for name, node in makers.items():
        before = makers.get(node.input[0]) if node.op_type == "Cast" else None
        source = makers.get(before.input[0]) if before is not None and before.op_type == "Cast" else None
        if before is not None and source is not None and source.name in exact and not {before.name, node.name} & exact:
            instead[name] = before.input[0]
    kept = list(makers.values())
    for node in kept:
        node.input[:] = [instead.get(name, name) for name in node.input]
    del graph.node[:]
    graph.node.extend(kept)


def _in_bytes(model: Any, out: Path, feeds: Sequence[Feed]) -> None:
    """Features of convolutions are given ranges by pictures; products of transformers find theirs as they run."""
    with needed():
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

    others = [node.name for node in _of_the_map(model)]
    if sum(node.op_type == "Conv" for node in model.graph.node) < 3:
        options = {"op_types_to_quantize": ["MatMul", "Gemm"], "nodes_to_exclude": others}
        quantize_dynamic(model, out, per_channel=True, weight_type=QuantType.QInt8, **options)
        return
    if not feeds:
        raise BadChoice(
            "int8 takes its range of values from pictures: name some, calibrate='photos/' (--calibrate photos/)"
        )
    quantize_static(
        model,
        out,
        _Feeds(feeds),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        op_types_to_quantize=["Conv", "Add", "Clip", "Relu", "Gemm"],
        nodes_to_exclude=others,
    )


class _Feeds:
    """Batches, as onnxruntime asks for them."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self.left = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self.left, None)


def session(path: Path, threads: int = 0) -> Any:
    """An ONNX file, to run."""
    with needed():
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def ran(path: Path, kind: str, feed: Mapping[str, torch.Tensor]) -> list[NDArray[Any]]:
    """What a file gives for tensors, whatever its kind."""
    if kind == ".onnx":
        return list(session(path).run(None, {name: value.numpy() for name, value in feed.items()}))
    if kind == ".pt2":
        given = torch.export.load(path).module()(*feed.values())
    else:
        given = torch._inductor.aoti_load_package(str(path))(*feed.values())
    return [np.asarray(value.detach().numpy()) for value in given]
