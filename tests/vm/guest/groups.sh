# shellcheck shell=bash
# Groups of four processes: sums and exchanges by the programs that `doorbell run` simulates, ranks
# 0 and 1 on one soft-RoCE device, 2 and 3 on the other; members that are killed at a random instant.
# Needs the command in the guest, and the scenarios:
#
#     tests/vm/run --bin target/debug/doorbell --file tests/vm/scenarios -- tests/vm/guest/groups.sh
# shellcheck source=tests/vm/guest/lib.sh
source /guest/lib.sh

wire_up
port=24500
ranks=()

# start SCENARIO VARIANT [option]...: four ranks; what each says goes to rank0 … rank3.
start() {
    local file=/guest/scenarios/$1.toml variant=$2 rank device
    shift 2
    ranks=()
    port=$((port + 1))
    for rank in 0 1 2 3; do
        device=$((rank / 2))
        doorbell hw run "$file" --variant "$variant" --server "127.0.0.1:$port" --rank $rank \
            --device rxe$device --gid 10.0.0.$((device + 1)) --json --limit 40s "$@" \
            >rank$rank 2>&1 &
        ranks[rank]=$!
    done
}

# all: every rank ends well.
all() {
    local rank failed=0
    for rank in 0 1 2 3; do
        wait "${ranks[rank]}" || { echo "rank $rank: status $?"; cat rank$rank; failed=1; }
    done
    return $failed
}

# has RANK NAME VALUE: a metric of the JSON.
has() {
    grep -A 2 "\"$2\": {" "rank$1" | grep -q "\"value\": $3\b" ||
        { echo "rank $1: no $2 of $3"; cat "rank$1"; return 1; }
}

# sums VARIANT [option]...: both rounds are complete at all, and every element is right.
sums() {
    start sum "$@"
    all
    for rank in 0 1 2 3; do
        has $rank sums 2
        has $rank sums_wrong 0
    done
}

# sparse VARIANT [option]...: sums of the largest elements.
sparse() {
    start top_k "$@"
    all
    for rank in 0 1 2 3; do
        has $rank sums 2
        has $rank sums_wrong 0
    done
}

# exchanges VARIANT [option]...
exchanges() {
    start exchange "$@"
    all
    for rank in 0 1 2 3; do
        has $rank exchanges 2
        has $rank exchanges_wrong 0
    done
}

# Until rank 0 has moved something, so that a kill meets the rounds and not the start.
moved() {
    [[ $(cat /sys/class/infiniband/rxe1/ports/1/hw_counters/rcvd_pkts) -gt $1 ]]
}

# strike RANK PAUSE: kills it so many milliseconds after the first packets of the rounds.
strike() {
    local before
    before=$(cat /sys/class/infiniband/rxe1/ports/1/hw_counters/rcvd_pkts)
    wait_until 30 moved $((before + 40))
    sleep "$(($2 / 1000)).$(printf %03d $(($2 % 1000)))"
    kill -KILL "${ranks[$1]}"
    echo "rank $1 was killed $2 ms after the first packets"
}

# dies RANK: each survivor of a run without end has an error that names RANK within the bound of a
# round, 10 s, and some for a busy machine.
dies() {
    local rank status began
    start sum "without end" --set program.0.iterations=1000000
    strike "$1" $((RANDOM % 1500))
    began=$SECONDS
    for rank in 0 1 2 3; do
        status=0
        wait "${ranks[rank]}" || status=$?
        [[ $rank -ne $1 ]] || continue
        cat rank$rank
        [[ $status -eq 3 ]]
        grep -q "(rank $rank): while exchanging messages: .*rank $1\b" rank$rank
    done
    echo "all had ended after $((SECONDS - began)) s"
    [[ $((SECONDS - began)) -le 15 ]]
}

# Rank 3 is killed between two rounds, and the others go on without it. (In the midst of one they
# may not agree on which is next, and say so.)
goes_on() {
    local rank
    start sum "goes on" --set program.0.interval=4s --set program.0.iterations=3
    strike 3 2000
    wait "${ranks[3]}" || true
    for rank in 0 1 2; do
        wait "${ranks[rank]}" || { cat rank$rank; return 1; }
        has $rank sums 3
        has $rank sums_of_survivors 2
        has $rank members_absent 1
        has $rank sums_wrong 0
    done
}

for variant in "two hops" "two hops by SEND" "two hops by READ" "a pool of two" \
    "two lanes of doubles" "ring" "two levels" "direct"; do
    check "sums of four: $variant" sums "$variant"
done
check "sums of four that sleep" sums "two hops" --wait event
check "sums of four, extended verbs" sums "two hops by SEND" --posting extended
for variant in direct "two hops"; do
    check "sparse sums of four: $variant" sparse "$variant"
done
for variant in direct "two hops" tokens; do
    check "exchanges of four: $variant" exchanges "$variant"
done
check "a member dies" dies 1
check "an aggregator dies" dies 2
check "the root dies, and the rendezvous with it" dies 0
check "a member dies and the others go on" goes_on
