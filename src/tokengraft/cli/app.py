"""The commands under their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from tokengraft.cli import (
    audit,
    compare,
    evaluate,
    finished_graft,
    fit,
    graft,
    listings,
    plan,
    publish,
)
from tokengraft.cli.options import Command, Commands
from tokengraft.core.errors import UsageError
from tokengraft.core.options import load_plugin


def _paper() -> None:
    """What the paper proposes and measured to lose: methods, modes, policies, and two verbs."""


def _reproduce() -> None:
    """Reproduce a published table: exits with 0 if every value comes out, else with 1."""


#: Verbs of plugins, which are loaded when they are used.
_PLUGGED = {"paper": _paper, "reproduce": _reproduce}


class Verbs(Commands):
    """The commands; those of plugins are found in their `commands`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names, and the other words."""
        if args[0] in _PLUGGED:
            made = typer.main.get_command(load_plugin("paper.commands").APPS[args[0]])
            return args[0], made, args[1:]
        if args[0] == "adapt-input":
            raise UsageError("adapt-input is called `tokengraft paper adapt-input` now")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="tokengraft",
    cls=Verbs,
    help="Fair tokenization for the world's languages.\n\n"
    "Start with [bold]tokengraft audit -l Tamil[/bold] (or your language): it needs nothing but "
    "this package. [bold]tokengraft COMMAND --help[/bold] has examples.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_VERBS: dict[str, dict[str, Callable[..., None]]] = {
    "Measure and show": {
        "audit": audit.audit,
        "compare": compare.compare,
        "report": publish.report,
        "playground": publish.playground,
        "push": publish.push,
    },
    "New tokens": {
        "plan": plan.plan,
        "insert": plan.insert,
    },
    "A model that has them": {
        "fit": fit.fit,
        "graft": graft.graft,
        "verify": finished_graft.verify,
        "evaluate": evaluate.evaluate,
        "export": finished_graft.export,
    },
    "What is known": {
        "tokenizers": listings.tokenizers,
        "corpora": listings.corpora,
        "languages": listings.languages,
        **_PLUGGED,
    },
}
for _panel, _verbs in _VERBS.items():
    for _name, _verb in _verbs.items():
        _epilog = listings.files_read() if _name == "tokenizers" else None
        app.command(_name, cls=Command, epilog=_epilog, rich_help_panel=_panel)(_verb)


def _version(wanted: bool) -> None:
    if wanted:
        from tokengraft.core import __version__

        typer.echo(f"tokengraft {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
