# shellcheck shell=bash
# What goes wrong with devices and peers: each fault ends soon, with a message that names the cause
# and the remedy.
source /guest/lib.sh

wire_up
export DOORBELL_SIZE=2 RUST_BACKTRACE=0
port=24300

# says TEXT STATUS COMMAND...: COMMAND ends with STATUS and prints TEXT.
says() {
    local text=$1 want=$2 out status=0
    out=$("${@:3}" 2>&1) || status=$?
    echo "$out"
    if [[ $status -ne $want ]]; then
        echo "status $status, not $want"
        return 1
    fi
    [[ "$out" == *"$text"* ]] || { echo "nothing about: $text"; return 1; }
}

rank() {
    DOORBELL_RANK=$1 DOORBELL_SERVER=127.0.0.1:$port limited 40 tour "rxe$1" "${@:2}"
}

# survives PHASE DYING: rank DYING dies in that phase, and the other one says so.
survives() {
    local other=$((1 - $2)) pid status=0
    port=$((port + 1))
    rank "$2" event classic "$1" &
    pid=$!
    says "rank $2" 1 rank "$other" event classic || status=$?
    # It died as it should have.
    ! wait "$pid" || status=1
    return "$status"
}

for phase in connect ping write read; do
    check "rank 1 dies: $phase" survives "$phase" 1
    check "rank 0 dies, and the rendezvous with it: $phase" survives "$phase" 0
done

# ---- devices ---------------------------------------------------------------------------------

check "info" says "rxe1" 0 doorbell hw info
check "no such device" says "rxe0, rxe1" 2 doorbell hw info --device mlx5_0
chmod 600 /dev/infiniband/uverbs*
check "no permission" says "no permission to open /dev/infiniband/uverbs0" 1 as_nobody bash -c \
    "DOORBELL_RANK=0 DOORBELL_SERVER=127.0.0.1:24400 exec tour rxe0 event classic"
chmod 666 /dev/infiniband/uverbs*
locked() {
    local status=0
    rank 1 event classic &
    port=24401 as_nobody bash -c "ulimit -l 64; DOORBELL_RANK=0 \
        DOORBELL_SERVER=127.0.0.1:$port exec tour rxe0 event classic" || status=$?
    wait || true
    return "$status"
}
port=24401
check "memory that may not be locked" says "RLIMIT_MEMLOCK" 1 locked

ip link set v0 down
check "port down" says "is DOWN, not ACTIVE" 1 rank 0 event classic
ip link set v0 up

rdma link delete rxe0
rdma link delete rxe1
check "no device" says "no RDMA device" 2 doorbell hw info
