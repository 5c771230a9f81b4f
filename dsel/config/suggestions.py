"""What an error suggests for an option that dsel does not know."""

from __future__ import annotations

from collections.abc import Iterable

from dsel._lib.text import suggest

#: Names that other libraries use, and dsel's own.
_SYNONYMS = {
    "alpha": "lam",
    "lambda": "lam",
    "lambda_": "lam",
    "max_iter": "iterations",
    "n_iter": "iterations",
    "max_time": "seconds",
    "time_limit": "seconds",
    "timeout": "seconds",
    "n_features": "k",
    "n_features_to_select": "k",
    "n_select": "k",
    "normalize": "preprocess",
    "random_seed": "seed",
    "random_state": "seed",
    "rng": "seed",
    "sample_weights": "sample_weight",
    "scaler": "preprocess",
    "scoring": "criterion",
    "scorer": "criterion",
    "standardize": "preprocess",
    "weights": "sample_weight",
}

#: What takes the place of arguments that dsel does not have.
_REMARKS = {
    "verbose": "Progress goes to the logger 'dsel': logging.getLogger('dsel').setLevel(logging.INFO).",
    "n_jobs": "Workers come from the active Dask client, or from the section cluster of a job file.",
    "n_workers": "Workers come from the active Dask client, or from the section cluster of a job file.",
    "cv": "Use method='kfold' with the option folds, or criterion=dsel.CrossValidated(estimator, folds=...).",
    "estimator": "Use criterion=dsel.CrossValidated(estimator).",
}


def suggest_option(word: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests an option for an unknown one, or lists the known ones.

    It knows the names that other libraries use.
    """
    names = list(known)
    synonym = _SYNONYMS.get(word.lower())
    if synonym in names:
        return f"Did you mean {synonym!r}?"
    hint = suggest(word, names)
    return _REMARKS.get(word.lower(), hint) if hint.startswith("Known") else hint
