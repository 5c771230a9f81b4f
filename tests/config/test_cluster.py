"""What may be written about a cluster, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dsel.config.cluster import ClusterSection
from dsel.config.job import read_job
from dsel.engine.clusters import external
from dsel.engine.clusters.connect import cluster_of
from dsel.engine.clusters.local import local_cluster
from dsel.errors import MissingInputError, OptionError

SLURM = {"workers": 2, "memory": "2GiB"}
PODS = {**SLURM, "image": "dsel:1"}


def section(**keys: Any) -> ClusterSection:
    return ClusterSection.model_validate(keys)


def test_by_default_the_workers_are_local() -> None:
    assert section().chosen.kind == "local"


def test_a_plain_string_is_an_address_or_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tls://host:8786")
    assert section(address="$DASK_SCHEDULER_ADDRESS").chosen.address == "tls://host:8786"
    assert section(scheduler_file="/shared/s.json").chosen.path == "/shared/s.json"
    assert section(address={"address": "tcp://h:1", "workers": 3, "wait": "10m"}).chosen.wait_seconds == 600


def test_the_path_of_a_scheduler_file_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    (job := tmp_path / "job.yaml").write_text("store: x.zarr\nk: 2\ncluster: {scheduler_file: run/s.json}\n")
    assert read_job(job).cluster.chosen.path == str(tmp_path / "run/s.json")
    (sites := tmp_path / "sites").mkdir()
    (site := sites / "here.yaml").write_text("cluster: {scheduler_file: s.json}\n")
    assert read_job(job, cluster=site).cluster.chosen.path == str(sites / "s.json")


def test_one_vocabulary_for_size() -> None:
    for keys in ({"slurm": SLURM}, {"kubernetes": PODS}, {"gateway": {"workers": 2}}):
        assert section(**keys).chosen.bounds == (2, 2)
    for size, bounds in (({"maximum": 4}, (1, 4)), ({"minimum": 2, "maximum": 4}, (2, 4))):
        chosen = section(slurm={"memory": "2GiB", **size}).chosen
        assert chosen.bounds == bounds
        assert chosen.asked == bounds[0]
    assert cluster_of(section(slurm={**SLURM, "wait": "1h"})).no_worker_limit == 3600
    assert cluster_of(section()).no_worker_limit == 120


@pytest.mark.parametrize(
    ("name", "value"),
    [("AWS_SECRET_ACCESS_KEY", "hunter2"), ("DB_PASSWORD", "hunter2"), ("STORE", "https://me:hunter2@host/data")],
)
def test_secrets_are_refused_and_not_repeated(tmp_path: Path, name: str, value: str) -> None:
    path = tmp_path / "job.yaml"
    keys = {"store": "s", "k": 1, "cluster": {"slurm": {**SLURM, "environment": {name: value}}}}
    path.write_text(yaml.safe_dump(keys))
    with pytest.raises(OptionError, match=name) as error:
        read_job(path)
    assert "hunter2" not in str(error.value)


def test_a_separate_file_takes_the_place_of_the_section(tmp_path: Path) -> None:
    job, cluster = tmp_path / "job.yaml", tmp_path / "cluster.yaml"
    job.write_text(yaml.safe_dump({"store": "s", "k": 1, "cluster": {"local": {"workers": 1}}}))
    cluster.write_text(yaml.safe_dump({"cluster": {"slurm": SLURM}}))
    found = read_job(job, cluster=cluster)
    assert found.cluster.chosen.kind == "slurm"
    assert found.identity() == read_job(job).identity()  # the result does not depend on it
    cluster.write_text(yaml.safe_dump({"slurm": SLURM}))
    with pytest.raises(OptionError, match="one key, cluster"):
        read_job(job, cluster=cluster)
    with pytest.raises(MissingInputError):
        read_job(job, cluster=tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"slurm": SLURM}, (2, 2 << 30)),
        ({"slurm": {"memory": "2GiB", "minimum": 3, "maximum": 5}}, (3, 2 << 30)),
        ({"kubernetes": PODS}, (2, 2 << 30)),
        ({"local": {"workers": 3, "memory": "1GiB"}}, (3, 1 << 30)),
        ({"gateway": {"workers": 4}}, (4, None)),
        ({"address": "tcp://127.0.0.1:1"}, (1, None)),
        ({"scheduler_file": {"path": "/there/is/none.json", "workers": 6}}, (6, None)),
    ],
)
def test_a_plan_counts_the_workers_that_a_section_promises(
    cluster: dict[str, Any], expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "_QUERY_SECONDS", 0.5)
    assert cluster_of(section(**cluster)).current() == expected


def test_workers_that_this_machine_cannot_hold_are_refused() -> None:
    with pytest.raises(OptionError, match=r"900.* this machine has"), local_cluster(1, "900TiB"):
        pass
