"""`fada serve`: the desk in the browser."""

from pathlib import Path

import typer

from fada.cli.output import echo


def serve(
    folder: Path = typer.Argument(Path("desk"), help="Project folder: documents, lines and models are kept in it."),
    host: str = typer.Option(
        "127.0.0.1", "--host", help="Address to listen at; any other than this machine's own asks for a token."
    ),
    port: int | None = typer.Option(None, "--port", min=0, max=65535, help="Port; by default a free one from 8765 on."),
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open the page in a browser."),
    model: str = typer.Option("medieval", "--model", help="Model for new documents: a name, or a model folder."),
    token: str | None = typer.Option(
        None, "--token", envvar="FADA_TOKEN", help="What clients of other machines must know; made if left out."
    ),
    jobs: int = typer.Option(1, "--jobs", min=1, max=64, help="Processes that read pages."),
) -> None:
    """Read manuscripts at a desk in the browser: a page and its HTTP interface, on this machine, without the network.

    What is typed is on disk when it is shown as saved. Ctrl-C ends the server; unfinished work goes on the next time.
    """
    import threading
    import webbrowser

    from fada.serve.server import serve as run

    def say(address: str) -> None:
        echo(f"{address}\n(project {folder.resolve()}; Ctrl-C ends the server)")
        if browser:
            threading.Timer(0.7, webbrowser.open, (address,)).start()

    run(folder, host=host, port=port, model=model, token=token, workers=jobs, say=say)
