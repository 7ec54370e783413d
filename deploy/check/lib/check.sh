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

# starts N WHAT START READY STOP: how long N starts take from START until READY succeeds, each ended by STOP.  Printed for
# docs/performance/deployment.md; no time decides whether a part passes.
starts() {
	n=$1
	: >"$WORK/starts"
	while [ "$n" -gt 0 ]; do
		n=$((n - 1)) began=$(date +%s%N)
		$3
		until $4 >/dev/null 2>&1; do
			[ $(($(date +%s%N) - began)) -lt 60000000000 ] || fail "waited in vain for $2"
		done
		echo $((($(date +%s%N) - began) / 1000000)) >>"$WORK/starts"
		$5
	done
	sort -n "$WORK/starts" | awk -v what="$2" '{ ms[NR] = $1 } END {
		printf "%s: ready after %d ms (median of %d starts; %d to %d ms)\n", what, ms[int((NR + 1) / 2)], NR, ms[1], ms[NR] }'
}

# The commands of a page of docs/ are the lines of its indented blocks; the part runs each of them:
#   documented PAGE RUN COMMAND   COMMAND is such a line; RUN: how it is run (machine)
#   all_documented PAGE           no line was left out
documented() {
	grep -qFx -e "    $3" "$1" || fail "$1 has no line \"$3\""
	printf '%s\n' "    $3" >>"$WORK/documented"
	echo "\$ $3"
	$2 sh -c "$3"
}

all_documented() {
	touch "$WORK/documented"
	missing=$(grep '^    [^ ]' "$1" | grep -vFx -f "$WORK/documented" || true)
	[ -z "$missing" ] || fail "$1 has commands that nothing runs: $missing"
}

# Where cgroups of version 1 are mounted beside those of version 2, container runtimes refuse: the part goes on in a mount
# namespace with those of version 2 alone, in a folder of its own.
with_cgroup2() {
	[ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ] && [ -z "${IN_CGROUP2:-}" ] || return 0
	mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	[ -n "$mount" ] || not_run "cgroups of version 2 are missing (no mount of cgroup2)"
	cgroup=$mount$(sed -n 's/^0:://p' /proc/self/cgroup)/quern-check-$$
	mkdir "$cgroup" 2>/dev/null || not_run "cgroups are missing: $cgroup cannot be made"
	status=0
	IN_CGROUP2=1 unshare --mount --cgroup sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo 0 >"/sys/fs/cgroup$1/cgroup.procs" &&
		shift && exec "$@"' sh "${cgroup#"$mount"}" "$0" || status=$?
	find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
	exit $status
}
