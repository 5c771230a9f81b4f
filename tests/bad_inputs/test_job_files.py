"""Bad job files: the message names the file and the key, and says what to write; nothing is made."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.bad_inputs.conftest import names
from tests.cli_runner import call

OPTION, DATA, MISSING, CAPACITY, OUTPUT = 64, 65, 66, 71, 73
BASE = "store: data.zarr\nk: 3\n"
LOCAL, SLURM = "cluster: {local: {%s}}", "cluster: {slurm: {workers: 2, memory: 2GiB, %s}}"
PODS = "cluster: {kubernetes: {workers: 2, memory: 2GiB, image: x, %s}}"
ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in pairwise("abcdefghi")
)

#: What follows the base in a job file, the exit code, what is wrong and where, and the remedy.
KEYS: list[tuple[str, int, str, str]] = [
    ("seed: -1", OPTION, "job.yaml: 'seed' is -1", "at least 0"),
    ("seed: 1.5", OPTION, "'seed' is 1.5", "a whole number"),
    ("seed: 9223372036854775808", OPTION, "'seed' is 9223372036854775808", "below"),
    ("seed: true", OPTION, "'seed' is True", "a whole number"),
    ("lam: -1", OPTION, "'lam' is -1", "at least 0"),
    ("lam: .nan", OPTION, "'lam' is nan", "finite"),
    ("lam: .inf", OPTION, "'lam' is inf", "finite"),
    ("lam: yes", OPTION, "'lam' is True", "a number, not true or false"),
    ("lam: '1'", OPTION, "'lam' is '1'", "a number .not text"),
    ("preprocess: standarize", OPTION, "'preprocess' is 'standarize'", "Did you mean 'standardize'"),
    ("missing: drop", OPTION, "'missing' is 'drop'", "'refuse' or 'mean'"),
    ("method: pos", OPTION, "no method 'pos'", "Did you mean 'poss'"),
    ("method: 5", OPTION, "'method' is 5", "text .in quotes"),
    ("include: a", OPTION, "'include' is 'a'", r"a list .* such as \['a'\]"),
    ("include: [1.5]", OPTION, r"include: there is no feature '1.5'", "Known:"),
    ("include: [true]", OPTION, "True is not a column", "label as text, in quotes"),
    ("exclude: [no]", OPTION, "False is not a column", "label as text, in quotes"),
    ("include: [zz]", OPTION, "include: there is no feature 'zz' among 6", "Known: a, b, c"),
    ("include: [99]", OPTION, "include: there is no feature 99", "from 0 to 5"),
    ("include: [a, b, c, d]", OPTION, "4 columns are included, and k is 3", "Raise k"),
    ("include: [a]\nexclude: [a]", OPTION, "Column a is both included and excluded", "in one of the two"),
    ("exclude: [a, b, c, d, e, f]", OPTION, "All columns are excluded", "Exclude fewer"),
    ("targets: []", OPTION, r"'targets' is \[\]", "name at least one"),
    ("targets: [nope]", OPTION, "no target 'nope' among 1", "Known: y0"),
    ("unsupervised: 1", OPTION, "'unsupervised' is 1", "true or false"),
    ("unsupervised: 'no'", OPTION, "'unsupervised' is 'no'", "true or false"),
    ("sample_weight: [1, 2]", OPTION, r"'sample_weight' is \[1, 2\]", "the name of a variable"),
    ("sample_weight: yes", OPTION, "'sample_weight' is True", "the name of a variable"),
    ("sample_weight: nope", DATA, "data.zarr has no variable nope", "Name such a variable"),
    ("groups: {a: [b], b: c}", OPTION, "'groups' is", "map each column"),
    ("groups: 5", OPTION, "'groups' is 5", "a mapping from names to lists of columns"),
    ("groups: nope", OPTION, "no coordinate 'nope' of the features", "Give a mapping"),
    ("criterion: score", OPTION, "'criterion' is 'score'", "package.module:function"),
    ("criterion: nomodule:f", OPTION, "'nomodule:f' cannot be imported", "Name a module"),
    ("criterion: os:nofunc", OPTION, "module 'os' has no attribute 'nofunc'", "Name a module"),
    ("criterion: fine:value", OPTION, "'fine:value' is a int", "Name a function"),
    ("criterion: syntax_error:f", OPTION, "module syntax_error raised SyntaxError", "Correct the module"),
    ("criterion: exits:f", OPTION, "module exits raised SystemExit", "Correct the module"),
    ("criterion: fine:f\nmethod: backward", OPTION, "backward does not take a criterion", "Use one of poss"),
    ("options: [1]", OPTION, r"'options' is \[1\]", "keys with their values"),
    ("options: {weight: w}", OPTION, "poss has no option 'weight'", "Did you mean 'sample_weight'"),
    ("options: {iteration: 5}", OPTION, "poss has no option 'iteration'", "Did you mean 'iterations'"),
    ("options: {seconds: '5'}", OPTION, "'seconds' is '5'", "a number .not text"),
    ("options: {seconds: -1}", OPTION, "Options of poss: 'seconds' is -1", "above 0"),
    ("options: {seconds: .nan}", OPTION, "seconds is not a number", "nan"),
    ("options: {iterations: 0}", OPTION, "'iterations' is 0", "at least 1"),
    ("options: {isolation: maxindex}", OPTION, "'isolation' is 'maxindex'", "did you mean 'min-index'"),
    ("options: {isolation: 'fine:nope'}", OPTION, "'fine:nope' cannot be imported", "Name a module"),
    ("options: {memory: 10}", CAPACITY, "tables need .* bytes for 9 subsets.* 10 bytes are allowed", "smaller k"),
    ("options: {target_r2: 2}", OPTION, "'target_r2' is 2", "at most 1"),
    ("options: {restarts: 2}", OPTION, "restarts: only with warm_start", "Leave it out"),
    ("options: {k: 3}", OPTION, "'k' is not an option of poss", "next to options"),
    ("method: pposs-asy\noptions: {evaluation_limit: 5}", OPTION, "evaluation_limit: only with a custom", "Leave it"),
    ("method: pposs\noptions: {evaluation_limit: 5}", OPTION, "evaluation_limit: only with a custom crit", "Leave it"),
    ("method: pposs\noptions: {processes: 2}", OPTION, "processes: only with a custom criterion", "Leave it out"),
    ("method: exchange\noptions: {restarts: -1}", OPTION, "Options of exchange: 'restarts' is -1", "at least 1"),
    ("method: forward\noptions: {restarts: 3}", OPTION, "forward has no option 'restarts'", "leave options out"),
    ("method: omp\noptions: {costs: 3}", OPTION, "has no option 'costs'", "on the page .Write a criterion."),
    ("method: greedy-rls\noptions: {lam_grid: [1, -1]}", OPTION, "'lam_grid' is", "auto or numbers > 0"),
    ("method: kfold\noptions: {folds: 1}", OPTION, "'folds' is 1", "at least 2"),
    ("method: kfold\noptions: {folds: 100}", OPTION, "60 rows are too few for 100 folds", "Take fewer"),
    ("method: kfold\noptions: {row_groups: nope}", OPTION, "has no variable 'nope'", "It has X, Y"),
    ("method: two-stage", OPTION, "two-stage selects columns for X itself", "Leave Y out"),
    ("method: astar\noptions: {epsilon: -1}", OPTION, "'epsilon' is -1", "at least 0"),
    ("method: branch-and-bound\noptions: {seconds: '5'}", OPTION, "'seconds' is '5'", "a number .not text"),
    ("certify: yes", OPTION, "'certify' is True", "keys with their values"),
    ("certify: {time: soon}", OPTION, "'certify.time' is 'soon'", "90s, 10m"),
    ("certify: {time: yes}", OPTION, "'certify.time' is True", "such as 90s"),
    ("certify: {nodes: 0}", OPTION, "'certify.nodes' is 0", "at least 1"),
    ("certify: {sizes: some}", OPTION, "'certify.sizes' is 'some'", "'chosen' or 'all'"),
    ("certify: {tiem: 1m}", OPTION, "unknown key 'certify.tiem'", "Did you mean 'time'"),
    ("certify: {time: 1m}\ncriterion: fine:f", OPTION, "no certificate for a custom criterion", "Leave certify"),
    ("choose_k: folds", OPTION, "choose_k cannot be used with k 3", "write k: auto"),
    ("max_k: 3", OPTION, "max_k cannot be used with k 3", "write k: auto"),
    ("checkpoint_seconds: 0", OPTION, "'checkpoint_seconds' is 0", "above 0"),
    ("checkpoint_evaluations: 0", OPTION, "'checkpoint_evaluations' is 0", "at least 1"),
    ("out: 5", OPTION, "'out' is 5", "a path, or an s3://"),
    ("out: ''", OPTION, "'out' is '': it is empty", "name a path"),
    ("out: data.zarr/out", OUTPUT, "out .* lies inside the store", "outside it"),
    ("out: plain.txt", OUTPUT, "out .* cannot be a folder: .*plain.txt is a file", "Choose another"),
    ("out: plain.txt/x", OUTPUT, "out .* cannot be a folder: .*plain.txt is a file", "Choose another"),
    ("statistics_folder: data.zarr", OUTPUT, "statistics_folder .* lies inside the store", "outside it"),
    ('out: "a\\0b"', OPTION, r"path 'a\\x00b'... has a NUL", "Give a path"),
    (f"out: {'x' * 4096}", OPTION, "path 'xxx.* is too long", "Give a path"),
    ("out: 2026-13-45", OPTION, "job.yaml is not YAML: month must be", "in quotes"),
    ("k: 4", OPTION, "the key 'k' is in line 2 and again in line 3", "Keep one"),
    ("options: {seconds: 5, seconds: 6}", OPTION, "the key 'seconds' is in line 3 and again", "Keep one"),
    ("\tx: 1", OPTION, "job.yaml is not YAML: .*line 3", "Correct the place"),
    (ALIASES, OPTION, "job.yaml: its aliases expand to more than 100,000 values", "without aliases"),
    ("a: &a [*a]", OPTION, "job.yaml: an alias .* refers to what contains it", "without aliases"),
    (f"a: {'[' * 600}{']' * 600}", OPTION, "job.yaml is nested too deeply", "is a job file"),
    (f"x: {'a' * 20_000_000}", OPTION, "job.yaml has more than 4 MiB", "Check that it is a job file"),
    ("".join(f"k{i}: 1\n" for i in range(200_000)), OPTION, "job.yaml: it has more than 100,000 values", "Write fewer"),
    ("random_state: 1", OPTION, "unknown key 'random_state'", "Did you mean 'seed'"),
    ("n_jobs: 2", OPTION, "unknown key 'n_jobs'", "section cluster of a job file"),
    ("iterations: 100", OPTION, "unknown key 'iterations'", "Known: .*Options of the method go under options"),
    ("cluster: 5", OPTION, "'cluster' is 5", "keys with their values"),
    ("cluster: {local: {}, address: 'tcp://h:1'}", OPTION, "local and address are both given", "Name one"),
    ("cluster: {slrum: {}}", OPTION, "unknown key 'cluster.slrum'", "Did you mean 'slurm'"),
    ("cluster: {address: 'tcp://h:1', wait: yes}", OPTION, "unknown key 'cluster.wait'", "Known: local"),
    (LOCAL % "workers: 0", OPTION, "'cluster.local.workers' is 0", "at least 1"),
    (LOCAL % "workers: yes", OPTION, "'cluster.local.workers' is True", "a whole number"),
    (LOCAL % "workers: 100000", OPTION, "'cluster.local.workers' is 100000", "at most"),
    (LOCAL % "workers: 9999", OPTION, "9999 workers of 1 threads", "at most 16 threads per core"),
    (LOCAL % "threads: 3000", OPTION, "'cluster.local.threads' is 3000", "at most"),
    (LOCAL % "memory: 100TiB", OPTION, "'cluster.local.memory' is '100TiB'", "64MiB to 64TiB"),
    (LOCAL % "memory: 50TiB, workers: 1", OPTION, "A worker asks for 50.00 TiB; this machine has", "less memory"),
    (LOCAL % "memory: lots", OPTION, "'cluster.local.memory' is 'lots'", "such as 4GiB"),
    (LOCAL % "memory: -1GiB", OPTION, "'cluster.local.memory' is '-1GiB'", "64MiB to 64TiB"),
    (LOCAL % "memory: '4'", OPTION, "'cluster.local.memory' is '4'", "write the unit"),
    (LOCAL % "security: ssl", OPTION, "'cluster.local.security' is 'ssl'", "'tls' or 'none'"),
    ("cluster: {slurm: {workers: 2}}", OPTION, "'cluster.slurm.memory' is missing", "write it as memory:"),
    ("cluster: {slurm: {memory: 2GiB}}", OPTION, "cluster: slurm: say workers, or minimum and maximum", "Give one"),
    (SLURM % "maximum: 3", OPTION, "cluster: slurm: say workers, or minimum and maximum", "Give one"),
    ("cluster: {slurm: {memory: 2GiB, minimum: 5, maximum: 3}}", OPTION, r"minimum \(5\) is above", "Exchange"),
    (SLURM % "que: long", OPTION, "unknown key 'cluster.slurm.que'", "Did you mean 'queue'"),
    (SLURM % "wait: soon", OPTION, "'cluster.slurm.wait' is 'soon'", "10m, 2h"),
    (SLURM % "walltime: 12:00:00", OPTION, "'cluster.slurm.walltime' is 43200", "in quotes"),
    (SLURM % "walltime: later", OPTION, "'cluster.slurm.walltime' is 'later'", "such as 02:00:00"),
    (SLURM % "directives: --qos", OPTION, "'cluster.slurm.directives' is '--qos'", "a list"),
    (SLURM % "environment: {A-B: x}", OPTION, "environment: 'A-B' is not a name", "letters, digits"),
    ("cluster: {kubernetes: {workers: 2, memory: 2GiB}}", OPTION, "'cluster.kubernetes.image' is missing", "image:"),
    (PODS % "claims: [a]", OPTION, "'cluster.kubernetes.claims' is", "keys with their values"),
    (PODS % "namespace: 5", OPTION, "'cluster.kubernetes.namespace' is 5", "text"),
    (PODS % "scheduler_memory: much", OPTION, "scheduler_memory' is 'much'", "such as 4GiB"),
    ("cluster: {gateway: {address: 'http://h'}}", OPTION, "cluster: gateway: say workers", "Give one"),
    ("cluster: {address: $NOT_SET_ANYWHERE}", OPTION, "variable .NOT_SET_ANYWHERE is not set", "Set it"),
    ("cluster: {address: ''}", OPTION, "'cluster.address.address' is ''", "such as tcp://"),
    ("cluster: {address: localhost}", OPTION, "'cluster.address.address' is 'localhost'", "such as tcp://"),
    ("cluster: {address: 'http://h:1'}", OPTION, "'cluster.address.address' is 'http://h:1'", "such as tcp://"),
    ("cluster: {address: 'inproc://x'}", OPTION, "'cluster.address.address' is 'inproc://x'", "such as tcp://"),
    ("cluster: {address: 'tcp://h'}", OPTION, "'cluster.address.address' is 'tcp://h'", "such as tcp://"),
    ("cluster: {scheduler_file: ''}", OPTION, "'cluster.scheduler_file.path' is ''", "it is empty"),
]  # fmt: skip

FILES: list[tuple[str, int, str, str]] = [
    ("", OPTION, "job.yaml has no keys", "at least store and k"),
    ("- 1", OPTION, "job.yaml has no keys", "at least store and k"),
    ("k: 5", OPTION, "'store' is missing", "write it as store:"),
    ("store: data.zarr", OPTION, "'k' is missing", "write it as k:"),
    *((f"store: data.zarr\nk: {k}", OPTION, f"'k' is {found}", remedy) for k, found, remedy in [
        ("yes", "True", "a whole number, or auto"), ("'5'", "'5'", "a whole number"), ("0", "0", "at least 1"),
        ("-1", "-1", "at least 1"), ("2.5", "2.5", "a whole number"), ("null", "None", "or auto"),
        ("many", "'many'", "or auto"),
    ]),
    ("store: data.zarr\nk: 99", OPTION, "k is 99, and X has 6 columns", "from 1 to 6"),
    ("store: none.zarr\nk: 3", MISSING, "no store .*none.zarr", "Check the path, or create it"),
    ("store: plain.txt\nk: 3", MISSING, "plain.txt is not a Zarr store", "Check the path"),
    ("store: empty\nk: 3", MISSING, "empty is not a Zarr store", "Check the path"),
    ("store: loop\nk: 3", MISSING, "no store .*loop", "Check the path"),
    ("store: 's3://'\nk: 3", OPTION, "'s3://' does not name a path in a bucket", "s3://bucket/path"),
    ("store: 'ftp://x/y'\nk: 3", OPTION, "ftp:// is not supported", "Use a local path, s3://"),
    ("store: ''\nk: 3", OPTION, "'store' is '': it is empty", "name a path"),
    ("store: data.zarr\nk: auto\nchoose_k: {by: held-out}", OPTION, "choose_k", "needs held_out: a share"),
    ("store: data.zarr\nk: auto\nchoose_k: {folds: 1}", OPTION, "'choose_k.folds' is 1", "at least 2"),
    ("store: data.zarr\nk: auto\nchoose_k: {split: forwards}", OPTION, "'choose_k.split' is 'forwards'", "'forward'"),
    ("store: data.zarr\nk: auto\nmax_k: 0", OPTION, "'max_k' is 0", "at least 1"),
    ("store: data.zarr\nk: auto\ncriterion: fine:f", OPTION, "k is auto, but a criterion", "largest size as k"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code", "what", "remedy"),
    [*((BASE + text, *rest) for text, *rest in KEYS), *FILES],
    ids=[text[:40].replace("\0", "") for text, *_ in [*KEYS, *FILES]],
)
def test_a_bad_job_file(folder: Path, text: str, code: int, what: str, remedy: str) -> None:
    before = names(folder)
    (folder / "bad-job.yaml").write_text(text)
    try:
        ended, out, err = call("plan", "bad-job.yaml")
    finally:
        (folder / "bad-job.yaml").unlink()
    said = " ".join(err.split())
    assert (ended, out) == (code, ""), said
    assert re.search(what, said), said
    assert re.search(remedy, said), said
    assert "Traceback" not in said
    assert names(folder) == before
