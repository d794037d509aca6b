"""fovea measure NAME and fovea bench NAME: a command for every measure that is declared."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from fovea.basics import LOCAL, REFERENCE, BadChoice, write_text
from fovea.cli.bulk import ENGINE, engine_of
from fovea.cli.commands import Asked, Command, Declaration, Plain, build
from fovea.cli.common import bar, say, shortened_command, tell_skipped, warn
from fovea.cli.glossary import DRAWN, OPTIONS, Option, drawable, writable
from fovea.measures.registry import BENCH, Declared, find, titles

if TYPE_CHECKING:
    from fovea.measures.figures import Figures
    from fovea.measures.runner import Given

NETWORK = ("weights", "untrained")
PAGE = "Also write tables and picture as one page: --out with .html, or NAME.html here."


class Measures(Plain, TyperGroup):
    """The commands of one kind of measures: made from what they declare when they are asked for."""

    prefix = ""

    def list_commands(self, ctx: Any) -> list[str]:
        declared = [name.removeprefix(BENCH) for name in titles() if name.startswith(BENCH) == bool(self.prefix)]
        return sorted({*super().list_commands(ctx), *declared})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if f"{self.prefix}{cmd_name}" in titles():
            return made(find(f"{self.prefix}{cmd_name}"), cmd_name)
        return made(find(cmd_name), cmd_name) if REFERENCE.fullmatch(cmd_name) else super().get_command(ctx, cmd_name)


class Benches(Measures):
    prefix = BENCH


app = typer.Typer(
    cls=Measures,
    help="Measure a network on data: how often it is right, where it looks, how far to trust its maps.",
    no_args_is_help=True,
)
bench = typer.Typer(
    cls=Benches, help="Measure time and memory, beside the bare network or other libraries.", no_args_is_help=True
)


def made(declared: Declared, name: str) -> Any:
    """The command of a measure."""
    first, *more = re.split(r"(?<=[.?!]) (?=[A-Z])", declared.about, maxsplit=1)
    call = build(declaration(declared), lambda asked: run(declared, asked), "\n\n".join([first, *more]))
    kind = "" if declared.name.startswith(BENCH) else "measure "
    examples = f"fovea {kind}{declared.name} {declared.example}" if declared.example is not None else None
    info = CommandInfo(name=name, callback=call, cls=Command, epilog=examples)
    return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode="rich")


def declaration(declared: Declared) -> Declaration:
    """The options of a measure: of its data, of its networks, its own, and where figures go."""
    usual, required = dict(declared.usual or {}), []
    options: list[str] = []
    if declared.data != "none":
        options += ["data", "split", "limit"] if declared.data == "pictures" else ["data"]
        required += [] if "data" in usual or "labels?" in declared.needs else ["data"]
    if isinstance(declared.nets, tuple):
        options += declared.roles
        required += [role for role in declared.nets if role in declared.roles and role not in usual]
        usual = {role.rstrip("?"): None for role in declared.nets if role.endswith("?")} | usual  # none, if not given
    elif declared.nets != "none":
        options += ["net", *(NETWORK if declared.nets != "names" and declared.trained else ())]
    if declared.fit:
        options.append("fit")
        usual["fit"] = declared.fit
    own = {name: _own(declared.name, name, value) for name, value in declared.options.items() if name not in OPTIONS}
    placed = declared.nets != "none" or {"source", "recipe"} & {*declared.options}
    options += [*declared.options, *(["device"] if placed else [])]
    options += [*(["out", "page"] if declared.figure else []), "json", *(ENGINE if declared.spread else ())]
    help = {"out": "Draw the figures into this file.", "page": PAGE} if declared.figure else {}
    if declared.nets == "several":
        help["net"] = f"{OPTIONS['net'].help} Repeat to compare several in one table."
    spoken = {name for name, option in OPTIONS.items() if option.usual is not None}  # a measure may have none
    usual |= {name: value for name, value in declared.options.items() if value is not None or name in spoken}
    arguments = ("pictures?",) if "labels?" in declared.needs else ()
    return Declaration(declared.name, arguments, tuple(dict.fromkeys(options)), required, usual, help, own)


def _own(measure: str, name: str, value: Any) -> Option:
    """An option of a measure that is not fovea's, by its default."""
    many = isinstance(value, (list, tuple))
    kind = type(value[0]) if many and value else str if many or value is None else type(value)
    return Option(f"An option of {measure}.", kind, many=many, commas=many)


def run(declared: Declared, asked: Asked) -> None:
    """Take the measure, print its tables, and write what was asked for."""
    if declared.figure and asked.out:
        drawable("--out", asked.out, (*DRAWN, ".svg"))
    beside = _page_of(declared, asked)
    if "labels?" in declared.needs and (asked.data is None) == (not asked.pictures):
        raise BadChoice("name pictures, as photos/, or a data set, as --data cub100:split=test: one of the two")
    options = {name: asked.values[name] for name in declared.options}
    with bar(declared.title or declared.name) as advance:
        from fovea.measures.runner import draw, page, recipe_of, take

        given = _given(declared, asked)
        found = take(declared.name, given, options, advance, os.cpu_count() or 1, advance.tell)
    show(declared, found)
    if asked.json:
        seed = options.get("seed", declared.seed)
        found.write(asked.json, seed, recipe_of(found, given), shortened_command())
    if declared.figure and asked.out:
        draw(found, declared, asked.out)
        say.print(str(asked.out))
    if beside is not None:
        write_text(beside, page(found, declared, _title(declared, found)))
        say.print(str(beside))


def _given(declared: Declared, asked: Asked) -> "Given":
    from fovea.measures.runner import Given

    values = asked.values
    nets: Any = values.get("net") or ()
    if declared.roles:
        nets = {role: asked.one(role) if OPTIONS[role].many else values[role] for role in declared.roles}
    simple = {name: values.get(name) for name in ("data", "split", "limit", "weights")}
    simple["data"] = list(values["pictures"]) if values.get("pictures") else simple["data"]
    fit = values["fit"] if "fit" in asked.typed else None
    engine = engine_of(asked) if declared.spread else LOCAL
    return Given(
        nets, fit=fit, device=values.get("device"), untrained=bool(values.get("untrained")), engine=engine, **simple
    )


def show(declared: Declared, found: "Figures") -> None:
    """The tables, what was skipped, and the notes."""
    found.show(_title(declared, found), say, declared.columns, declared.interval)
    tell_skipped(found.skipped)
    for note in found.notes:
        say.print(note)
    for words in found.warnings:
        warn.print(words)


def _page_of(declared: Declared, asked: Asked) -> Path | None:
    """Where --page goes: beside --out, or into this folder under the measure's name."""
    if not declared.figure or not asked.page:
        return None
    path = (asked.out or Path(declared.name.replace(":", "-").replace(" ", "-"))).with_suffix(".html")
    writable("--page", path)
    return path


def _title(declared: Declared, found: "Figures") -> str:
    about = [declared.title or declared.name, *(found.settings.get(key) for key in ("data", "input"))]
    return ", ".join(str(one) for one in about if one)
