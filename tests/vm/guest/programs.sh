# shellcheck shell=bash
# The same scenario files that `doorbell run` simulates, on two soft-RoCE devices, and ping-pongs
# with the public tool. Needs the command in the guest, and the scenarios:
#
#     tests/vm/run --bin target/release/doorbell --file tests/vm/scenarios -- \
#         tests/vm/guest/programs.sh
# shellcheck source=tests/vm/guest/lib.sh
source /guest/lib.sh

export DOORBELL_TOKEN=a-token-of-the-guest
run=(doorbell hw run)
on0=(--device rxe0 --gid 10.0.0.1)
on1=(--device rxe1 --gid 10.0.0.2)
port=24100

# ends STATUS WORDS COMMAND...: ends with this status and says so.
ends() {
    local expected=$1 words=$2 status=0
    shift 2
    "$@" >said 2>&1 || status=$?
    cat said
    [[ $status -eq $expected ]] && grep -qF -- "$words" said
}

# two SCENARIO [option]...: both ranks in processes of their own; JSON of each in rank0, rank1.
two() {
    local file=/guest/scenarios/$1.toml
    shift
    local common=("$file" --server "127.0.0.1:$port" --json --limit 30s "$@")
    local zero status=0 served=0
    "${run[@]}" "${common[@]}" --rank 0 "${on0[@]}" >rank0 &
    zero=$!
    "${run[@]}" "${common[@]}" --rank 1 "${on1[@]}" >rank1 || status=$?
    wait $zero || served=$?
    cat rank0 rank1
    [[ $served -eq 0 && $status -eq 0 ]]
}

# has FILE NAME VALUE: a metric of the JSON.
has() {
    grep -A 2 "\"$2\": {" "$1" | grep -q "\"value\": $3\b"
}

ping_pong() {
    two ping_pong "$@"
    has rank0 messages 210
    grep -q '"p50": [1-9]' rank0
}

write_batches() {
    two write_batches "$@"
    has rank0 messages 800
    has rank0 rings 100
    has rank1 received 800
    has rank1 data_errors 0
}

lanes() {
    two lanes "$@"
    has rank0 lane.control.messages 40
    has rank0 lane.bulk.messages 400
    has rank1 received 440
    has rank1 data_errors 0
}

read_back() {
    two read "$@"
    has rank0 step.5.count 4711
}

local_run() {
    "${run[@]}" "/guest/scenarios/$1.toml" --local --device rxe0,rxe1 --gid 10.0.0.1,10.0.0.2 \
        --json --limit 30s >whole || true
    cat whole
    grep -q '"kind": "ok"' whole
    has whole "$2" "$3"
}

ours() {
    both 18515 doorbell hw pingpong "${on0[@]}" "$@" -- \
        doorbell hw pingpong 127.0.0.1 "${on1[@]}" "$@"
}

our_client() {
    both 18515 ibv_rc_pingpong -d rxe0 -g 1 "$@" -- \
        doorbell hw pingpong 127.0.0.1 --interop "${on1[@]}"
}

our_server() {
    both 18515 doorbell hw pingpong --interop "${on0[@]}" -- \
        ibv_rc_pingpong -d rxe1 -g 1 "$@" 127.0.0.1
}

# ---- what goes wrong ---------------------------------------------------------------------------

# The client is killed in the middle of a long run.
peer_dies() {
    local server client status=0
    doorbell hw pingpong "${on0[@]}" --iterations 100000000 --limit 50s "$@" >said 2>&1 &
    server=$!
    wait_until 20 listening 18515
    doorbell hw pingpong 127.0.0.1 "${on1[@]}" --iterations 100000000 --limit 50s >/dev/null 2>&1 &
    client=$!
    sleep 2
    kill -KILL $client
    wait $server || status=$?
    cat said
    [[ $status -eq 3 ]]
    grep -q 'while exchanging messages: .*rank 1 was lost' said
}

# The tool is killed: only retries that go unanswered tell.
tool_dies() {
    local server client status=0
    doorbell hw pingpong --interop "${on0[@]}" --iterations 100000000 --limit 10s >said 2>&1 &
    server=$!
    wait_until 20 listening 18515
    ibv_rc_pingpong -d rxe1 -g 1 -n 100000000 127.0.0.1 >/dev/null 2>&1 &
    client=$!
    sleep 2
    kill -KILL $client
    wait $server || status=$?
    cat said
    [[ $status -eq 3 ]]
    grep -q 'while exchanging messages' said
}

other_iterations() {
    local status=0
    doorbell hw pingpong "${on0[@]}" --iterations 10 >server 2>&1 &
    wait_until 20 listening 18515
    doorbell hw pingpong 127.0.0.1 "${on1[@]}" --iterations 11 >client 2>&1 || status=$?
    cat client
    [[ $status -eq 2 ]]
    grep -q 'a ping-pong of 10 round trips' client
    status=0
    wait $! || status=$?
    cat server
    [[ $status -eq 2 ]]
}

other_size_of_the_tool() {
    local status=0 server
    doorbell hw pingpong --interop "${on0[@]}" --limit 15s >said 2>&1 &
    server=$!
    wait_until 20 listening 18515
    limited 10 ibv_rc_pingpong -d rxe1 -g 1 -s 8192 127.0.0.1 || true
    wait $server || status=$?
    cat said
    [[ $status -eq 1 ]]
    grep -q 'both sides need the same size' said
}

taken() {
    busybox nc -l -p 18515 127.0.0.1 &
    wait_until 20 listening 18515
    ends 2 "port 18515" doorbell hw pingpong "${on0[@]}"
    ends 2 "end who uses the port" doorbell hw pingpong --interop "${on0[@]}"
    kill $!
}

wrong_token() {
    local zero status=0
    "${run[@]}" /guest/scenarios/read.toml --rank 0 --server 127.0.0.1:24101 "${on0[@]}" \
        --limit 5s >/dev/null 2>&1 &
    zero=$!
    ends 2 "give every rank the same DOORBELL_TOKEN" env DOORBELL_TOKEN=not-the-token-of-it \
        "${run[@]}" /guest/scenarios/read.toml --rank 1 --server 127.0.0.1:24101 "${on1[@]}"
    wait $zero || status=$?
    [[ $status -eq 3 ]]
}

# A rank is killed while it serves.
rank_dies() {
    local zero one status=0
    local long=(--set program.0.iterations=10000000 --limit 50s --server 127.0.0.1:24102)
    "${run[@]}" /guest/scenarios/ping_pong.toml --rank 0 "${on0[@]}" "${long[@]}" >said 2>&1 &
    zero=$!
    "${run[@]}" /guest/scenarios/ping_pong.toml --rank 1 "${on1[@]}" "${long[@]}" >/dev/null 2>&1 &
    one=$!
    sleep 3
    kill -KILL $one
    wait $zero || status=$?
    cat said
    [[ $status -eq 3 ]]
    grep -q 'while exchanging messages: .*rank 1 was lost' said
}

active_mtu() {
    ibv_devinfo -d rxe0 | grep -q "active_mtu:.*$1"
}

small_mtu() {
    ip link set v0 mtu 600
    wait_until 10 active_mtu 512
    ends 2 "has an active MTU of 512B" "${run[@]}" /guest/scenarios/read.toml --local \
        --device rxe0,rxe1
    ends 2 "only 512 B" doorbell hw pingpong --interop --device rxe0
    ip link set v0 mtu 4200
    wait_until 10 active_mtu 4096
}

too_little_memory() {
    chmod 666 /dev/infiniband/uverbs*
    ends 2 "RLIMIT_MEMLOCK" as_nobody bash -c \
        "ulimit -l 64; exec doorbell hw run /guest/scenarios/ping_pong.toml --local \
        --device rxe0,rxe1 --set program.0.size=1MiB"
}

wire_up
check "two devices are there" ends 0 rxe1 doorbell hw info
for option in "" "--posting extended" "--wait event" "--wait spin:50us"; do
    read -ra options <<<"$option"
    check "ping-pong by SEND in two processes $option" ping_pong "${options[@]}"
    check "WRITE in batches in two processes $option" write_batches "${options[@]}"
    check "READ in two processes $option" read_back "${options[@]}"
done
check "ping-pong in one process" local_run ping_pong messages 210
check "WRITE in batches in one process" local_run write_batches received 800
check "READ in one process" local_run read step.5.count 4711

check "two lanes over a stripe, by bytes outstanding" lanes --variant "least bytes"
check "two lanes over a stripe, in turn" lanes --variant "in turn" --wait event
check "two lanes, one with a pace" lanes --variant paced --posting extended

check "our ping-pong" ours
check "our ping-pong sleeps" ours --events --iterations 100
check "our ping-pong with JSON" ours --json --size 1B --iterations 10
check "our client, the tool's server" our_client
check "our client, the tool's server that sleeps" our_client -e
check "our server, the tool's client" our_server
check "our server, the tool's client with checked data" our_server -s 4096

check "the peer is killed" peer_dies
check "the peer is killed while we sleep" peer_dies --events
check "the tool is killed" tool_dies
check "the peer plays another game" other_iterations
check "the tool has another size" other_size_of_the_tool
check "the port is taken" taken
check "no such device" ends 2 "there are rxe0, rxe1" doorbell hw pingpong --device rxe7
check "no such GID" ends 2 "no GID with the address" \
    doorbell hw pingpong --device rxe0 --gid 10.9.9.9
check "nobody comes" ends 3 "1 of 2 ranks did not join" \
    doorbell hw pingpong --device rxe0 --limit 1s
check "nobody comes to the tool's server" ends 3 "nobody connected" \
    doorbell hw pingpong --interop --device rxe0 --limit 1s
check "nobody is there" ends 3 "no rendezvous at" \
    doorbell hw pingpong 127.0.0.1 --device rxe0 --limit 1s
check "a wrong token" wrong_token
check "a rank is killed" rank_dies
check "an MTU above the port's" small_mtu
check "too little memory may be locked" too_little_memory
