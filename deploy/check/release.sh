#!/bin/sh
# A release: the archive is the same twice, has its version without git, and builds; the SBOM names every linked library and is
# valid for SPDX's own tools.
. deploy/check/lib/check.sh
packages git python3 python3-venv
git rev-parse -q --verify HEAD >/dev/null 2>&1 || not_run "a git checkout is missing"
git diff --quiet HEAD || not_run "changes are not committed: make dist refuses them"

step "the archive, twice"
deploy/dist.sh "$WORK/one"
deploy/dist.sh "$WORK/two"
cmp "$WORK/one/SHA256SUMS" "$WORK/two/SHA256SUMS" || fail "two archives of one commit differ"
(cd "$WORK/one" && sha256sum -c SHA256SUMS)

step "unpacked: its version, and the command line built from it"
tar -C "$WORK" -xf "$WORK"/one/quern-*.tar.gz
tree=$(ls -d "$WORK"/quern-*)
[ "$("$tree/deploy/version.sh")" = "$(deploy/version.sh)" ] || fail "the archive has another version"
[ "$("$tree/deploy/version.sh" time)" = "$(deploy/version.sh time)" ] || fail "the archive has another time"
make -s -C "$tree" BUILD=build -j"$(nproc)" build/bin/quern
"$tree/build/bin/quern" --version
rm -rf "$tree"

step "the SBOM, by the SPDX project's validator"
python3 deploy/sbom.py "$BUILD" "$WORK/quern.spdx.json"
venv=$BUILD/deploy-check/venv-spdx
[ -x "$venv/bin/pyspdxtools" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check spdx-tools==0.8.3; } ||
	not_run "spdx-tools of PyPI cannot be installed (no network?)"
"$venv/bin/pyspdxtools" -i "$WORK/quern.spdx.json" || fail "the SBOM is not valid"
