#!/usr/bin/env python3
"""manifests.py [--kubeconform PROGRAM] FILE...: Kubernetes manifests checked strictly, a field that does not exist is a
fault, against the API of the oldest and the newest version that the PyPI package kubernetes-validate knows; with
--kubeconform also by that program, on the same schemas. Kinds of the Prometheus operator are not Kubernetes' own:
counted, not checked."""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

FOREIGN = "monitoring.coreos.com/"
OLDEST = "1.25.0"


def write_schemas(folder, version, kinds):
    """Of these kinds, each complete in itself, as kubeconform looks for them."""
    source = pathlib.Path(kubernetes_validate.__file__).parent / f"kubernetes-json-schema/v{version}-local-strict"
    definitions = source / "_definitions.json"
    inner = [json.loads(path.read_text().replace("/api/_definitions.json#", "#")) for path in
             (definitions, *(source / f"{kind}.json" for kind in kinds))]
    for kind, schema in zip(kinds, inner[1:]):
        (folder / f"{kind}.json").write_text(json.dumps({**schema, "$defs": inner[0]["$defs"]}))


def schema_name(manifest):
    group, _, version = manifest["apiVersion"].rpartition("/")
    return "-".join(part for part in (manifest["kind"].lower(), group.split(".")[0], version) if part)


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--kubeconform")
    words.add_argument("files", nargs="+")
    args = words.parse_args()
    versions = (OLDEST, kubernetes_validate.latest_version())
    counts, faults, kinds, foreign_kinds = collections.Counter(), [], set(), {"none"}
    for name in args.files:
        for manifest in yaml.safe_load_all(pathlib.Path(name).read_text()):
            if not manifest:
                continue
            foreign = manifest["apiVersion"].startswith(FOREIGN)
            (foreign_kinds.add(manifest["kind"]) if foreign else kinds.add(schema_name(manifest)))
            counts["foreign" if foreign else "checked"] += 1
            for version in () if foreign else versions:
                where = f"{name}: {manifest['kind']} {manifest['metadata']['name']}, Kubernetes {version}"
                try:
                    kubernetes_validate.validate(manifest, version, strict=True)
                except kubernetes_validate.ValidationError as fault:
                    faults.append(f"{where}: {'.'.join(map(str, fault.path))}: {fault.message}")
                except kubernetes_validate.SchemaNotFoundError as fault:
                    faults.append(f"{where}: {fault.message}")
    for version in versions if args.kubeconform else ():
        with tempfile.TemporaryDirectory() as folder:
            write_schemas(pathlib.Path(folder), version, kinds)
            result = subprocess.run(
                [args.kubeconform, "-strict", "-summary", "-kubernetes-version", version, "-skip", ",".join(foreign_kinds),
                 "-schema-location", folder + "/{{.ResourceKind}}{{.KindSuffix}}.json", *args.files],
                capture_output=True, text=True)
        if result.returncode != 0:
            faults.append(f"kubeconform, Kubernetes {version}: {result.stdout}{result.stderr}")
        else:
            print(f"kubeconform, Kubernetes {version}: {result.stdout.strip()}")
    print("\n".join(faults), end="\n" if faults else "")
    print(f"{counts['checked']} manifests checked against Kubernetes {' and '.join(versions)}, "
          f"{counts['foreign']} of the Prometheus operator were not")
    return 1 if faults or not counts["checked"] else 0


if __name__ == "__main__":
    sys.exit(main())
