#!/bin/sh
# proof.sh BIN MODEL - show the promise of the first page: the same tokens, whatever is killed.
#
#   1  a story, undisturbed
#   2  the same request; in the middle the worker gets kill -9, and the stream goes on
#   3  the same request as a durable job; in the middle every process gets kill -9, and the service is started again
#
# Compares both texts with the first, byte for byte.  The story fills the model's context, so that there is time to kill.
# Exit status: 0 equal, 1 not, 2 the service does not work.  Takes about 20 seconds.
set -eu
BIN=$1 MODEL=$2
DIR=$(mktemp -d)
TO=ipc://$DIR/jobs
service=

say() { printf '%s\n' "$*"; }
fail() { say "proof: $*" >&2; tail -n 5 "$DIR/log" >&2; exit 2; }

# Print the pids of the service: what was started here, and its children.
processes() {
	for stat in /proc/[0-9]*/stat; do
		# shellcheck disable=SC2034
		{ read -r pid name state parent rest <"$stat" || continue; } 2>/dev/null
		[ "$parent" != "$service" ] || echo "$pid"
	done
	echo "$service"
}

start() {
	"$BIN/quern" serve "$MODEL" --jobs "$TO" --http none --journal "$DIR/journal" >>"$DIR/log" 2>&1 &
	service=$!
	tries=0
	until "$BIN/quern" status --to "$TO" >/dev/null 2>&1; do
		kill -0 "$service" 2>/dev/null || fail "the service does not start"
		tries=$((tries + 1))
		[ "$tries" -lt 600 ] || fail "the service does not answer"
		sleep 0.1
	done
}

# shellcheck disable=SC2317
finish() {
	[ -z "$service" ] || kill "$service" 2>/dev/null || :
	wait
	rm -rf "$DIR"
}
trap finish EXIT
trap 'exit 2' INT TERM

# The one request, as a stream or a durable job.
submit() {
	"$BIN/quern" submit --to "$TO" --raw "Once upon a time" --seed 7 --temperature 1 --ignore-eos --max-tokens 1900 "$@"
}

# Print the number of tokens that the running job has made.
made() {
	"$BIN/quern" jobs --json --to "$TO" | sed -n 's/.*"state":"running"[^}]*"completion_tokens":\([0-9]*\).*/\1/p'
}

# Wait until the job has made a part of its tokens; false if it has ended before that was seen ("$@" fails then).
until_part() {
	tries=0
	until [ "$(made || :)" -ge 60 ] 2>/dev/null; do
		"$@" || return 1
		tries=$((tries + 1))
		[ "$tries" -lt 600 ] || fail "the job makes no progress"
		sleep 0.1
	done
}

# shellcheck disable=SC2317
stream_runs() { kill -0 "$stream" 2>/dev/null; }
# shellcheck disable=SC2317
job_runs() { ! "$BIN/quern" result "$job" --to "$TO" >/dev/null 2>&1; }

# A busy machine may look too late: then the job is submitted again.
submit_stream() {
	until
		submit >"$DIR/stream" 2>>"$DIR/log" &
		stream=$!
		until_part stream_runs
	do
		wait "$stream" || fail "the stream ends with an error"
	done
}

submit_job() {
	until
		job=$(submit --durable --detach)
		until_part job_runs
	do :; done
}

# Compare text $1 with the undisturbed one; $2 says what happened to it.
compare() {
	if cmp -s "$DIR/calm" "$DIR/$1"; then
		say "   $2: $(wc -c <"$DIR/$1") bytes, equal"
	else
		say "   $2: DIFFERENT"
		result=1
	fi
}

result=0
start
say "1  A story of 1,900 tokens, undisturbed:"
submit >"$DIR/calm" || fail "the first job fails"
say "   $(head -c 60 "$DIR/calm" | tr '\n' ' ')..., $(wc -c <"$DIR/calm") bytes"

say "2  The same request as a stream:"
submit_stream
worker=$("$BIN/quern" workers --json --to "$TO" | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')
say "   after $(made) tokens: kill -9 $worker (the worker)"
kill -9 "$worker"
wait "$stream" || fail "the stream ends with an error"
compare stream "the stream went on"

say "3  The same request as a durable job:"
submit_job
all=$(processes | tr '\n' ' ')
say "   after $(made) tokens: kill -9 $all(every process)"
# shellcheck disable=SC2086
kill -9 $all 2>/dev/null || :
wait "$service" 2>/dev/null || :
start
say "   the service is started again"
tries=0
until "$BIN/quern" result "$job" --to "$TO" >"$DIR/job" 2>>"$DIR/log"; do
	tries=$((tries + 1))
	[ "$tries" -lt 600 ] || fail "the job does not end"
	sleep 0.1
done
compare job "the job went on"
exit $result
