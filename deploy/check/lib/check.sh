# What the parts of deploy/check share; sourced by them: `. deploy/check/lib/check.sh`.  It sets -eu.
set -eu

# The part cannot be run here, and what would change that.
not_run() {
	echo "not run: $*"
	exit 77
}

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

step() {
	echo "== $*"
}

# Debian packages that the part needs beside those of the build: installed, or the part is not run.
packages() {
	deploy/deps.sh packages "$@" || not_run "packages are missing: $*"
}

need_root() {
	[ "$(id -u)" = 0 ] || not_run "root is missing: run make deploy-check as root"
}

# Namespaces of their own for mounts, processes and the network, as containers and chroots here have them.
need_namespaces() {
	unshare --mount --pid --net --fork --mount-proc true 2>/dev/null ||
		not_run "namespaces of mounts, processes and the network are missing (unshare fails)"
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
	left=$(($1 * 5)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		left=$((left - 1))
		[ $left -gt 0 ] || fail "waited in vain for $what"
		sleep 0.2
	done
}
