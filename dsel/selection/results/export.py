"""A selection as text for other programs: labels, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import Literal, get_args

from dsel._lib.text import printable
from dsel.errors import DataError, OptionError, OutputError
from dsel.selection.result import Selection
from dsel.storage.json_files import valid_json
from dsel.storage.paths import AnyPath, create_file, make_folder, write_bytes

Form = Literal["labels", "csv", "json"]
FORMS: tuple[Form, ...] = get_args(Form)


def export_text(selection: Selection, form: Form = "labels") -> str:
    """Return a selection as text.

    Parameters
    ----------
    selection : Selection
        The selection.
    form : {"labels", "csv", "json"}
        ``"labels"``: one label a line, in the order of `indices`. ``"csv"``: a header, the intercept, and a line for
        each column with its label, its index and its coefficient for each target; control characters in labels are
        escaped. ``"json"``: one object with
        labels, indices, intercept, coefficients, the values that replace NaN, and what was asked.

    Returns
    -------
    str
        The text, which ends with a line break.

    Raises
    ------
    OptionError
        If the form is unknown.
    DataError
        If a label has a line break or another control character, and the form is ``"labels"``.

    Notes
    -----
    Coefficients and intercept are for X and Y as they are: Y ~ intercept + X[:, indices] @ coefficients. Where Y = X
    they would be as many as the data have columns, and only JSON has them.
    """
    if form not in FORMS:
        raise OptionError(f"The form {form!r} is not known.", f"Use one of {', '.join(FORMS)}.")
    return {"labels": _labels, "csv": _csv, "json": _json}[form](selection)


def write_export(text: str, out: AnyPath, *, overwrite: bool = False) -> None:
    """Write text to a file, which appears complete.

    Parameters
    ----------
    text : str
        The text.
    out : Path or ObjectPath
        The file.
    overwrite : bool
        Whether to replace a file.

    Raises
    ------
    OutputError
        If the file exists already, or cannot be written.
    """
    try:
        make_folder(out.parent)
        if overwrite:
            write_bytes(out, text.encode())
        elif not create_file(out, text.encode()):
            raise OutputError(f"{out} exists already.", "Choose another name, or allow overwriting (overwrite).")
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror or error}.") from error


def _labels(selection: Selection) -> str:
    wrong = [label for label in selection.names if not label.isprintable()]
    if wrong:
        raise DataError(f"The label {wrong[0]!r} has characters that are not printable.", "Export csv or json.")
    return "".join(f"{label}\n" for label in selection.names)


def _csv(selection: Selection) -> str:
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    targets = list(selection.predicted)
    names = ["coefficient"] if len(targets) == 1 else [f"coefficient_{printable(target)}" for target in targets]
    write(["feature", "index", *names])
    if targets:
        write(["(intercept)", "", *map(repr, selection.intercept.tolist())])
    for place, (label, index) in enumerate(zip(selection.names, selection.indices, strict=True)):
        row = selection.coefficients[place].tolist() if targets else []
        write([printable(label, keep_lines=True), index, *map(repr, row)])
    return text.getvalue()


def _json(selection: Selection) -> str:
    values = {
        "labels": selection.names,
        "indices": list(selection.indices),
        "groups": {name: list(columns) for name, columns in selection.groups.items()},
        "targets": list(selection.targets),
        "coefficients": selection.coefficients.tolist(),
        "intercept": selection.intercept.tolist(),
        "fill": None if selection.fill is None else selection.fill.tolist(),
        **selection.attributes(),
    }
    return json.dumps(valid_json(values), indent=1) + "\n"
