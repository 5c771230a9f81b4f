"""deploy/kubernetes: its manifests by their schemas, and by the unmodified operator on a stand-in for a cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import dsel
from dsel.config.cluster import KubernetesSection
from dsel.engine.clusters.kubernetes import cluster_manifest
from dsel.engine.scheduler_plugins import _GAUGES
from dsel.errors import ClusterError, DataError, DselError, Interrupted, OptionError, StorageError
from tests.deploy.programs import HELD_READS, ROOT, at_start, commands
from tests.stores import make_store, regression

validator = pytest.importorskip("kubernetes_validate")
if not all(map(find_spec, ("dask_kubernetes", "kopf"))):  # not imported: kopf imports 1200 modules
    pytest.skip("needs dask-kubernetes and kopf", allow_module_level=True)
from tests.deploy.crds import problems  # noqa: E402

DEPLOY = ROOT / "deploy" / "kubernetes"
VARIANTS = ("job", "cronjob", "daskjob", "ingest")
COMPONENTS = ("registry", "nodes", "monitoring", "retention")
#: What the manifests for the Prometheus operator use of its definitions.
_NAMES = {"type": "object", "additionalProperties": {"type": "string"}}
_RULE = {
    "type": "object", "required": ["alert", "expr", "labels", "annotations"], "additionalProperties": False,
    "properties": {"alert": {"pattern": "^Dsel[A-Za-z]+$"}, "expr": {"type": "string"},
                   "for": {"pattern": "^[0-9]+[smh]$"},
                   "labels": _NAMES, "annotations": _NAMES},
}  # fmt: skip
MONITORING: dict[str, Any] = {
    "PodMonitor": {
        "type": "object", "required": ["selector", "podMetricsEndpoints"], "additionalProperties": False,
        "properties": {"selector": {"type": "object"}, "podMetricsEndpoints": {"type": "array", "items": {
            "type": "object", "required": ["port"], "additionalProperties": False,
            "properties": {"port": {"enum": ["http-dashboard"]}, "path": {"enum": ["/metrics"]}, "interval": {}},
        }}},
    },
    "PrometheusRule": {"type": "object", "required": ["groups"], "properties": {"groups": {"type": "array", "items": {
        "type": "object", "required": ["name", "rules"], "properties": {"rules": {"type": "array", "items": _RULE}},
    }}}},
}  # fmt: skip
KUBECTL = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH')}")
X, Y = regression(m=3000)
SEARCH = {"iterations": 200_000}


def rendered(folder: Path) -> list[Any]:
    """The resources that `kubectl apply -k` would send."""
    if KUBECTL is None:
        pytest.skip("no kubectl here")
    found = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    return list(yaml.safe_load_all(found.stdout))


def wrong(manifest: Any) -> list[str]:
    """What a current Kubernetes, with the operator's definitions, has against a manifest."""
    if manifest["apiVersion"].startswith("kubernetes.dask.org/"):
        return problems(manifest)
    if manifest["kind"] in MONITORING:
        found = jsonschema.Draft7Validator(MONITORING[manifest["kind"]]).iter_errors(manifest["spec"])
        return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in found]
    try:
        validator.validate(manifest, validator.latest_version(), strict=True)
    except (validator.ValidationError, validator.SchemaNotFoundError) as error:
        return [str(error)]
    return []


def pod_specs(value: Any) -> Iterator[Any]:
    """Every pod that a manifest describes."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for inner in value.values():
            yield from pod_specs(inner)


@pytest.fixture(scope="module", params=VARIANTS)
def manifests(request: pytest.FixtureRequest) -> list[Any]:
    return rendered(DEPLOY / request.param)


def test_every_manifest_passes_its_schema(manifests: list[Any]) -> None:
    assert {m["kind"]: wrong(m) for m in manifests if wrong(m)} == {}
    kinds = {m["kind"] for m in manifests}
    assert {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "NetworkPolicy"} < kinds or "ingest" in str(manifests)


def test_pods_have_few_rights_and_limits(manifests: list[Any]) -> None:
    pods = [pod for manifest in manifests for pod in pod_specs(manifest)]
    assert pods
    made = cluster_manifest(SECTION, "c")
    for pod in [*pods, *pod_specs(made)]:
        writes = {m["mountPath"] for c in pod["containers"] for m in c["volumeMounts"] if not m.get("readOnly")}
        assert writes <= {"/tmp", "/results"} or pod["containers"][0]["name"] == "ingest"
        assert pod["securityContext"]["runAsNonRoot"] is True
        scratch = [volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume]
        assert all(re.fullmatch(r"\d+[MG]i", volume["sizeLimit"]) for volume in scratch)
        if "fsGroup" in pod["securityContext"]:  # else large claims are walked through at every start
            assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
            assert set(container["resources"]["limits"]) >= {"cpu", "memory"}
        talks_to_the_api = pod.get("serviceAccountName") == "dsel-driver"
        assert talks_to_the_api or pod["automountServiceAccountToken"] is False


def test_wrong_manifests_are_refused() -> None:
    job = next(m for m in rendered(DEPLOY / "daskjob") if m["kind"] == "DaskJob")
    cron = next(m for m in rendered(DEPLOY / "cronjob") if m["kind"] == "CronJob")
    changes: list[tuple[Any, Callable[[Any], Any]]] = [
        (job, lambda m: m["spec"]["cluster"]["spec"]["worker"].update(replicas="two")),
        (job, lambda m: m["spec"]["job"]["spec"]["containers"][0].update(imagePulPolicy="Always")),
        (job, lambda m: m["spec"].pop("cluster")),
        (job, lambda m: m.update(kind="DaskJobs")),
        (cron, lambda m: m["spec"].pop("schedule")),
        (cron, lambda m: m["spec"].update(backoffLimit=3)),
        (cron, lambda m: m["spec"]["jobTemplate"]["spec"].update(backoffLimit="three")),
    ]
    for good, change in changes:
        bad = json.loads(json.dumps(good))
        change(bad)
        assert wrong(bad)
        assert not wrong(good)


SECTION = KubernetesSection(
    workers=3, memory="2GiB", threads=2, image="dsel:1", secrets=["bucket"], claims={"data": "/data"},
    environment={"MODE": "x"}, job_name="nightly", job_uid="u-1", service_account="reader",
    resources={"limits": {"ephemeral-storage": "10Gi"}}, node_selector={"pool": "cpu"}, idle_timeout="90m",
    tolerations=[{"key": "pool", "operator": "Equal", "value": "cpu", "effect": "NoSchedule"}],
    image_pull_secrets=["registry"],
)  # fmt: skip


def test_the_cluster_that_a_driver_makes_passes_the_operators_schema() -> None:
    manifest = cluster_manifest(SECTION, "nightly")
    assert wrong(manifest) == []
    worker = manifest["spec"]["worker"]
    assert worker["replicas"] == 3
    container = worker["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "2304Mi", "ephemeral-storage": "10Gi"}
    assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert manifest["spec"]["idleTimeout"] == 5400
    for pod in pod_specs(manifest):
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["tolerations"][0]["key"] == "pool"


def policy(manifests: list[Any]) -> dict[str, list[dict[str, Any]]]:
    """What the network policy of a variant selects, and the pods of the same namespace that it admits."""
    (found,) = [m["spec"] for m in manifests if m["kind"] == "NetworkPolicy"]
    (rule,) = found["ingress"]
    admitted = [peer["podSelector"] for peer in rule["from"] if "namespaceSelector" not in peer]
    return {"selected": [found["podSelector"]], "admitted": admitted}


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector selects a pod, as Kubernetes defines it."""
    plain = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return plain and all(
        rule["key"] in labels and (rule["operator"] == "Exists" or labels[rule["key"]] in rule["values"])
        for rule in selector.get("matchExpressions", [])
    )


@pytest.mark.parametrize(("variant", "name"), [("job", "dsel"), ("daskjob", "dsel"), ("cronjob", "dsel-29")])
def test_a_cluster_admits_its_own_pods_and_its_driver(variant: str, name: str) -> None:
    rules = policy(rendered(DEPLOY / variant))

    def any_of(which: str, labels: dict[str, str]) -> bool:
        return any(matches(selector, labels) for selector in rules[which])

    cluster = {"dask.org/cluster-name": name, "app.kubernetes.io/name": "dsel"}
    driver = {"app.kubernetes.io/name": "dsel", "batch.kubernetes.io/job-name": name}
    other = {"dask.org/cluster-name": "somebodys", "app.kubernetes.io/name": "other"}
    ingest = {"app.kubernetes.io/name": "dsel-ingest", "batch.kubernetes.io/job-name": "dsel-ingest"}
    assert any_of("selected", cluster)
    assert not any_of("selected", other)
    assert any_of("admitted", cluster)
    assert any_of("admitted", driver)
    assert not any_of("admitted", other)
    assert not any_of("admitted", ingest)


def test_the_policy_follows_the_name_of_the_job(tmp_path: Path) -> None:
    folder = installation(tmp_path / "k", "daskjob", {"store": "s3://bucket/data.zarr", "k": 3})
    path = folder / "kustomization.yaml"
    path.write_text(path.read_text().replace("kind: DaskJob, name: dsel", "kind: DaskJob"))
    (folder / "daskjob.yaml").write_text(
        (folder / "daskjob.yaml").read_text().replace("name: dsel\n", "name: other\n", 1)
    )
    manifests = rendered(folder)
    assert [m["metadata"]["name"] for m in manifests if m["kind"] == "NetworkPolicy"] == ["dask-other"]
    assert matches(policy(manifests)["selected"][0], {"dask.org/cluster-name": "other"})
    assert not matches(policy(manifests)["selected"][0], {"dask.org/cluster-name": "dsel"})


def installation(folder: Path, variant: str, job: dict[str, Any]) -> Path:
    """A copy of deploy/kubernetes with an operator's values."""
    shutil.copytree(DEPLOY, folder)
    (folder / variant / "config").mkdir(exist_ok=True)
    (folder / variant / "config" / "job.yaml").write_text(yaml.safe_dump(job))
    for name in (f"{variant}/kustomization.yaml", f"{variant}/config/cluster.yaml", "values/values.env"):
        path = folder / name
        if path.exists():
            text = path.read_text().replace("workers: 4", "workers: 2").replace("memory: 4GiB", "memory: 700MiB")
            text = text.replace("replicas, value: 4", "replicas, value: 2").replace("0 3 * * *", "5 4 * * 1")
            text = text.replace("registry.example.org/dsel:0.1.0", "here/dsel:7.0.0").replace("172800", "3600")
            path.write_text(text.replace("Etc/UTC", "Europe/Oslo").replace("CLAIM=dsel-data", "CLAIM=mine"))
    return folder / variant


@pytest.mark.parametrize("variant", VARIANTS)
def test_image_size_schedule_and_job_file_are_values(tmp_path: Path, variant: str) -> None:
    manifests = rendered(installation(tmp_path / "k", variant, {"store": "s3://bucket/data.zarr", "k": 3}))
    by_kind = {m["kind"]: m for m in manifests}
    images = {c["image"] for m in manifests for pod in pod_specs(m) for c in pod["containers"]}
    assert images == {"here/dsel:7.0.0"}
    claims = {v["persistentVolumeClaim"]["claimName"] for m in manifests for pod in pod_specs(m) for v in pod["volumes"]
              if "persistentVolumeClaim" in v}  # fmt: skip
    assert claims <= {"mine", "dsel-results"}
    assert "'activeDeadlineSeconds': 3600" in str(manifests)
    if variant == "ingest":
        return
    config = next(m["data"] for m in manifests if m["kind"] == "ConfigMap" and "job.yaml" in m["data"])
    assert yaml.safe_load(config["job.yaml"]) == {"store": "s3://bucket/data.zarr", "k": 3}
    assert "workers: 2" in config["cluster.yaml"]
    if variant == "daskjob":
        assert by_kind["DaskJob"]["spec"]["cluster"]["spec"]["worker"]["replicas"] == 2
    else:
        container = next(pod for m in manifests for pod in pod_specs(m))["containers"][0]
        assert {"name": "DSEL_IMAGE", "value": "here/dsel:7.0.0"} in container["env"]
    if variant == "cronjob":
        assert by_kind["CronJob"]["spec"]["schedule"] == "5 4 * * 1"
        assert by_kind["CronJob"]["spec"]["timeZone"] == "Europe/Oslo"


@pytest.mark.parametrize("variant", VARIANTS)
def test_components_are_added_by_a_line(tmp_path: Path, variant: str) -> None:
    folder = installation(tmp_path / "k", variant, {"store": "s3://bucket/data.zarr", "k": 3})
    text = (folder / "kustomization.yaml").read_text()
    listed = ", ".join(["../values", *(f"../components/{name}" for name in COMPONENTS)])
    (folder / "kustomization.yaml").write_text(text.replace("components: [../values]", f"components: [{listed}]"))
    manifests = rendered(folder)
    assert {m["metadata"]["name"]: wrong(m) for m in manifests if wrong(m)} == {}
    by_name = {(m["kind"], m["metadata"]["name"]): m for m in manifests}
    for manifest in manifests:
        for pod in pod_specs(manifest):
            if manifest["metadata"]["name"] != "dsel-retention":
                assert pod["imagePullSecrets"] == [{"name": "dsel-registry"}]
                assert pod["tolerations"][0]["value"] == pod["nodeSelector"]["dsel-pool"] == "batch"
            assert all(container["image"] == "here/dsel:7.0.0" for container in pod["containers"])
    policy = by_name["NetworkPolicy", "dsel-metrics"]["spec"]["ingress"][0]
    assert policy["from"][0]["namespaceSelector"]["matchExpressions"][0]["values"] == ["monitoring"]
    assert by_name["CronJob", "dsel-retention"]["spec"]["timeZone"] == "Europe/Oslo"


def test_alerts_use_metrics_that_exist() -> None:
    rules = yaml.safe_load((DEPLOY / "components" / "monitoring" / "alerts.yaml").read_text())
    used = set(re.findall(r"\bdsel_\w+", str(rules["spec"]["groups"])))
    assert used
    assert used <= {name for name, _ in _GAUGES.values()}


def test_retention_removes_old_results_alone(tmp_path: Path) -> None:
    job = yaml.safe_load((DEPLOY / "components" / "retention" / "retention.yaml").read_text())
    (container,) = next(pod_specs(job))["containers"]
    for name in ("old", "new", "artefacts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ("statistics" if name == "artefacts" else "job.json")).touch()
    for path in (
        *(tmp_path / "old").iterdir(),
        tmp_path / "old",
        *(tmp_path / "artefacts").iterdir(),
        tmp_path / "artefacts",
    ):
        os.utime(path, (0, 0))
    script = [word.replace("/results", str(tmp_path)) for word in container["args"]]
    environment = {**os.environ, "KEEP_RESULTS_DAYS": "90"}
    found = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"new", "artefacts"}


#: The names of the stand-in's services lead to this machine.
NAMES = """
import socket
plain_lookup = socket.getaddrinfo
def lookup(host, *args, **kwargs):
    here = isinstance(host, str) and host.endswith(".default")
    return plain_lookup("127.0.0.1" if here else host, *args, **kwargs)
socket.getaddrinfo = lookup
"""


class StandInCluster:
    """The stand-in, with the unmodified operator at work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def kubectl(self, *words: str, text: str | None = None) -> str:
        command = [str(KUBECTL), f"--kubeconfig={self.folder / 'kubeconfig'}", *words]
        found = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300)
        assert found.returncode == 0, found.stderr
        return found.stdout

    def create(self, manifests: list[Any]) -> None:
        self.kubectl("create", "--validate=false", "-f", "-", text=yaml.safe_dump_all(manifests))

    def get(self, what: str, name: str = "") -> Any:
        return json.loads(self.kubectl("get", what, *filter(None, [name]), "-o", "json"))

    def pods(self, component: str) -> list[Any]:
        found: list[Any] = self.kubectl_items(f"dask.org/component={component}")
        return found

    def kubectl_items(self, selector: str) -> list[Any]:
        return list(json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"])

    def logs(self) -> str:
        return "\n".join(f"--- {p.name}\n{p.read_text()[-3000:]}" for p in sorted(self.folder.glob("*.log")))

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 400.0
        while not (found := condition()):
            assert time.monotonic() < deadline, f"it did not happen\n{self.logs()}"
            time.sleep(0.7)  # most conditions start kubectl
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInCluster]:
    if KUBECTL is None:
        pytest.skip("no kubectl here")
    folder = tmp_path_factory.mktemp("kubernetes")
    (folder / "claims" / "dsel-data").mkdir(parents=True)
    make_store(folder / "claims" / "dsel-data" / "data.zarr", X, Y, chunks=(200, 24))
    held = at_start(folder / "held", HELD_READS.format(gate=str(folder / "may-read")) + NAMES)
    environment = {
        **os.environ, "PYTHONPATH": f"{held}:{ROOT}", "KUBECONFIG": str(folder / "kubeconfig.driver"),
        "PATH": f"{commands(folder / 'bin')}:{os.environ['PATH']}",
    }  # fmt: skip
    server = [sys.executable, "-m", "tests.deploy.kubernetes_stand_in", str(folder)]
    operator = [sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces", "-m",
                "dask_kubernetes.operator.controller"]  # fmt: skip
    cluster = StandInCluster(folder)
    started = []
    try:
        for name, command in (("server", server), ("operator", operator)):
            if name == "operator":
                environment = {**environment, "KUBECONFIG": str(folder / "kubeconfig.operator")}
            with (folder / f"{name}.log").open("w") as log:
                started.append(subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log))
            cluster.wait_for((folder / "kubeconfig").exists)
        yield cluster
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return dsel.select(X, Y, k=5, **SEARCH)


def job_file(cluster: StandInCluster) -> dict[str, Any]:
    store = cluster.folder / "claims" / "dsel-data" / "data.zarr"
    return {"store": str(store), "k": 5, "options": SEARCH, "statistics_folder": str(cluster.folder / "artefacts")}


def test_on_a_stand_in_the_operator_runs_the_daskjob_to_success_with_a_worker_killed(
    cluster: StandInCluster, tmp_path: Path, expected: Any
) -> None:
    cluster.create(rendered(installation(tmp_path / "k", "daskjob", job_file(cluster))))

    def driver_log() -> str:
        path = cluster.folder / "dsel-runner.log"
        return path.read_text() if path.exists() else ""

    cluster.wait_for(lambda: "2 of 2 workers are ready" in driver_log())
    ours = policy(rendered(DEPLOY / "daskjob"))
    for pod in [*cluster.pods("worker"), *cluster.pods("scheduler")]:  # with the labels that the operator gave them
        assert any(matches(selector, pod["metadata"]["labels"]) for selector in ours["selected"])
        assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "dsel"
    victim = cluster.pods("worker")[0]["status"]["pid"]
    os.killpg(victim, signal.SIGKILL)
    cluster.wait_for(lambda: victim not in {pod["status"]["pid"] for pod in cluster.pods("worker")})
    assert '"stage": "search"' not in driver_log()
    (cluster.folder / "may-read").touch()
    cluster.wait_for(lambda: cluster.get("daskjob", "dsel").get("status", {}).get("jobStatus") == "Successful")
    found = dsel.open_selection(cluster.folder / "claims" / "dsel-results" / "dsel")
    assert found.indices == expected.indices
    assert found.error == pytest.approx(expected.error, rel=1e-12)
    lines = [json.loads(line) for line in driver_log().splitlines() if line.startswith("{")]
    assert len({line["run"] for line in lines}) == 1
    cluster.kubectl("delete", "daskjob", "dsel", "--wait=false")
    cluster.wait_for(lambda: not cluster.kubectl_items("dask.org/cluster-name=dsel"))


def test_on_a_stand_in_a_driver_makes_its_own_cluster_within_its_role(
    cluster: StandInCluster, tmp_path: Path, expected: Any
) -> None:
    (cluster.folder / "may-read").touch()
    manifests = rendered(installation(tmp_path / "k", "job", job_file(cluster)))
    by_kind = {m["kind"]: m for m in manifests}
    pod = by_kind["Job"]["spec"]["template"]  # the stand-in runs pods; the controller of Jobs is not in it
    labels = {"batch.kubernetes.io/job-name": "dsel-7", "batch.kubernetes.io/controller-uid": "uid-7"}
    pod = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": "dsel-7-a", "labels": labels}}
    config = next(m for m in manifests if m["kind"] == "ConfigMap" and "job.yaml" in m["data"])
    cluster.create([config, pod])
    cluster.wait_for(lambda: cluster.get("daskclusters")["items"])
    assert cluster.get("daskclusters")["items"][0]["metadata"]["name"] == "dsel-7"
    ended = cluster.wait_for(lambda: cluster.get("pod", "dsel-7-a")["status"]["phase"] in ("Succeeded", "Failed"))
    assert ended
    assert cluster.get("pod", "dsel-7-a")["status"]["phase"] == "Succeeded", cluster.logs()
    assert dsel.open_selection(cluster.folder / "claims" / "dsel-results" / "dsel-7").indices == expected.indices
    assert cluster.get("daskclusters")["items"] == []

    allowed = {
        (verb, group, resource)
        for rule in by_kind["Role"]["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    asked = {tuple(a[1:]) for a in json.loads(cluster.kubectl("get", "--raw", "/asked")) if a[0] == "Bearer driver"}
    assert asked
    assert asked <= allowed


def test_another_driver_starts_after_a_lost_cluster_lost_storage_or_a_signal() -> None:
    """These exit codes do not fail the Job; those that another try cannot change do."""
    text = (DEPLOY / "job" / "job.yaml").read_text()
    (job,) = [document for document in yaml.safe_load_all(text) if document["kind"] == "Job"]
    rules = job["spec"]["podFailurePolicy"]["rules"]
    failing = {code for rule in rules if rule["action"] == "FailJob" for code in rule["onExitCodes"]["values"]}
    assert not failing & {ClusterError.exit_code, StorageError.exit_code, Interrupted.exit_code}
    assert {OptionError.exit_code, DataError.exit_code, DselError.exit_code} <= failing
    assert job["spec"]["backoffLimit"] > 0
