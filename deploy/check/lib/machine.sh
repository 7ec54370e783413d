# A machine of its own for a part: a root from the distribution's archive, with systemd as process 1 in namespaces of
# mounts, processes, network (loopback alone), host name and cgroups.  Sourced after check.sh; root is needed.
#   machine_root PACKAGE...   makes the root $WORK/root, once per list of packages from the archive, else from a copy
#   machine_boot              starts systemd in it
#   machine COMMAND...        runs a command there, as root in /root
# It ends with the part.

machine_root() {
	packages mmdebstrap
	. /etc/os-release
	copy=$BUILD/deploy-check/root-$VERSION_CODENAME-$(echo "$*" | md5sum | cut -c1-8).tar
	if [ ! -f "$copy" ]; then
		apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' "Origin: ${NAME%% *}" |
			sort -u >"$WORK/sources.list"
		[ -s "$WORK/sources.list" ] || not_run "the archive of $NAME is missing in apt's sources"
		mmdebstrap --variant=minbase --skip=cleanup/apt/lists --include="$(echo "$*" | tr ' ' ,)" "$VERSION_CODENAME" \
			"$copy.part" "$WORK/sources.list" --format=tar ||
			not_run "a root from the archive: mmdebstrap failed, see above (no network?)"
		mv "$copy.part" "$copy"
	fi
	mkdir -p "$WORK/root"
	tar -C "$WORK/root" -xf "$copy"
	echo machine >"$WORK/root/etc/hostname"
	echo "127.0.0.1 localhost machine" >"$WORK/root/etc/hosts"
}

# A folder of cgroups (version 2) for the machine's processes.
machine_cgroup() {
	mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	[ -n "$mount" ] || not_run "cgroups of version 2 are missing (no mount of cgroup2)"
	cgroup=$mount$(sed -n 's/^0:://p' /proc/self/cgroup)/quern-check-$$
	mkdir "$cgroup" 2>/dev/null || not_run "cgroups are missing: $cgroup cannot be made"
}

machine_boot() {
	need_namespaces
	machine_cgroup
	trap machine_end EXIT
	(
		echo 0 >"$cgroup/cgroup.procs"
		exec unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child sh deploy/check/lib/init.sh "$WORK/root"
	) >"$WORK/init.log" 2>&1 &
	machine=$!
	wait_for 30 "process 1 of the machine" pgrep -P "$machine"
	init=$(pgrep -P "$machine")
	wait_for 60 "systemd" machine systemctl is-active multi-user.target
}

machine_end() {
	kill -KILL "$machine" 2>/dev/null || true
	wait "$machine" 2>/dev/null || true
	for left in 1 2 3 4 5 6 7 8 9 10; do
		find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null && break
		sleep 0.5
	done
	rm -rf "$WORK/root"
}

machine() {
	nsenter -t "$init" -a env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
		LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive sh -c 'cd && exec "$@"' sh "$@"
}
