"""Build the documentation and check its spelling and links: python -m pipelines.docs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines.docs.generated import write_pages
from pipelines.docs.links import broken_links
from pipelines.docs.pictures import draw_pictures

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "deploy" / "docs"

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def build(
    out: Annotated[Path, typer.Option(help="Folder for the site.")] = ROOT / "build" / "docs",
    pictures: Annotated[bool, typer.Option("--pictures", help="Draw the pictures of the gallery again.")] = False,
    external_links: Annotated[
        bool, typer.Option("--external-links", help="Also visit the links to other sites. This needs the network.")
    ] = False,
) -> None:
    """Write the tables of the reference, and build the site. A warning, a misspelled word or a broken link fails."""
    write_pages()
    if pictures:
        draw_pictures()
    _require("spelling", [sys.executable, "-m", "codespell_lib", *_spelled()])
    html = out / "html"
    _require("build", [*_sphinx("html", out), str(html)])
    found = broken_links(html)
    for problem in found:
        typer.echo(problem, err=True)
    if found:
        raise typer.Exit(1)
    if external_links:
        _require("external links", [*_sphinx("linkcheck", out), str(out / "linkcheck")])
    typer.echo(f"The site is in {html}: open {html / 'index.html'}")


def _spelled() -> list[str]:
    """Return what is checked for spelling. The words that codespell must accept are in pyproject.toml."""
    return [str(ROOT / name) for name in ("README.md", "deploy", "dsel", "pipelines")]


def _sphinx(builder: str, out: Path) -> list[str]:
    """Return the command that runs a builder, without its last argument."""
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--nitpicky", "-d", str(out / "doctrees")]
    return [sys.executable, "-m", "sphinx", "--builder", builder, *options, str(SOURCE)]


def _require(what: str, command: list[str]) -> None:
    typer.echo(f"{what} ...", err=True)
    if subprocess.run(command, cwd=ROOT).returncode:
        typer.echo(f"{what}: failed", err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
