#!/bin/sh
# deploy/kubernetes: every manifest against the published schemas, and what a kubelet would do with the
# pods: their commands, environment, volumes, users and probes, SIGTERM with the grace period; in namespaces.
set -eu
. deploy/check/lib/check.sh

python3 -m venv "$WORK/venv" || not_run "python3-venv is not installed"
"$WORK/venv/bin/pip" install -q --disable-pip-version-check -r deploy/check/lib/requirements-kubernetes.txt ||
	not_run "PyPI is not reached"
"$WORK/venv/bin/python" deploy/check/lib/kubernetes_schemas.py
[ "$(id -u)" = 0 ] || not_run "the manifests are valid, but pods need root: mounts and users"
unshare --mount --net true 2>/dev/null || not_run "the manifests are valid, but namespaces are not allowed here"
exec unshare --mount --net --propagation private "$WORK/venv/bin/python" deploy/check/lib/kubernetes_pods.py
