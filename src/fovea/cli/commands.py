"""Commands made from what they declare: names of the glossary's options in, a parsed command out.

@command("zoom", arguments=("pictures",), options=("net", "glimpses", "out"), usual={"out": "out/zoom"},
         examples=("fovea zoom photo.jpg",))
def zoom(asked: Asked) -> None:
    "Classify pictures from a few regions read closely."
"""

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from fovea.basics import ANY, BadChoice, uncollected
from fovea.cli.common import bar, say, warn
from fovea.cli.glossary import ARGUMENTS, ELSEWHERE, OLD, OPTIONS, Option, fillable, spelled
from fovea.cli.refusals import refuse

if TYPE_CHECKING:
    from fovea.data import DataSet
    from fovea.networks import Network
    from fovea.pictures import Picture
    from fovea.results import Writer


PANEL = "A service, a cluster, bulk work"  # of a command's help, below its other options


@dataclass(frozen=True)
class Asked:
    """What was asked for, by name: `asked.net`, `asked.out`; the usual value where nothing was typed."""

    values: Mapping[str, Any]
    typed: frozenset[str]  # the names of those that were typed

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def one(self, name: str) -> Any:
        """Of an option that may be repeated, the one value that this command takes; None where there is none."""
        values = self.values[name] or ()
        if len(values) > 1:
            raise BadChoice(f"{spelled(name)} takes one value here, and {len(values)} are given")
        return values[0] if values else None

    def folder(self) -> Path:
        """--out, which is a folder or not there yet."""
        out = Path(self.values["out"])
        fillable("--out", out)
        return out

    def one_folder(self) -> Path | None:
        """The folder that alone was given to look through."""
        given = [*(self.values.get("pictures") or self.values.get("given") or ())]
        return Path(given[0]) if len(given) == 1 and os.path.isdir(given[0]) else None

    def writer(self, what: str, settings: Mapping[str, Any], kind: "type[Writer] | None" = None) -> "Writer":
        """Of what goes to --out; where that was not typed, of a folder that no other run has."""
        from fovea.results import Writer

        files: Any = "full" if self.values.get("full_size") else self.values.get("files") or False
        return (kind or Writer)(self.folder(), what, settings, files, fresh="out" not in self.typed)

    def left(
        self, writer: "Writer", networks: "Sequence[Network]", *given: "Sequence[Picture | str | Path]", by: int = 1
    ) -> list[list[Any]]:
        """Of each of these, what no run of the same words had done when it was stopped; the writer takes over the rows
        of the others. Those of each sequence are done so many together."""
        from fovea import __version__
        from fovea.networks import hash_of

        names = [[str(item) if isinstance(item, (str, Path)) else item.name for item in part] for part in given]
        groups = [part[i : i + by] for part in names for i in range(0, len(part), by)]
        if len(groups) < 2:  # nothing is done before all is
            return [list(part) for part in given]
        other = ("pictures", "given", "out", "json")
        words = {name: value for name, value in self.values.items() if name not in other}
        states = [network.module.state_dict().items() for network in networks]
        weights = [hash_of({key: value for key, value in state if hasattr(value, "dtype")}) for state in states]
        temperatures = [network.temperature for network in networks]
        if done := writer.resume(groups, [words, weights, temperatures, __version__]):
            warn.print(f"resuming: {len(done):,} of {sum(map(len, names)):,} were done before, in {writer.folder}")
        pairs = (zip(part, called, strict=True) for part, called in zip(given, names, strict=True))
        return [[item for item, name in part if name not in done] for part in pairs]

    def network(self, name: str | None = None) -> "Network":
        """The network of --net (or of this name), with --weights, --untrained, --fit and --device as asked."""
        chosen = name or self.one("net")
        untrained = self.values.get("untrained") or False
        with bar(f"loading {chosen}"), uncollected():
            from fovea.networks import device_of, loading, placed

            here = self.values.get("engine") != "ray"  # a cluster's workers have their own
            device = device_of((self.values.get("device") or "auto") if here else "cpu")  # before weights are read
            network = loading.load(chosen, self.values.get("weights"), pretrained=not untrained)
            return placed(network, device).fitted(self.fit_asked)

    @property
    def fit_asked(self) -> str | None:
        """--fit where it was typed: what is usual is the network's to say."""
        return self.values["fit"] if "fit" in self.typed else None

    def dataset(self, labels: "Sequence[str] | None" = None) -> "DataSet":
        """--data, --split and --limit; `labels` are the network's."""
        from fovea.data import open_data

        return open_data(self.values["data"], self.values.get("split"), labels).first(self.values.get("limit"))


@dataclass(frozen=True)
class Declaration:
    """What a command takes. `usual` and `help` are its own, where they differ from the glossary's; `own` are options
    that no other command has, of a measure that is not fovea's."""

    name: str
    arguments: Sequence[str] = ()  # one that ends in ? may be left out
    options: Sequence[str] = ()
    required: Sequence[str] = ()
    usual: Mapping[str, Any] = field(default_factory=dict)
    help: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, Option] = field(default_factory=dict)

    def option(self, name: str) -> Option:
        return self.own[name] if name in self.own else OPTIONS[name]

    def usual_of(self, name: str) -> Any:
        return self.usual[name] if name in self.usual else self.option(name).usual

    def parameters(self) -> list[inspect.Parameter]:
        found = []
        for spelling in self.arguments:
            name, needed = spelling.rstrip("?"), not spelling.endswith("?")
            kind, option = _type_of(ARGUMENTS[name]), ARGUMENTS[name]
            info = typer.Argument(
                help=self.help.get(name, option.help), metavar=_shown(name, option), show_default=False
            )
            found.append(_parameter(name, kind if needed else kind | None, info, ... if needed else None))
        for name in self.options:
            option, typed = self.option(name), spelled(name)
            info = typer.Option(
                f"{typed}/--no-{typed[2:]}" if option.type is bool and self.usual_of(name) else typed,
                help=self._help(name),
                metavar=_shown(name, option),
                show_default=False,
                rich_help_panel=PANEL if self._is_elsewhere(name) else None,
            )
            kind, needed = _type_of(option), name in self.required
            found.append(_parameter(name, kind if needed else kind | None, info, ... if needed else None))
        return found

    def _is_elsewhere(self, name: str) -> bool:
        """Whether an option is about who else does the work; of `serve` all are."""
        return self.name != "serve" and (name in ELSEWHERE or (name == "fresh" and "parquet" in self.options))

    def _help(self, name: str) -> str:
        text, usual = self.help.get(name, self.option(name).help), self.usual_of(name)
        if usual in (None, ()) or isinstance(usual, bool) or name in self.required:
            return text
        shown = ",".join(map(str, usual)) if isinstance(usual, (list, tuple)) else str(usual)
        again = f", then {shown}-2, …" if name == "out" and "files" in self.options else ""  # see `writer`
        return f"{text} Default: {shown}{again}."

    def asked(self, given: Mapping[str, Any]) -> Asked:
        """What was typed, checked, and the usual for the rest."""
        values: dict[str, Any] = {}
        for name, value in given.items():
            option = ARGUMENTS[name] if name in {word.rstrip("?") for word in self.arguments} else self.option(name)
            values[name] = option.values(name, value) if value not in (None, []) else None
        typed = frozenset(name for name, value in values.items() if value is not None)
        usual = {name: self.usual_of(name) for name in self.options if name not in typed}
        return Asked(values | usual, typed)


def _type_of(option: Option) -> Any:
    if option.many:
        return list[str]
    if option.choices:
        return Literal[option.choices]
    return str if option.type in ANY else option.type  # numbers are read by their bounds


def _shown(name: str, option: Option) -> str:
    """What stands for the value of an option in its help."""
    if option.type is bool:
        return ""
    return option.metavar or "|".join(option.choices) or name.strip("_").replace("_", "-").upper()


def _parameter(name: str, kind: Any, info: Any, default: Any) -> inspect.Parameter:
    empty = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=empty, annotation=Annotated[kind, info])


class Plain:
    """Helps without the Python types that typer shows of arguments and of --help."""

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if parameter.param_type_name == "argument" or parameter.name == "help":
                parameter.display_type_rich = lambda ctx: None
        return found


class Command(Plain, TyperCommand):
    """A command that ends its help with examples, and still knows the spellings of the version before."""

    def __init__(self, name: str | None, *, epilog: str | None = None, **options: Any) -> None:
        super().__init__(name, **options)
        self.examples = tuple((epilog or "").splitlines())

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        for line in ("Examples:", *(f"  {example}" for example in self.examples), ""):
            say.print(line)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {spelling for parameter in self.params for spelling in parameter.opts}
        return super().parse_args(ctx, [word for given in args for word in _renamed(str(given), known)])


def _renamed(word: str, known: set[str]) -> list[str]:
    spelling, equals, value = word.partition("=")
    now = OLD.get(spelling, ())
    if not now or spelling in known or now[0] not in known:
        return [word]
    warn.print(f"{spelling} is now {' '.join(now)}; the old spelling goes with the next version")
    return [*now, value] if equals else list(now)


def build(declared: Declaration, run: Callable[[Asked], None], words: str) -> Callable[..., None]:
    """A function as typer takes it."""
    parameters = declared.parameters()

    def call(**given: Any) -> None:
        asked = declared.asked(given)
        refuse(asked.values)
        run(asked)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__doc__ = "\n\n".join(part.replace("\n", " ") for part in words.split("\n\n"))
    return call


def command(
    name: str,
    *,
    arguments: Sequence[str] = (),
    options: Sequence[str] = (),
    required: Sequence[str] = (),
    usual: Mapping[str, Any] | None = None,
    help: Mapping[str, str] | None = None,
    examples: Sequence[str] = (),
    app: typer.Typer | None = None,
) -> Callable[[Callable[[Asked], None]], Callable[[Asked], None]]:  # keyword arguments of one declaration
    """Make a command of the function below, whose docstring is its help and whose examples end it."""
    declared = Declaration(name, arguments, options, required, usual or {}, help or {})

    def add(run: Callable[[Asked], None]) -> Callable[[Asked], None]:
        made = build(declared, run, inspect.getdoc(run) or "")
        (app or APP).command(name, cls=Command, epilog="\n".join(examples))(made)
        return run

    return add


def here_is_importable() -> None:
    """So that package.module:name finds a file in the current folder."""
    if "" not in sys.path:
        sys.path.insert(0, "")


class Commands(Plain, TyperGroup):
    """All commands by what they are for, the commonest first."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = [name for names in PANELS.values() for name in names]
        return sorted(super().list_commands(ctx), key=lambda name: order.index(name) if name in order else len(order))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found: Any = super().get_command(ctx, cmd_name)
        if found is not None:
            found.rich_help_panel = next((panel for panel, names in PANELS.items() if cmd_name in names), None)
        return found


PANELS = {
    "See where a network looks": ("explain", "look", "localize", "predict", "audit", "sanity"),
    "Read only what matters": ("zoom", "pyramid"),
    "Tell near-identical classes apart": ("prototypes", "patches"),
    "Find neighbors": ("index", "search"),
    "Train and measure": ("train", "calibrate", "measure", "bench", "results"),
    "Serve and deploy": ("serve", "export"),
    "What there is": ("demo", "models", "methods"),
}

APP = typer.Typer(
    cls=Commands,
    help="See where a network looks, and read pictures only where it matters.\n\n"
    "Start with [bold]fovea demo[/bold], or [bold]fovea explain cat.jpg[/bold]. "
    "[bold]fovea COMMAND --help[/bold] shows a command's options and examples.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
