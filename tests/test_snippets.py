"""README and docs do what they say: every command and every block of theirs runs here, in the order of its page.

What is on a page is found by itself. Words that the reader has to fill in, what makes a line quick, and what cannot run
here stand in the tables below; a row that no page needs any more fails."""

import ast
import configparser
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, redirect_stderr, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from PIL import Image
from torch import nn

import fovea
from commands import all_commands
from fovea.basics import Registry
from fovea.cli import app
from fovea.cli.commands import here_is_importable
from fovea.cli.ending import run as ran
from fovea.data import open_data, photograph
from fovea.data.options import parsed
from fovea.pictures import Prepare
from fovea.training.recipe import check, read
from made_docs import PAGES, ROOT, Shop, Snippet, snippets

ALL = [snippet for page in PAGES for snippet in snippets(page)]
COMMANDS = dict(all_commands(typer.main.get_command(app)))  # now, before other tests declare measures of their own
SERVICE = "http://127.0.0.1:8000"  # the address in the docs
FEW = 8  # pictures of a training, where the data has more

# Each row: a pattern that finds lines or blocks, and what is done about them.
ELSEWHERE: dict[str, tuple[str, str]] = {  # cannot run here: why, and the test that does the same in small
    r"^make (demo|test|site)": ("the whole of it", "tests/cli/test_demo.py"),
    r"^pip install": ("needs a package index", "tests/test_wheel.py"),
    r"s3://": ("needs a bucket", "tests/jobs/test_job.py"),
    r"--address (auto|ray://)": ("needs a cluster of several machines", "tests/jobs/test_cluster.py"),
    r"^fovea serve --engine ray": ("starts a cluster", "tests/serve/test_cluster.py"),
    r"^torchrun": ("needs several processes, or machines", "tests/training/test_together.py"),
    r"^serve deploy": ("needs a cluster that runs", "tests/serve/test_cluster.py"),
    r"^docker": ("needs an image from a registry", "tests/serve/test_stopping.py"),
    r"^row(\(\)| )": ("trains three networks", "tests/training/test_judges_script.py"),
    r"^bash recipes/zoom.sh (jobs|measure)": ("trains for hours", "tests/training/test_zoom_script.py"),
    r"--name read3": ("starts from a network of the rows above it", "tests/training/test_judges_script.py"),
    r"^fovea measure compatibility --json": ("runs every architecture", "tests/measures/test_compatibility.py"),
}
SLOW = (  # minutes, not seconds
    r"--engine ray",
    r"^fovea bench ",
    r"^fovea measure zoom .*--until",
    r"^fovea measure (text|robustness|patch-attack|faithfulness|patch-curves|trust)\b",
)
SMALLER = {"resnet50": "test_resnet", "resnet18": "test_resnet"}  # with random weights, as of all hubs
QUICKER: dict[str, str] = {  # words that are added
    r"^fovea measure text": "--seeds 2",
    r"^fovea train ": "--set epochs=1",
    r"recipes/embedding\S*-cub100": "--set batch=8",  # four classes
    r"^fovea pyramid ": "--fresh",  # the file is there, for other lines
}
REWRITTEN: dict[str, str] = {
    r"(fovea export --net) efficientnet_lite0": r"\1 timm/test_efficientnet",
    r"fovea\.export\(net\b": 'fovea.export("timm/test_efficientnet"',
    r'(fovea\.pyramid\("huge\.png", "huge\.tif",)': r"\1 fresh=True,",
    r'device="cuda"': 'device="cpu"',
    r'\["epochs=3"\]': '["epochs=1", "data.train=megapixel:count=8", "data.test=megapixel:count=8,split=test"]',
}


class Embedding(nn.Sequential):
    """A reader's own, which ends in numbers that are no classes."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 4, 3, 8), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Classifier(nn.Sequential):
    """Likewise, with layers that are called as in many networks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1, self.relu, self.layer3 = nn.Conv2d(3, 4, 3, 8), nn.ReLU(), nn.Conv2d(4, 4, 3)
        self.pool, self.flat, self.fc = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)


THEIRS: dict[str, Callable[[], Any]] = {  # names that a block leaves to its reader
    "fovea": lambda: fovea,
    "my_module": lambda: Classifier().eval(),
    "my_embedding": lambda: Embedding().eval(),
    "my_transform": lambda: Prepare((64, 64)),
    "my_labels": lambda: ["tabby", "lynx", "fox"],
    "batch": lambda: torch.zeros(1, 3, 224, 224),
    "image": lambda: Image.open(photograph("cat")),
    "net": lambda: fovea.load("efficientnet_lite0"),
    "data": lambda: open_data("cub100:split=train"),
    "Path": lambda: Path,
}


def rows(table: Mapping[str, Any] | tuple[str, ...], snippet: Snippet) -> list[str]:
    return [pattern for pattern in table if re.search(pattern, snippet.words, re.M)]


def rewritten(snippet: Snippet) -> str:
    text = snippet.text
    for pattern, new in REWRITTEN.items():
        text = re.sub(pattern, new, text)
    return text


@dataclass
class Page:
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    ran: set[Snippet] = field(default_factory=set)


class Desk:
    """Where pages are worked through: each in a folder and with names of its own."""

    def __init__(self, shop: Shop, make_folder: Callable[[str], Path]) -> None:
        self.shop, self.make_folder = shop, make_folder
        self.pages: dict[str, Page] = {}
        self.open: str | None = None
        self.service: tuple[subprocess.Popen[str], str] | None = None
        self.found = registries()
        self.leave = state(self.found)

    def turn_to(self, name: str) -> Page:
        """A page, whose folder is where files of another are not found any more."""
        if name not in self.pages:
            folder = self.make_folder(name)
            self.shop.page(folder, [one for one in ALL if one.page == name])
            self.pages[name] = Page(folder)
        if self.open != name:
            self.close_page()
            self.open = name
        return self.pages[name]

    def run(self, snippet: Snippet) -> None:
        page = self.turn_to(snippet.page)
        os.chdir(page.folder)
        page.ran.add(snippet)
        if snippet.language == "command":
            self.command(snippet)
        elif snippet.language == "python":
            self.python(snippet, page)
        else:
            OTHERS[snippet.language](snippet)

    def command(self, snippet: Snippet) -> None:
        program = snippet.text.split()[0]
        if program == "fovea":
            words = shlex.split(rewritten(snippet), comments=True)[1:]
            if words[0] == "serve":
                process, _ = serving(words[1:])
                stop(process)
                return
            words = [self.at_service(word) for word in smaller(words, snippet)]
            assert ran(app, ["--debug", *words]) == 0, f"fovea {shlex.join(words)}"
            return
        text = self.at_service(snippet.text)
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        if program == "curl":
            assert "-f" in text or not done.stdout.startswith('{"error'), done.stdout

    def python(self, snippet: Snippet, page: Page) -> None:
        text = self.at_service(rewritten(snippet))
        if name := file_of(text):
            Path(name).write_text(text)
            import_module(Path(name).stem)
            return
        file = str(ROOT / snippet.page)
        tree = ast.parse(text, file)
        ast.increment_lineno(tree, snippet.line - 1)
        for wanted in sorted(asked_for(tree) & THEIRS.keys() - page.names.keys()):
            page.names[wanted] = THEIRS[wanted]()
        exec(compile(tree, file, "exec"), page.names)

    def at_service(self, text: str) -> str:
        """With the address of one that runs, where it is asked."""
        if SERVICE not in text:
            return text
        if self.service is None:
            self.service = serving([])
        return text.replace(SERVICE, self.service[1])

    def close_page(self) -> None:
        if self.open is not None:
            self.leave(self.pages[self.open].folder)

    def close(self) -> None:
        self.close_page()
        if self.service is not None:
            stop(self.service[0])


def registries() -> list[Registry[Any]]:
    import fovea.data.layouts
    import fovea.heatmaps.methods
    import fovea.jobs.tasks
    import fovea.measures.registry
    import fovea.networks.registry
    import fovea.patches.sources
    import fovea.training.losses

    return [
        fovea.data.layouts.layout, fovea.heatmaps.methods.method, fovea.jobs.tasks.task,
        fovea.measures.registry.measure, fovea.networks.registry.model, fovea.patches.sources.patch_source,
        fovea.training.losses.loss,
    ]  # fmt: skip


def state(found: list[Registry[Any]]) -> Callable[[Path], None]:
    """What takes away again whatever files of a page's folder declare, and their modules."""
    given = [dict(registry._given) for registry in found]

    def leave(folder: Path) -> None:
        for registry, before in zip(found, given, strict=True):
            for name, (entry, _) in [*registry._given.items()]:
                if name not in before and not entry.module.startswith("fovea."):
                    del registry._given[name]
                    registry._made.pop(name, None)
        for name, module in [*sys.modules.items()]:
            if Path(getattr(module, "__file__", None) or "/").is_relative_to(folder):
                del sys.modules[name]

    return leave


def serving(options: list[str]) -> tuple[subprocess.Popen[str], str]:
    """A service that answers, at a port that is free."""
    words = [sys.executable, "-m", "fovea", "serve", *options, "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = next((match for line in process.stdout if (match := re.search(r"http://[\w.:]+", line))), None)
    assert found is not None, "it says no address"
    return process, found[0]


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(60) in (0, 143)
    finally:
        process.kill()


def file_of(text: str) -> str | None:
    """The file that a block's first line says it is."""
    found = re.match(r"# ([\w.]+\.(py|toml|yaml))\b", text)
    return found and found[1]


def asked_for(tree: ast.AST) -> set[str]:
    """Names that a block reads, less those that it gives a value first."""
    stored: set[str] = set()
    wanted: set[str] = set()
    for statement in ast.iter_child_nodes(tree):
        nodes = [*ast.walk(statement)]
        wanted |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - stored
        stored |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        stored |= {(n.asname or n.name).split(".")[0] for n in nodes if isinstance(n, ast.alias)}
    return wanted


def smaller(words: list[str], snippet: Snippet) -> list[str]:
    """The same command on a few pictures."""
    words = [few(word) if re.search(r"\bcount=\d", word) else word for word in words]
    words += [word for pattern in rows(QUICKER, snippet) for word in shlex.split(QUICKER[pattern])]
    recipe = next((word for word in words if word.endswith(".toml")), None)
    if words[0] == "train" and not {"--resume", "--fresh"} & {*words}:
        words.append("--fresh")
    if words[0] == "train" and recipe:
        data = read(recipe, [word for before, word in pairwise(words) if before == "--set"]).data
        for key in ("train", "validation", "test"):
            if given := getattr(data, key):
                words += ["--set", f"data.{key}={few(given)}"]
    return words


def few(data: str) -> str:
    """The same data, less of it."""
    name, options = parsed(data)
    key = "limit" if "count" not in options and name not in ("mr",) else "count"
    least = 96 if name == "moving" else 24 if "labels" in options else FEW  # so that each class has some
    most = min(int(options.get(key, least)), least)
    return f"{name}:" + ",".join(f"{k}={v}" for k, v in {**options, key: str(most)}.items())


def parses(words: list[str]) -> None:
    """A command of fovea's takes these words."""
    name = " ".join(words[:2] if words[0] in ("measure", "bench") else words[:1])
    COMMANDS[name].make_context(name, words[len(name.split()) :])


# blocks in other languages


def of_toml(snippet: Snippet) -> None:
    """A recipe, or a part of one."""
    if name := file_of(snippet.text):
        Path(name).write_text(snippet.text)
    content = tomllib.loads(snippet.text)
    check({"epochs": 1, "network": {"name": "smallnet"}, "data": {"train": "digits"}} | content, str(snippet))


def of_yaml(snippet: Snippet) -> None:
    import yaml

    assert isinstance(yaml.safe_load(snippet.text), (dict, list))


def of_ini(snippet: Snippet) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(snippet.text)
    assert parser.sections()


def of_dockerfile(snippet: Snippet) -> None:
    for line in snippet.text.replace("\\\n", " ").splitlines():
        assert re.match(r"(FROM|COPY|RUN|USER|ENV|EXPOSE|HEALTHCHECK|ENTRYPOINT|CMD|WORKDIR|ARG)\s|$", line), line


OTHERS = {"toml": of_toml, "yaml": of_yaml, "ini": of_ini, "dockerfile": of_dockerfile, "text": lambda _: None}


# what cannot run here is looked at as far as that goes


@cache
def makefile() -> str:
    return (ROOT / "Makefile").read_text()


def looked_at(snippet: Snippet) -> None:
    words = shlex.split(re.sub(r"\$\w+", "0", snippet.text.replace("…", "")), comments=True)
    match words[0]:
        case "fovea":
            parses(words[1:])
        case "make":
            assert all(re.search(rf"^{target}:", makefile(), re.M) for target in words[1:])
        case "pip":
            known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            asked = [extra for word in words for group in re.findall(r"\[(.*?)\]", word) for extra in group.split(",")]
            assert set(asked) <= set(known)
        case "row":  # the function of docs/twostream.md
            read(ROOT / "recipes/twostream-cub100-table.toml", words[3::2])
        case "torchrun":
            from torch.distributed.run import get_args_parser

            with redirect_stderr(io.StringIO()) as said:
                try:
                    given = get_args_parser().parse_args(words[1:])
                except SystemExit:
                    pytest.fail(said.getvalue())
            assert (given.module, given.training_script) == (True, "fovea")
            parses(given.training_script_args)
        case _:
            done = subprocess.run(["bash", "-n", "-c", snippet.text], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    for recipe in (word for word in words if re.fullmatch(r"recipes/\S+\.toml", word)):
        read(ROOT / recipe)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    root = tmp_path_factory.mktemp("docs")
    made = Desk(Shop(root), lambda name: tmp_path_factory.mktemp(Path(name).stem))
    yield made
    made.close()


@pytest.fixture
def alone(desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Data is what was made, pictures open in no window, nothing is fetched: networks of hubs have random weights."""
    import timm
    import torchvision

    with suppress(ImportError):  # which adds to the path that is put back below, once
        import onnxruntime.quantization  # noqa: F401

    asked: list[Any] = []

    def local(what: Callable[..., Any], where: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **how: Any) -> Any:
            host = where(*given)
            if host not in (None, "127.0.0.1", "localhost", "::1", "0.0.0.0", "", socket.gethostname()):
                asked.append(host)
                raise OSError(f"a snippet asks for {host}, and nothing is fetched here")
            return what(*given, **how)

        return call

    def there(_: Any, address: Any, *__: Any) -> Any:
        return address[0] if isinstance(address, tuple) else None

    monkeypatch.setattr(socket.socket, "connect", local(socket.socket.connect, there))
    monkeypatch.setattr(socket, "getaddrinfo", local(socket.getaddrinfo, lambda host, *_: host))
    create, get = timm.create_model, torchvision.models.get_model
    monkeypatch.setattr(
        timm,
        "create_model",
        lambda name, *given, **how: create(SMALLER.get(name, name), *given, **(how | {"pretrained": False})),
    )
    monkeypatch.setattr(torchvision.models, "get_model", lambda *given, **how: get(*given, **(how | {"weights": None})))
    monkeypatch.setattr("fovea.networks.hubs.hub", lambda *_, **__: nullcontext())
    ours = fovea.networks.our_file
    monkeypatch.setattr(
        "fovea.networks.loading.our_file",
        lambda name: desk.shop.projected(ours(name)) if name == "protopnet-cub100" else ours(name),
    )
    monkeypatch.setattr(Image.Image, "show", lambda self, *_, **__: self.load())
    monkeypatch.setenv("FOVEA_DATA", str(desk.shop.home))
    monkeypatch.setattr(sys, "path", [*sys.path])
    here_is_importable()
    monkeypatch.chdir(tmp_path)  # and back at the end
    yield
    assert not asked


HERE = [snippet for snippet in ALL if not rows(ELSEWHERE, snippet)]


@pytest.mark.parametrize(
    "snippet",
    [pytest.param(one, id=str(one), marks=[pytest.mark.slow] if rows(SLOW, one) else []) for one in HERE],
)
def test_it_runs(snippet: Snippet, desk: Desk, alone: None) -> None:
    page = desk.turn_to(snippet.page)
    for before in HERE:  # where this one alone is asked for
        if before == snippet:
            break
        if before.page == snippet.page and before not in page.ran and not rows(SLOW, before):
            desk.run(before)
    desk.run(snippet)


@pytest.mark.parametrize("snippet", [one for one in ALL if rows(ELSEWHERE, one)], ids=str)
def test_what_runs_elsewhere_is_spelled_right(snippet: Snippet) -> None:
    looked_at(snippet)


@pytest.mark.parametrize("name", ["ELSEWHERE", "SLOW", "QUICKER", "REWRITTEN"])
def test_every_row_is_of_something_in_the_docs(name: str) -> None:
    table = globals()[name]
    assert not [pattern for pattern in table if not any(pattern in rows([pattern], one) for one in ALL)]


def test_what_runs_elsewhere_has_its_test() -> None:
    assert not [test for _, test in ELSEWHERE.values() if not (ROOT / test).is_file()]
