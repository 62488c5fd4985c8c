"""The `tokengraft` command and how it ends: 0 ok, 1 error, 2 usage, 130 interrupted."""

from __future__ import annotations

import errno
import re
import sys
from typing import Annotated, Any, NoReturn

import typer

from tokengraft.cli import audit, evaluate, graft, lists, plan, playground, report, reproduce
from tokengraft.cli.console import stderr
from tokengraft.errors import TokengraftError

_CLEAN = "Nothing half-written was left."

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
app.command("plan")(plan.plan)
app.command("insert")(plan.insert)
app.command("graft")(graft.graft)
app.command("verify")(graft.verify)
app.command("evaluate")(evaluate.evaluate)
app.command("report")(report.report)
app.command("playground")(playground.playground)
app.command("tokenizers")(lists.tokenizers)
app.command("corpora")(lists.corpora)
app.command("languages")(lists.languages)
reproduce.app.command("fidelity")(evaluate.fidelity)
app.add_typer(reproduce.app, name="reproduce")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tokengraft {version('tokengraft')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version


def _end(message: str, code: int = 1) -> NoReturn:
    stderr.print("[bold red]Error:[/bold red]", end=" ")
    stderr.print(message, markup=False, highlight=False)
    sys.exit(code)


def _full_card(torch: Any, message: str) -> str:
    """What to do when a GPU has no more memory, and how much of it this run could have."""
    named = re.search(r"GPU (\d+)", message)
    device = int(named.group(1)) if named else 0
    try:
        free, total = torch.cuda.mem_get_info(device)
        room = (free + torch.cuda.memory_reserved(device)) / 2**30
        had = f"; {room:.1f} of its {total / 2**30:.1f} GiB could be had, the rest others hold"
    except (RuntimeError, AssertionError, ValueError):
        had = ""
    return (
        f"The memory of GPU cuda:{device} does not do for this{had}. Free the card, name another "
        f"one with --device cuda:1, or take --device cpu. {_CLEAN}"
    )


def run() -> None:
    """Run the command line; every expected failure ends in one message and a non-zero exit."""
    try:
        app()
    except TokengraftError as error:
        _end(str(error), error.exit_code)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        _end(f"{error}. {_CLEAN}")
    except RuntimeError as error:
        # Only what has imported torch can run out of a GPU's memory.
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        _end(_full_card(torch, str(error)))
    except SystemExit as end:
        if end.code == 130:
            stderr.print("\nInterrupted. What was counted is kept: run the command again to go on.")
        raise


if __name__ == "__main__":
    run()
