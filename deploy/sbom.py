#!/usr/bin/env python3
"""Writes the components of the programs as SPDX 2.3 (JSON): quern, and every library that they link, with its Debian
package, version and licences.

    sbom.py BUILD OUT.spdx.json

ldd names the libraries of BUILD/bin; packages and versions come from dpkg.  A package's declared licences are all licences
in its machine-readable copyright file, except those of debian/; some apply only to its programs, tests or documents.  If
the copyright file is not machine-readable, nothing is asserted."""

import hashlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Debian's short names, by SPDX's names.
SPDX = {
    "apache-2.0": "Apache-2.0", "bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause", "bsd-4-clause": "BSD-4-Clause",
    "boost-1.0": "BSL-1.0", "bsl-1.0": "BSL-1.0", "cc0-1.0": "CC0-1.0", "curl": "curl", "expat": "MIT", "mit": "MIT", "isc": "ISC",
    "gpl-2": "GPL-2.0-only", "gpl-2+": "GPL-2.0-or-later", "gpl-2.0+": "GPL-2.0-or-later", "gpl-3": "GPL-3.0-only",
    "gpl-3+": "GPL-3.0-or-later", "gpl-3.0+": "GPL-3.0-or-later", "lgpl-2": "LGPL-2.0-only", "lgpl-2+": "LGPL-2.0-or-later",
    "lgpl-2.0+": "LGPL-2.0-or-later", "lgpl-2.1": "LGPL-2.1-only", "lgpl-2.1+": "LGPL-2.1-or-later", "lgpl-3": "LGPL-3.0-only",
    "lgpl-3+": "LGPL-3.0-or-later", "lgpl-3.0+": "LGPL-3.0-or-later", "openldap-2.8": "OLDAP-2.8", "zlib": "Zlib",
}


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


def libraries(programs):
    """Return the paths of all libraries that the programs link, by ldd."""
    found = set()
    for program in programs:
        for line in run("ldd", program).splitlines():
            path = line.strip().partition(" => ")[2] or line.strip()
            path = path.split(" (")[0]
            if path.startswith("/"):
                found.add(path)
    return sorted(found)


def packages_of(paths):
    """Return {path: Debian package with this file}. /lib may be a link to /usr/lib, so each of the path's names is
    tried."""
    names = {name: path for path in paths
             for name in (path, str(Path(path).resolve()), path.removeprefix("/usr"), "/usr" + path)}
    # dpkg-query fails if one name is unknown, but lists the others.
    out = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True).stdout
    found = {}
    for line in out.splitlines():
        package, _, name = line.partition(": ")
        if name in names:
            found[names[name]] = package.split(",")[0]
    return found


def licences(package):
    """Return Debian's licence expressions for the source package's files, from its copyright file; []: not
    machine-readable."""
    path = Path("/usr/share/doc") / package.split(":")[0] / "copyright"
    text = path.read_text(errors="replace") if path.exists() else ""
    if "copyright-format/1.0" not in text:
        return []
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(Files|License):[ \t]*(.*(?:\n[ \t]+.*)*)", stanza, re.M))
        name = fields.get("License", "").split("\n")[0].strip()
        files = [f for f in fields.get("Files", "").split() if not f.startswith("debian/")]
        if name and files and name not in found:
            found.append(name)
    return found


def expression(name, own):
    """Convert Debian's expression to SPDX's. Names that SPDX does not have become references, collected in own."""
    def one(word):
        word = word.strip(" ,")
        known = SPDX.get(word.lower())
        if known:
            return known
        ref = "LicenseRef-debian-" + (re.sub(r"[^A-Za-z0-9.]+", "-", word).strip("-") or "unnamed")
        own[ref] = word
        return ref
    parts = re.split(r"\s+(and/or|and|or)\s+", name)
    joined = [one(p) if i % 2 == 0 else {"and": "AND"}.get(p, "OR") for i, p in enumerate(parts)]
    return joined[0] if len(joined) == 1 else "(" + " ".join(joined) + ")"


def package_entry(package, files, own):
    version, architecture, maintainer, source, homepage = run(
        "dpkg-query", "-W", "-f", "${Version}\t${Architecture}\t${Maintainer}\t${source:Package}\t${Homepage}", package).split("\t")
    name = package.split(":")[0]
    found = licences(package)
    return {
        "SPDXID": "SPDXRef-Package-" + re.sub(r"[^A-Za-z0-9.]+", "-", name), "name": name, "versionInfo": version,
        "supplier": "Organization: " + maintainer, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        **({"homepage": homepage} if homepage else {}),
        "sourceInfo": f"Debian source package {source}; linked: " + ", ".join(sorted(files)),
        "licenseConcluded": "NOASSERTION", "licenseDeclared": " AND ".join(expression(f, own) for f in found) or "NOASSERTION", "copyrightText": "NOASSERTION",
        "licenseComments": f"from /usr/share/doc/{name}/copyright",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}"
                                              f"?arch={architecture}"}],
    }


def main(build, out):
    version = run(ROOT / "deploy" / "version.sh").strip()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(run(ROOT / "deploy" / "version.sh", "time"))))
    programs = sorted((Path(build) / "bin").glob("quern*"))
    if not programs:
        sys.exit(f"sbom.py: {build}/bin has no programs: run make first")
    own, packages, linked = {}, {}, {}
    paths = libraries(programs)
    of = packages_of(paths)
    for path in paths:
        if path not in of:
            sys.exit(f"sbom.py: {path} is from no Debian package: its origin cannot be named")
        linked.setdefault(of[path], []).append(Path(path).name)
    for package, files in sorted(linked.items()):
        packages[package] = package_entry(package, files, own)
    quern = {
        "SPDXID": "SPDXRef-Package-quern", "name": "quern", "versionInfo": version, "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION",
        "supplier": "Organization: the quern developers", "primaryPackagePurpose": "APPLICATION"}
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", quern["SPDXID"])]
    relations += [(quern["SPDXID"], "DYNAMIC_LINK", p["SPDXID"]) for p in packages.values()]
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"quern-{version}",
        "creationInfo": {"created": created, "creators": ["Tool: quern-deploy-sbom.py", "Organization: the quern developers"]},
        "packages": [quern, *packages.values()],
        "relationships": [dict(zip(("spdxElementId", "relationshipType", "relatedSpdxElement"), r)) for r in relations],
        "hasExtractedLicensingInfos": [{"licenseId": ref, "name": name,
                                        "extractedText": f"See the copyright files of the packages that name \"{name}\"."}
                                       for ref, name in sorted(own.items())],
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    document["documentNamespace"] = f"https://quern.invalid/spdx/quern-{version}-{digest[:16]}"
    Path(out).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    print(f"{out}: quern {version} and {len(packages)} packages")


if __name__ == "__main__":
    main(*sys.argv[1:])
