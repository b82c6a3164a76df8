#!/usr/bin/env bash
# A real Slurm on one machine, for tests: a controller and two nodes, n1 and n2, that are two slurmd on two ports.
#
#     tests/cluster/cluster.sh install         Debian's slurm-wlm and munge, where they are missing (as root)
#     tests/cluster/cluster.sh start FOLDER    everything of it lies in FOLDER; then: export SLURM_CONF=FOLDER/slurm.conf
#     tests/cluster/cluster.sh node FOLDER n2  start one node again
#     tests/cluster/cluster.sh stop FOLDER
#
# No systemd, no cgroups, no accounting database, no service of the machine is touched. Needs root: slurmd starts jobs
# as the user who submits them.
set -euo pipefail

install() {
    command -v slurmctld >/dev/null && command -v munged >/dev/null && return
    [[ $(id -u) == 0 ]] || { echo "slurm-wlm and munge are missing, and only root can install them" >&2; exit 1; }
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null
}

start() {
    mkdir -p -m 0755 "$folder"/{state,spool,log}
    configure
    dd if=/dev/urandom of="$folder/munge.key" bs=128 count=1 status=none
    chmod 0400 "$folder/munge.key"
    munged --force --key-file "$folder/munge.key" --socket "$folder/munge.socket" --pid-file "$folder/munged.pid" \
        --log-file "$folder/log/munged.log" --seed-file "$folder/munge.seed" --num-threads 2
    slurmctld -c -f "$folder/slurm.conf"
    node n1
    node n2
    wait_for 30 "the nodes to be idle" both_idle
}

configure() {
    local cpus host
    cpus=$(nproc) host=$(hostname)
    cat >"$folder/slurm.conf" <<CONF
ClusterName=claimbench
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${CLAIMBENCH_SLURM_PORT:-16817}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
MaxJobCount=${CLAIMBENCH_SLURM_MAX_JOBS:-100}
# short, for tests: how long a silent node is waited for, and how long a cancelled job may take to end
SlurmdTimeout=6
KillWait=3
MinJobAge=300
SchedulerParameters=batch_sched_delay=0,sched_interval=2
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((${CLAIMBENCH_SLURM_PORT:-16817} + 2)) CPUs=$cpus State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((${CLAIMBENCH_SLURM_PORT:-16817} + 3)) CPUs=$cpus State=UNKNOWN
PartitionName=test Nodes=n1,n2 Default=YES MaxTime=60 State=UP OverSubscribe=EXCLUSIVE
CONF
}

node() {
    mkdir -p "$folder/spool/$1"
    slurmd -N "$1" -f "$folder/slurm.conf"
}

both_idle() { [[ $(SLURM_CONF=$folder/slurm.conf sinfo --noheader --Node --format=%t 2>/dev/null | grep -c '^idle$') == 2 ]]; }

wait_for() {  # SECONDS WHAT COMMAND
    local until=$((SECONDS + $1))
    until "$3"; do
        ((SECONDS < until)) || { echo "waited $1 s for $2; see $folder/log" >&2; tail -n 5 "$folder"/log/*.log >&2; exit 1; }
        sleep 0.3
    done
}

stop() {
    # jobs first: what slurmstepd runs outlives slurmd
    SLURM_CONF=$folder/slurm.conf timeout 10 scancel --user="$(id -un)" 2>/dev/null || true
    sleep 1
    local file
    for file in "$folder"/slurmd-n1.pid "$folder"/slurmd-n2.pid "$folder"/slurmctld.pid "$folder"/munged.pid; do
        [[ ! -s $file ]] || kill "$(cat "$file")" 2>/dev/null || true
    done
}

action=${1:-}
case $action in
    install) install ;;
    start | stop) folder=$(realpath -m "${2:?a folder}") && "$action" ;;
    node) folder=$(realpath -m "${2:?a folder}") && node "${3:?n1 or n2}" ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
