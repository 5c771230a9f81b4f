"""The options of ingest and append: declared once, they are those of the functions and of the commands."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import dsel
from dsel.cli.application import with_flags
from dsel.config.ingest_request import (
    IngestKeywords,
    IngestRequest,
    SourceKeywords,
    SourceOptions,
    _option,
    with_options,
)
from dsel.errors import OptionError


def names(model: type[SourceOptions]) -> set[str]:
    return {option.name for option in fields(model)} - {"first_column"}


def test_functions_and_type_checkers_have_the_declared_options() -> None:
    of_ingest = set(inspect.signature(dsel.ingest).parameters) - {"source", "store"}
    assert names(IngestRequest) == set(get_type_hints(IngestKeywords)) == of_ingest
    assert names(SourceOptions) == set(get_type_hints(SourceKeywords)) <= set(inspect.signature(dsel.append).parameters)
    assert inspect.signature(dsel.ingest).parameters["missing"].default == "keep"
    assert inspect.signature(dsel.append).parameters["missing"].default is None


def test_a_new_option_reaches_function_documentation_and_command() -> None:
    @dataclass(frozen=True)
    class WithComment(SourceOptions):
        """Options with one more.

        Parameters
        ----------
        comment : str, optional
            The character that begins a comment.
        """

        comment: str | None = _option(None, "Begins a comment.")

    app, seen = typer.Typer(), {}

    @app.command()
    @with_flags(WithComment)
    def command(source: str, **options: Any) -> None:
        seen.update(options, source=source)

    @with_options(WithComment)
    def function(**options: Any) -> WithComment:
        """Return the options.

        Parameters
        ----------
        **options
        """
        return WithComment.of(**options)

    result = CliRunner().invoke(app, ["t.csv", "--comment", "#", "--drop", "a", "--drop", "b"])
    assert result.exit_code == 0, result.output
    assert (seen["source"], seen["comment"], seen["drop"], seen["missing"]) == ("t.csv", "#", ["a", "b"], "keep")
    assert function(comment="#", drop="a") == WithComment(comment="#", drop=("a",))
    assert "begins a comment" in str(function.__doc__)
    assert "categorical : str, int" in str(function.__doc__)


def test_columns_are_given_as_one_or_several_and_none_is_the_default() -> None:
    request = IngestRequest.of(target="y", drop=["a", np.int64(3)], na=None, dtype=np.float32, y="y.npy")
    assert (request.target, request.drop, request.na) == (("y",), ("a", 3), ())
    assert (request.dtype, request.y) == ("float32", Path("y.npy"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"missing": "drop"}, "missing='drop' is not known.*'keep'"),
        ({"header": "perhaps"}, "header='perhaps'"),
        ({"chunk_rows": "many"}, "chunk_rows='many'"),
        ({"drop": [1.5]}, "drop=1.5"),
    ],
)
def test_a_wrong_value_is_refused_with_its_option(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        IngestRequest.of(**wrong)


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"seperator is no option of ingestion. Did you mean 'separator'"):
        dsel.ingest(tmp_path / "t.csv", tmp_path / "s.zarr", seperator=";")  # type: ignore[call-arg]


def test_a_store_records_what_an_append_takes_over() -> None:
    request = IngestRequest.of(target="y", header=False, index=0, y="y.npy", compression="zstd")
    assert request.recorded() == {"target": ("y",), "index": 0, "header": False}
