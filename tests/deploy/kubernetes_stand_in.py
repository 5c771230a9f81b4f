"""A stand-in for a Kubernetes cluster: its API in memory, its pods as processes of this machine.

It is no Kubernetes: no admission beyond the schemas of custom resources, no scheduling, no images, no limits, no
isolation. It serves what the dask-kubernetes operator and its client library ask for, so that both run unmodified.
Volumes are folders: paths under a mount are rewritten in a container's command line.

usage: python -m tests.deploy.kubernetes_stand_in FOLDER    (writes FOLDER/kubeconfig when it is ready)
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import datetime
import json
import os
import re
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import jsonpatch
import jsonschema
import yaml
from aiohttp import web

from tests.deploy.crds import crds, json_schema

Key = tuple[str | None, str]  # namespace, name

BUILT_IN = [
    ("", "v1", "namespaces", "Namespace", False, []),
    ("", "v1", "pods", "Pod", True, ["status", "log"]),
    ("", "v1", "services", "Service", True, ["status"]),
    ("", "v1", "events", "Event", True, []),
    ("", "v1", "configmaps", "ConfigMap", True, []),
    ("", "v1", "serviceaccounts", "ServiceAccount", True, []),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, []),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, []),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", True, []),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True, []),
    ("apps", "v1", "deployments", "Deployment", True, ["status", "scale"]),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, ["status"]),
]


class ApiError(Exception):
    """What the API answers in place of an object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


class Kind:
    """A resource type, its objects and who watches them."""

    def __init__(self, group: str, version: str, plural: str, kind: str, namespaced: bool, parts: list[str]) -> None:
        self.group, self.version, self.plural, self.kind = group, version, plural, kind
        self.namespaced, self.parts = namespaced, parts
        self.schema: Any = None
        self.objects: dict[Key, Any] = {}
        self.watchers: set[asyncio.Queue[Any]] = set()

    @property
    def api(self) -> str:
        return f"{self.group}/{self.version}".strip("/")

    def get(self, key: Key) -> Any:
        if key not in self.objects:
            raise ApiError(404, "NotFound", f'{self.plural} "{key[1]}" not found')
        return self.objects[key]

    def tell(self, event: str, value: Any) -> None:
        for watcher in self.watchers:
            watcher.put_nowait((event, copy.deepcopy(value)))


class StandIn:
    """The objects of a cluster, and what follows from their changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kinds = {(k[0], k[2]): Kind(*k) for k in BUILT_IN}
        self.version = 1
        self.running: dict[Key, asyncio.Task[None]] = {}
        self.background: set[asyncio.Task[None]] = set()
        for crd in crds():
            spec = crd["spec"]
            version = spec["versions"][0]
            names = spec["names"]
            parts = list(version.get("subresources") or {})
            kind = Kind(spec["group"], version["name"], names["plural"], names["kind"], True, parts)
            kind.schema = json_schema(version["schema"]["openAPIV3Schema"]["properties"]["spec"], strict=False)
            self.kinds[kind.group, kind.plural] = kind
            self.create(self.kinds["apiextensions.k8s.io", "customresourcedefinitions"], None, crd)
        self.create(self.kinds["", "namespaces"], None, {"metadata": {"name": "default"}})

    def create(self, kind: Kind, namespace: str | None, value: Any) -> Any:
        metadata = value.setdefault("metadata", {})
        metadata.setdefault("name", f"{metadata.get('generateName', 'x-')}{uuid.uuid4().hex[:5]}")
        if kind.namespaced:
            metadata["namespace"] = namespace or metadata.get("namespace", "default")
        key = (metadata.get("namespace"), metadata["name"])
        if key in kind.objects:
            raise ApiError(409, "AlreadyExists", f'{kind.plural} "{key[1]}" already exists')
        self.check(kind, value)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=now, generation=1)
        value.setdefault("apiVersion", kind.api)
        value.setdefault("kind", kind.kind)
        if kind.plural == "services":
            value["spec"].setdefault("clusterIP", "127.0.0.1")
        if kind.plural == "pods":
            value["status"] = {"phase": "Pending"}
        if kind.plural == "customresourcedefinitions":
            value["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        self.store(kind, key, value, "ADDED")
        return value

    def check(self, kind: Kind, value: Any) -> None:
        if kind.schema is None:
            return
        for error in jsonschema.Draft7Validator(kind.schema).iter_errors(value.get("spec", {})):
            place = ".".join(map(str, error.absolute_path))
            raise ApiError(422, "Invalid", f"{kind.kind} spec.{place}: {error.message}")

    def store(self, kind: Kind, key: Key, value: Any, event: str) -> None:
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        kind.objects[key] = value
        kind.tell(event, value)
        if kind.plural in ("deployments", "pods", "services"):
            task = asyncio.get_running_loop().create_task(self.follow(kind, key))
            self.background.add(task)
            task.add_done_callback(self.background.discard)

    def patch(self, kind: Kind, key: Key, change: Any, part: str | None = None, as_json_patch: bool = False) -> Any:
        old = kind.get(key)
        new = jsonpatch.apply_patch(copy.deepcopy(old), change) if as_json_patch else _merged(old, change)
        if part == "scale":
            new = _merged(old, {"spec": {"replicas": change["spec"]["replicas"]}})
        elif part == "status":
            new = {**old, "status": new.get("status", {})}
        elif "status" in kind.parts and "status" in old:
            new["status"] = old["status"]
        elif "status" in kind.parts:
            new.pop("status", None)
        new["metadata"]["uid"] = old["metadata"]["uid"]
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old:
            return old
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
            self.check(kind, new)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            self.remove(kind, key)
            return new
        self.store(kind, key, new, "MODIFIED")
        return new

    def delete(self, kind: Kind, key: Key) -> Any:
        value = kind.get(key)
        if value["metadata"].get("finalizers"):
            value["metadata"]["deletionTimestamp"] = value["metadata"]["creationTimestamp"]
            self.store(kind, key, value, "MODIFIED")
        else:
            self.remove(kind, key)
        return value

    def remove(self, kind: Kind, key: Key) -> None:
        value = kind.objects.pop(key)
        kind.tell("DELETED", value)
        if kind.plural == "pods" and key in self.running:
            self.running.pop(key).cancel()
        for other in list(self.kinds.values()):
            for owned, found in list(other.objects.items()):
                if value["metadata"]["uid"] in _owners(found) and owned in other.objects:
                    self.delete(other, owned)

    async def follow(self, kind: Kind, key: Key) -> None:
        """What the controllers of a cluster do: pods for deployments, processes for pods."""
        value = kind.objects.get(key)
        if value is None:
            return
        if kind.plural == "pods":
            if key not in self.running:
                self.running[key] = asyncio.get_running_loop().create_task(self.run_pod(key))
            return
        if kind.plural == "services":
            cluster = (key[0], value["metadata"].get("labels", {}).get("dask.org/cluster-name", ""))
            while key in kind.objects and self.is_beginning(cluster):
                await asyncio.sleep(0.05)
            if key in kind.objects and "status" not in kind.objects[key]:
                self.patch(kind, key, {"status": {"loadBalancer": {}}}, "status")
            return
        pods = self.kinds["", "pods"]
        mine = [k for k, pod in pods.objects.items() if value["metadata"]["uid"] in _owners(pod)]
        for _ in range(value["spec"].get("replicas", 1) - len(mine)):
            pod = copy.deepcopy(value["spec"]["template"])
            pod["metadata"].pop("name", None)
            owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": key[1], "uid": value["metadata"]["uid"]}
            pod["metadata"].update(generateName=f"{key[1]}-", ownerReferences=[owner])
            pod["spec"].setdefault("restartPolicy", "Always")
            self.create(pods, key[0], pod)

    def is_beginning(self, cluster: Key) -> bool:
        """Whether the operator has yet to write the first states of a cluster, which would replace "Running"."""
        found = self.kinds["kubernetes.dask.org", "daskclusters"].objects.get(cluster)
        return found is not None and found.get("status", {}).get("phase") in (None, "Created")

    async def run_pod(self, key: Key) -> None:
        """What a node does."""
        pods = self.kinds["", "pods"]
        pod = pods.get(key)
        container = pod["spec"]["containers"][0]
        command, environment = self.command(pod)
        log = self.folder / f"{key[1]}.log"
        again = True
        while again:
            with log.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    *command, env=environment, stdout=output, stderr=output, start_new_session=True
                )
            try:
                ready = {"name": container["name"], "ready": True, "state": {"running": {}}}
                self.patch(pods, key, {"status": {
                    "phase": "Running", "podIP": "127.0.0.1", "pid": process.pid, "containerStatuses": [ready],
                    "conditions": [{"type": t, "status": "True"} for t in ("Ready", "ContainersReady")],
                }}, "status")  # fmt: skip
                code = await process.wait()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                with contextlib.suppress(ProcessLookupError, asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), 10)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
            policy = pod["spec"].get("restartPolicy", "Always")
            again = policy == "Always" or (policy == "OnFailure" and code != 0)
            await asyncio.sleep(0.2)
        ended = {"name": container["name"], "ready": False, "state": {"terminated": {"exitCode": code}}}
        phase = "Failed" if code else "Succeeded"
        self.patch(pods, key, {"status": {"phase": phase, "containerStatuses": [ended]}}, "status")

    def command(self, pod: Any) -> tuple[list[str], dict[str, str]]:
        """Of the one container: its words and variables, with folders in the place of volumes."""
        container = pod["spec"]["containers"][0]
        folders = {v["name"]: self.volume(pod, v) for v in pod["spec"].get("volumes", [])}
        mounts = {m["mountPath"]: folders[m["name"]] for m in container.get("volumeMounts", [])}

        def placed(text: str) -> str:
            text = re.sub(r"[\w-]+\.[\w-]+\.svc\.cluster\.local", "127.0.0.1", text)
            return (
                re.sub(rf"(^|=)({'|'.join(mounts)})(?=/)", lambda m: f"{m[1]}{mounts[m[2]]}", text) if mounts else text
            )

        environment = dict(os.environ)
        for variable in container.get("env") or []:
            reference = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            label = re.fullmatch(r"metadata\.labels\['(.*)'\]", reference)
            value = pod["metadata"]["labels"][label[1]] if label else str(variable.get("value", ""))
            environment[variable["name"]] = placed(value)
        words = [re.sub(r"\$\((\w+)\)", lambda m: environment.get(m[1], m[0]), w) for w in container["args"]]
        return [placed(word) for word in words], environment

    def volume(self, pod: Any, volume: Any) -> Path:
        namespace = pod["metadata"]["namespace"]
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            folder = self.folder / "configmaps" / name
            folder.mkdir(parents=True, exist_ok=True)
            for file, text in self.kinds["", "configmaps"].get((namespace, name))["data"].items():
                (folder / file).write_text(text)
            return folder
        if "persistentVolumeClaim" in volume:
            folder = self.folder / "claims" / volume["persistentVolumeClaim"]["claimName"]
        else:
            folder = self.folder / "tmp" / pod["metadata"]["name"]
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _merged(old: Any, change: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    new = dict(copy.deepcopy(old)) if isinstance(old, dict) else {}
    for name, value in change.items():
        if value is None:
            new.pop(name, None)
        else:
            new[name] = _merged(new.get(name), value)
    return new


def _owners(value: Any) -> set[str]:
    return {owner.get("uid") for owner in value["metadata"].get("ownerReferences") or []}


def _selects(selector: str | None, value: Any) -> bool:
    labels = value["metadata"].get("labels") or {}
    for term in filter(None, re.split(r",(?![^(]*\))", selector or "")):
        if several := re.fullmatch(r"\s*(\S+)\s+in\s*\((.*)\)\s*", term):
            if labels.get(several[1]) not in [v.strip() for v in several[2].split(",")]:
                return False
        elif "=" in term:
            name, wanted = re.split("==?", term)
            if labels.get(name) != wanted:
                return False
        elif term not in labels:
            return False
    return True


def _has_fields(selector: str | None, value: Any) -> bool:
    terms = (term.split("=", 1) for term in (selector or "").replace("==", "=").split(",") if term)
    return all(_at(path, value) == wanted for path, wanted in terms)


def _at(path: str, value: Any) -> Any:
    for part in path.split("."):
        value = value.get(part, {})
    return value


class Server:
    """The API over HTTP."""

    def __init__(self, cluster: StandIn) -> None:
        self.cluster = cluster
        self.asked: set[tuple[str, str, str, str]] = set()  # token, verb, group, resource

    def app(self) -> web.Application:
        app = web.Application(client_max_size=10**8)
        app.router.add_route("*", "/{path:.*}", self.answer)
        return app

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self.handle(request)
        except ApiError as error:
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": error.reason,
                    "message": error.message, "code": error.code}  # fmt: skip
            return web.json_response(body, status=error.code)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.strip("/").split("/")
        groups = sorted({k.group for k in self.cluster.kinds.values() if k.group})
        if path == ["version"]:
            return web.json_response({"major": "1", "minor": "33", "gitVersion": "v1.33.0"})
        if path == ["asked"]:  # not Kubernetes': who has asked for what
            return web.json_response(sorted(self.asked))
        if path == ["api"]:
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        if path == ["apis"]:
            return web.json_response(
                {"kind": "APIGroupList", "apiVersion": "v1", "groups": [self.group(g) for g in groups]}
            )
        if path[0] == "apis" and len(path) == 2:
            return web.json_response(self.group(path[1]))
        group, rest = ("", path[2:]) if path[0] == "api" else (path[1], path[3:])
        if not rest:
            return web.json_response(self.resources(group))
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, part = [*rest, None, None][:3]
        kind = self.cluster.kinds.get((group, str(plural)))
        if kind is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return await self.resource(request, kind, namespace, name, part)

    def group(self, name: str) -> Any:
        version = next(k.version for k in self.cluster.kinds.values() if k.group == name)
        entry = {"groupVersion": f"{name}/{version}", "version": version}
        return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": [entry], "preferredVersion": entry}

    def resources(self, group: str) -> Any:
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        found = [k for k in self.cluster.kinds.values() if k.group == group]
        listed = [
            {"name": name, "singularName": k.kind.lower(), "namespaced": k.namespaced, "kind": k.kind, "verbs": verbs}
            for k in found
            for name in (k.plural, *(f"{k.plural}/{part}" for part in k.parts))
        ]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": found[0].api, "resources": listed}

    async def resource(
        self, request: web.Request, kind: Kind, namespace: str | None, name: str | None, part: str | None
    ) -> web.StreamResponse:
        cluster, method, watch = self.cluster, request.method, request.query.get("watch") in ("true", "True", "1")
        verb = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}.get(method, "get")
        verb = ("watch" if watch else "list") if method == "GET" and name is None else verb
        resource = f"{kind.plural}/{part}" if part else kind.plural
        self.asked.add((request.headers.get("Authorization", ""), verb, kind.group, resource))
        if method == "POST":
            return web.json_response(cluster.create(kind, namespace, await request.json()), status=201)
        if name is None:
            return await (self.watch(request, kind, namespace) if watch else self.list(request, kind, namespace))
        key = (namespace if kind.namespaced else None, name)
        if method == "PATCH":
            as_json_patch = "json-patch" in request.content_type
            change = json.loads(await request.text())
            return web.json_response(cluster.patch(kind, key, change, part, as_json_patch))
        if method == "DELETE":
            return web.json_response(cluster.delete(kind, key))
        if part == "log":
            log = cluster.folder / f"{name}.log"
            return web.Response(text=log.read_text() if log.exists() else "")
        value = kind.get(key)
        if part == "scale":
            replicas = {"replicas": value["spec"].get("replicas", 1)}
            value = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": value["metadata"],
                     "spec": replicas, "status": replicas}  # fmt: skip
        return web.json_response(value)

    def matching(self, request: web.Request, namespace: str | None, value: Any) -> bool:
        query = request.query
        here = namespace is None or value["metadata"].get("namespace") == namespace
        return here and _selects(query.get("labelSelector"), value) and _has_fields(query.get("fieldSelector"), value)

    async def list(self, request: web.Request, kind: Kind, namespace: str | None) -> web.StreamResponse:
        items = [value for value in kind.objects.values() if self.matching(request, namespace, value)]
        metadata = {"resourceVersion": str(self.cluster.version)}
        body = {"kind": f"{kind.kind}List", "apiVersion": kind.api, "metadata": metadata, "items": items}
        return web.json_response(body)

    async def watch(self, request: web.Request, kind: Kind, namespace: str | None) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since = int(request.query.get("resourceVersion") or 0)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        kind.watchers.add(queue)
        for value in kind.objects.values():
            if int(value["metadata"]["resourceVersion"]) > since:
                queue.put_nowait(("ADDED", copy.deepcopy(value)))
        try:
            async with asyncio.timeout(float(request.query.get("timeoutSeconds") or 600)):
                while True:
                    event, value = await queue.get()
                    if self.matching(request, namespace, value):
                        await response.write(json.dumps({"type": event, "object": value}).encode() + b"\n")
        except (TimeoutError, ConnectionResetError):
            pass
        finally:
            kind.watchers.discard(queue)
        return response


def kubeconfig(port: int, token: str) -> str:
    """How clients find it; the token tells them apart in what was asked."""
    return yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "stand-in",
        "clusters": [{"name": "stand-in", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": "user", "namespace": "default"}}],
    })  # fmt: skip


async def serve(folder: Path) -> None:
    """Until SIGTERM; then the pods are ended."""
    cluster = StandIn(folder)
    server = Server(cluster)
    runner = web.AppRunner(server.app(), shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    for token in ("operator", "driver"):
        (folder / f"kubeconfig.{token}").write_text(kubeconfig(port, token))
    (folder / "kubeconfig").write_text(kubeconfig(port, "test"))
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    await over.wait()
    tasks = list(cluster.running.values())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
