#!/bin/bash
# deploy/slurm on a real Slurm: munged, slurmctld and slurmd of Debian as one node, started here with a configuration
# of their own.  A service as a job, jobs submitted, a worker killed, workers of an array that join and leave, and a
# requeue with a durable job.
. deploy/check/lib/check.sh
set -o pipefail
need_root
packages slurm-wlm munge
[ "$(id -un slurm 2>/dev/null)" = slurm ] || not_run "Debian's user slurm is missing"

cd "$WORK"
root=$OLDPWD
node=$(hostname -s)
daemons=()
finish() {
	status=$?
	scancel --me --full --signal=KILL >/dev/null 2>&1
	sleep 1
	if [ ${#daemons[@]} != 0 ]; then # slurmd may wait half an hour for a step that cannot report its end
		kill "${daemons[@]}" 2>/dev/null
		for ((i = 0; i < 20; i++)); do kill -0 "${daemons[@]}" 2>/dev/null && sleep 1; done
		kill -KILL "${daemons[@]}" 2>/dev/null
	fi
	# A step's own daemon outlives them where it could not report its end: ours have our configuration.
	for pid in $(pgrep -x slurmstepd); do
		grep -qzxF "SLURM_CONF=$WORK/slurm.conf" "/proc/$pid/environ" 2>/dev/null && kill -KILL "$pid"
	done
	wait
	[ $status = 0 ] || tail -n 15 ./*.out slurmctld.log slurmd.log controller.log 2>/dev/null
}
trap finish EXIT

step "munge, slurmctld, slurmd"
mkdir -p munge spool state service/keys
chmod 755 "$WORK"
dd if=/dev/urandom of=munge/key bs=1024 count=1 status=none
chown -R munge: munge
chmod 700 munge
chmod 400 munge/key
# The socket's folder must be open to all, and safe for root: not below one that others can write.
install -d -m 755 -o munge /run/quern-check-munge
setpriv --reuid=munge --regid=munge --clear-groups munged --foreground --key-file="$WORK/munge/key" \
	--socket=/run/quern-check-munge/socket --pid-file="$WORK/munge/pid" --log-file="$WORK/munge/log" \
	--seed-file="$WORK/munge/seed" --force >munged.log 2>&1 &
daemons+=($!)
cat >slurm.conf <<CONF
ClusterName=check
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/quern-check-munge/socket
CredType=cred/munge
SlurmctldPort=6917
SlurmdPort=6918
StateSaveLocation=$WORK/state
SlurmdSpoolDir=$WORK/spool
SlurmctldPidFile=$WORK/slurmctld.pid
SlurmdPidFile=$WORK/slurmd.pid
SlurmctldLogFile=$WORK/slurmctld.log
SlurmdLogFile=$WORK/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
JobRequeue=1
NodeName=$node NodeAddr=127.0.0.1 CPUs=8 RealMemory=2048 State=UNKNOWN
PartitionName=all Nodes=$node Default=YES MaxTime=60 State=UP
CONF
export SLURM_CONF=$WORK/slurm.conf
slurmctld -D >slurmctld.out 2>&1 &
daemons+=($!)
slurmd -D -N "$node" >slurmd.out 2>&1 &
daemons+=($!)
wait_for 30 "an idle node" sh -c 'sinfo -h -o %T | grep -q idle'

step "a service as a job"
export PATH=$BUILD/bin:$PATH QUERN_DIR=$WORK/service QUERN_MODEL=$root/models/demo QUERN_HOST=127.0.0.1
export QUERN_HTTP_PORT=18480 QUERN_JOBS_PORT=18420 QUERN_BUS_PORT=18430 QUERN_DRAIN=20 QUERN_REQUEUE=1
quern keygen --fleet --out service/keys >/dev/null
echo "sk-slurm-check-0123456789 name=me" >service/keys/api
chmod 600 service/keys/api
export QUERN_TO=tcp://127.0.0.1:18420 QUERN_KEY=$WORK/service/keys/admin.key QUERN_SERVER_KEY=$WORK/service/keys/service.pub
service=$(sbatch --parsable --ntasks=2 --output=service.out "$root/deploy/slurm/quern.sbatch")
serving() { quern status --json 2>/dev/null | python3 -c '
import json, sys
sys.exit(sum(r["state"] == "serving" for r in json.load(sys.stdin)["replicas"]) != int(sys.argv[1]))' "$1"; }
wait_for 60 "two workers" serving 2
story=(--raw "Once upon a time" --max-tokens 400 --ignore-eos --temperature 1 --seed 3)
quern submit "${story[@]}" >expected.txt
[ "$(wc -c <expected.txt)" -gt 500 ] || fail "a story of $(wc -c <expected.txt) bytes"
same() { cmp "$1" expected.txt || fail "another story: $1"; }

step "a worker is killed"
quern submit "${story[@]}" >killed.txt &
submitted=$!
sleep 0.3
victim=
for p in $(pgrep -x quern-worker); do
	! grep -q "tcp://127.0.0.1:$QUERN_BUS_PORT" "/proc/$p/cmdline" || victim=$p
done
kill -KILL "$victim"
wait $submitted
same killed.txt
wait_for 60 "another worker in its place" serving 2

step "workers of an array join, and leave while jobs run"
array=$(sbatch --parsable --array=0-1 --output=workers-%a.out "$root/deploy/slurm/workers.sbatch")
wait_for 60 "four workers" serving 4
for i in 1 2 3 4; do
	quern submit "${story[@]}" >"left-$i.txt" &
	submits[i]=$!
done
sleep 0.3
scancel --batch --signal=TERM "${array}_0"
wait "${submits[@]}"
for i in 1 2 3 4; do same left-$i.txt; done
wait_for 60 "three workers" serving 3
wait_for 60 "the end of the array's first task" sh -c "! squeue -h -j ${array}_0 2>/dev/null | grep -q ' R '"
! grep -q "worker lost " service.out || grep "worker lost " service.out | grep -q "$victim" || fail "a worker that left was lost"

step "the job is ended before its limit, and goes on with its durable job"
job=$(quern submit "${story[@]}" --durable --detach | awk '{print $1}')
scancel --batch --signal=TERM "$service"
wait_for 300 "the requeued service" sh -c "scontrol show job $service | grep -q 'Restarts=1' && $(declare -f serving); serving 3"
wait_for 60 "the durable job" quern result "$job"
quern result "$job" >durable.txt
same durable.txt
scancel "$service" "$array"
echo "all stories are the same"
