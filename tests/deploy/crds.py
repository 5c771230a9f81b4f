"""The dask-kubernetes operator's own definitions of its resources, as JSON schemas."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def _texts() -> tuple[str, ...]:
    import dask_kubernetes

    folder = Path(dask_kubernetes.__file__).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
    return tuple(path.read_text() for path in sorted(folder.glob("*.yaml")))


@cache
def _crds() -> tuple[Any, ...]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(found for text in _texts() for found in yaml.load_all(text, loader) if found)


def crds() -> list[Any]:
    """The CustomResourceDefinitions in the dask-kubernetes package."""
    return list(_crds())


def json_schema(schema: Any, strict: bool) -> Any:
    """A structural schema as a JSON schema; strict: unknown fields are refused, where a server would drop them."""
    if isinstance(schema, list):
        return [json_schema(item, strict) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: json_schema(value, strict) for name, value in schema.items()}
    if found.pop("x-kubernetes-int-or-string", None):
        found.pop("type", None)
        found["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    closed = strict and found.get("type") == "object" and isinstance(found.get("properties"), dict)
    if closed and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    if found.pop("nullable", None) and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
    return found


def problems(manifest: Any) -> list[str]:
    """What is wrong with a resource of the operator."""
    import jsonschema

    for crd in crds():
        if crd["spec"]["names"]["kind"] == manifest["kind"]:
            for version in crd["spec"]["versions"]:
                if manifest["apiVersion"] == f"{crd['spec']['group']}/{version['name']}":
                    schema = json_schema(version["schema"]["openAPIV3Schema"], strict=True)
                    schema["properties"].update(apiVersion={}, kind={}, metadata={})
                    found = jsonschema.Draft7Validator(schema).iter_errors(manifest)
                    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in found]
    return [f"no resource {manifest['kind']} in {manifest['apiVersion']}"]
