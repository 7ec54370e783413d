#!/bin/sh
# deploy/prometheus: the rules by promtool, and a real Prometheus that reads a service: every rule is evaluated, every
# query of the dashboard has a result, a worker that is killed comes back, and a service that ended is an alert.
. deploy/check/lib/check.sh

# Debian's program, from an installed package or out of one that is not installed: it needs nothing but libc.
if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then
	(cd "$WORK" && apt-get download prometheus && dpkg -x prometheus_*.deb debian) >"$WORK/download" 2>&1 ||
		not_run "prometheus is missing, and apt-get download prometheus fails: $(tail -n 1 "$WORK/download")"
	PATH=$WORK/debian/usr/bin:$PATH
fi

step "promtool: the rules, and what they say of services well and ill"
promtool check config --syntax-only deploy/prometheus/prometheus.yml
promtool check rules deploy/prometheus/quern.rules.yml
(cd deploy/prometheus && promtool test rules quern.test.yml)

step "a service, and a Prometheus that reads it"
python3 deploy/check/lib/prometheus.py "$BUILD" "$WORK"
