#!/bin/bash
# Trains an island on each of several machines, which meet over whatever network there is:
#
#   examples/islands.sh one,two examples/islands.yaml [--section.key=value ...]
#
# The first machine is this one. It reaches the others by ssh without a password, and all reach one another. On all of
# them the program, the configuration and the tokens lie under the same paths. The run directory is one directory, of a
# file system that all see. Each island writes its part of a checkpoint there while training goes on: over a slow link
# save seldom.
#
# NETWORK=10.1.0.0/16 names the network to talk over, where machines are in several; RANKS=2 starts so many ranks on
# each machine, which share an island (--tensor_parallel_degree=2, or shards of data parallel ranks).
# TRIREME=path/to/trireme names a program that is not on the path.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 HOST,HOST,... CONFIG.yaml [--section.key=value ...]" >&2; exit 2; }
IFS=, read -r -a hosts <<<"$1"
shift
ranks=${RANKS:-1} islands=${#hosts[@]}
slots=$(printf "%s:$ranks," "${hosts[@]}")
network=()
[ -z "${NETWORK-}" ] || network=(--mca btl_tcp_if_include "$NETWORK" --mca oob_tcp_if_include "$NETWORK")
exec mpirun -n $((islands * ranks)) --host "${slots%,}" --map-by slot --bind-to none "${network[@]}" \
    "${TRIREME:-trireme}" train "$@" --parallelism.island_degree="$islands"
