# shellcheck shell=bash
# One program in two processes, one on each device: a ping-pong by SEND, WRITEs behind the batcher,
# a READ. Polling and sleeping, classic and extended verbs, without loss and with it.
source /guest/lib.sh

wire_up
export DOORBELL_SIZE=2 RUST_BACKTRACE=0
port=24100

# What every back end sees (tests/tests/tour.rs).
report='TourReport { pings: 50, writes: 500, rings: 32, written: 500, read_bytes: 100000 }'

# rank N ARGUMENT...: runs that rank, and wants the report.
rank() {
    local out
    out=$(DOORBELL_RANK=$1 DOORBELL_SERVER=127.0.0.1:$port tour "rxe$1" "${@:2}")
    echo "$out"
    [[ "$out" == "$report" ]]
}

# together ARGUMENT...: both ranks at once; good if both are.
together() {
    local first status=0
    port=$((port + 1))
    rank 0 "$@" &
    first=$!
    rank 1 "$@" || status=$?
    wait "$first" || status=$?
    return "$status"
}

for verbs in classic extended; do
    for wait in poll event; do
        check "tour, $verbs, $wait" together "$wait" "$verbs"
    done
done

lose v0 5
lose v1 5
check "tour with 5 % loss" together event classic
clear_loss v0
clear_loss v1
counted() {
    local name device sum=0
    for name in rcvd_seq_err completer_retry_err; do
        for device in rxe0 rxe1; do
            sum=$((sum + $(counter "$device" "$name")))
        done
    done
    echo "$sum sequence errors and retries"
    [[ $sum -gt 0 ]]
}
check "retransmissions were counted" counted

# random plans, rank by rank equal to the ideal back end
export DOORBELL_DEVICES=rxe0,rxe1
check_limit=120
check "random programs" rdma-tests --exact \
    on_hw::players::random_programs_get_what_the_ideal_back_end_gives
