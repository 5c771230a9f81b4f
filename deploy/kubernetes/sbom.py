"""Write what this Python environment and its Debian system hold as a bill of materials in SPDX 2.3.

usage: python -I sbom.py FILE    (with the Python of the environment; the Dockerfile does so)
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import uuid
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = "dsel"


def package(kind: str, name: str, version: str, licence: str, purl: str) -> dict[str, Any]:
    """Return one package of the document."""
    return {
        "name": name,
        "SPDXID": f"SPDXRef-{kind}-{re.sub('[^A-Za-z0-9.]', '-', name)}",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:{purl}@{quote(version)}",
            }
        ],
    }


def python_package(distribution: Distribution) -> dict[str, Any]:
    """Return an installed package; its licence is stated if its metadata have an SPDX expression."""
    name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
    licence = distribution.metadata.get("License-Expression") or "NOASSERTION"
    return package("python", name, distribution.version, licence, f"pypi/{name}")


def debian_packages() -> list[dict[str, Any]]:
    """Return the packages of the Debian system, or none on another system."""
    if shutil.which("dpkg-query") is None:
        return []
    form = "${binary:Package}\t${Version}\t${Architecture}\t${db:Status-Status}\n"
    listed = subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in listed.splitlines()]
    return [
        package("deb", name, version, "NOASSERTION", f"deb/debian/{name.split(':')[0]}")
        for name, version, _, status in rows
        if status == "installed"
    ]


def document() -> dict[str, Any]:
    """Return the bill of materials: dsel, what it depends on, the interpreter and the system."""
    # The same package is met twice where its source folder is on the path, too; Python imports the first.
    first = {p["name"]: p for p in reversed([python_package(d) for d in distributions()])}
    installed = [first[name] for name in sorted(first)]
    (root,) = (p for p in installed if p["name"] == ROOT)
    interpreter = package("generic", "cpython", platform.python_version(), "Python-2.0", "generic/python")
    rest = [*(p for p in installed if p is not root), interpreter, *debian_packages()]
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    content = json.dumps([root, *rest], sort_keys=True)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{ROOT}-{root['versionInfo']}",
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "creators": ["Tool: dsel-deploy-kubernetes-sbom"],
        },
        "packages": [root, *rest],
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": root["SPDXID"],
            },
            *(
                {"spdxElementId": root["SPDXID"], "relationshipType": "DEPENDS_ON", "relatedSpdxElement": p["SPDXID"]}
                for p in rest
            ),
        ],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(document(), indent=1) + "\n")
