"""The commands under their names."""

from __future__ import annotations

from typing import Annotated

import typer

from tokengraft.cli import audit, compare, evaluate, graft, plan, publish, reproduce
from tokengraft.cli import listings as lists

app = typer.Typer(
    name="tokengraft",
    help="Fair tokenization for the world's languages.\n\n"
    "Start with [bold]tokengraft audit[/bold]: it needs nothing but this package.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("audit")(audit.audit)
app.command("compare")(compare.compare)
app.command("plan")(plan.plan)
app.command("insert")(plan.insert)
app.command("graft")(graft.graft)
app.command("adapt-input")(graft.adapt_input)
app.command("verify")(graft.verify)
app.command("export")(graft.export)
app.command("evaluate")(evaluate.evaluate)
app.command("report")(publish.report)
app.command("push")(publish.push)
app.command("playground")(publish.playground)
app.command("tokenizers", epilog=lists.files_read())(lists.tokenizers)
app.command("corpora")(lists.corpora)
app.command("languages")(lists.languages)
app.add_typer(reproduce.app, name="reproduce")


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
