"""`tokengraft playground`: the page with a live box, on this machine only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengraft.cli.console import stdout, warn


def playground(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Runs to show below the box, as for `report`.")
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option("--tokenizer", "-t", help="Your own: a graft folder, a file, a name."),
    ] = None,
    tokenizers: Annotated[
        list[Path] | None,
        typer.Option("--tokenizers", help="A folder or archive to look tokenizers up in as well."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = 8181,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Type text, see its tokens under every tokenizer; nothing leaves this machine.

    [bold]Examples[/bold]

      tokengraft playground

      tokengraft playground audit/ --tokenizer grafted/
    """
    from tokengraft.api.report import playground as make_server
    from tokengraft.render.page.playground import is_loopback, serve

    server = make_server(
        runs or (), tokenizer or (), host=host, port=port, tokenizers=tokenizers or ()
    )
    if not is_loopback(host):
        warn(f"{host} can be reached from other machines, and whoever reaches it can use it.")
    stdout.print(f"Playground: {server.address} (Ctrl-C ends it)", markup=False)
    serve(server)
