"""Checks manifests of deploy/kubernetes against Kubernetes' published schemas, and against each other."""

import pathlib

import kubernetes_validate
import yaml

FOLDER = pathlib.Path("deploy/kubernetes")
VERSION = "1.34"


def documents():
    for path in sorted(FOLDER.glob("*.yaml")):
        for doc in yaml.safe_load_all(path.read_text()):
            yield path.name, doc


def labels_of(doc):
    return doc["spec"]["template"]["metadata"]["labels"]


def selects(selector, labels):
    return all(labels.get(k) == v for k, v in selector.items())


def check_schemas(docs):
    for name, doc in docs:
        if doc["apiVersion"].startswith(("kustomize", "keda", "monitoring.coreos.com")):
            continue  # Kubernetes publishes no schema for it
        kubernetes_validate.validate(doc, VERSION, strict=True)
        print(f"{name}: {doc['kind']} {doc['metadata']['name']} is valid")


def check_references(docs):
    kinds = {(d["kind"], d["metadata"]["name"]): d for _, d in docs if "spec" in d}
    pods = {name: labels_of(d) for (_, name), d in kinds.items() if "template" in d["spec"]}
    assert pods
    for (kind, name), d in kinds.items():
        spec = d["spec"]
        if kind in ("StatefulSet", "Deployment"):
            assert selects(spec["selector"]["matchLabels"], labels_of(d)), name
        if kind == "StatefulSet":
            assert ("Service", spec["serviceName"]) in kinds, name
        if kind == "Service":
            assert sum(selects(spec["selector"], p) for p in pods.values()) == 1, name
        if kind == "NetworkPolicy":
            assert any(selects(spec["podSelector"]["matchLabels"], p) for p in pods.values()), name
        if kind == "PodDisruptionBudget":
            assert any(selects(spec["selector"]["matchLabels"], p) for p in pods.values()), name
        if kind == "ServiceMonitor":
            services = [s for (k, _), s in kinds.items()
                        if k == "Service" and selects(spec["selector"]["matchLabels"], s["metadata"]["labels"])]
            for e in spec["endpoints"]:
                (s,) = [s for s in services if e["port"] in [p["name"] for p in s["spec"]["ports"]]]
                assert s["spec"]["publishNotReadyAddresses"], name
        if kind == "ScaledObject":
            assert ("Deployment", spec["scaleTargetRef"]["name"]) in kinds, name
    # The host that workers connect to is a service, and its port is the bus's.
    for (_, name), d in kinds.items():
        for c in d["spec"].get("template", {}).get("spec", {}).get("containers", []):
            for arg in c["args"]:
                if arg.startswith("--bus=tcp://quern"):
                    host, port = arg.removeprefix("--bus=tcp://").split(":")
                    ports = kinds["Service", host]["spec"]["ports"]
                    assert int(port) in [p["port"] for p in ports], name


def check_kustomization(docs):
    (k,) = [d for _, d in docs if d["kind"] == "Kustomization"]
    names = {n for n, _ in docs}
    assert set(k["resources"]) <= names, set(k["resources"]) - names
    images = {c["image"] for _, d in docs if "template" in d.get("spec", {})
              for c in d["spec"]["template"]["spec"]["containers"]}
    assert images == {i["name"] for i in k["images"]}, images


docs = list(documents())
check_schemas(docs)
check_references(docs)
check_kustomization(docs)
