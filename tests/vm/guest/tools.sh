# shellcheck shell=bash
# The bed itself, proved with public tools: two devices, a link, data that arrives, losses that
# are made good and counted.
# shellcheck source=tests/vm/guest/lib.sh
source /guest/lib.sh

# What `limited` promises to every other check.
hang_is_ended() {
    local status=0
    limited 1 sleep 1000 || status=$?
    [[ $status -eq 124 ]]
}

# What `check` promises: a function fails by any of its lines.
half_fails() {
    false
    true
}

failing_line_is_seen() {
    [[ "$(check half half_fails)" == "not ok half (1)" ]]
}

device_is_active() {
    ibv_devinfo -d "$1" >info
    cat info
    grep -q 'state:.*PORT_ACTIVE' info
    grep -q 'active_mtu:.*4096' info
}

# Messages of four packets, so that a lost one shows as a gap in the sequence. Content is checked.
pingpong() {
    both 18515 ibv_rc_pingpong -d rxe0 -g 1 -c -m 1024 -s 4096 -n "$1" -- \
        ibv_rc_pingpong -d rxe1 -g 1 -c -m 1024 -s 4096 -n "$1" 127.0.0.1
}

# Only a lost packet makes a gap. A repeat alone proves nothing: on a busy host, the emulated
# guest can take longer than the requester's timer.
gaps() {
    local device sum=0
    for device in rxe0 rxe1; do
        sum=$((sum + $(counter $device out_of_seq_request) + $(counter $device rcvd_seq_err)))
    done
    echo $sum
}

no_gaps() {
    local device sent
    for device in rxe0 rxe1; do
        sent=$(counter $device sent_pkts)
        echo "$device sent $sent packets"
        # Without this, silent counters would look like a clean wire.
        [[ $sent -ge 2000 ]]
    done
    [[ $(gaps) -eq 0 ]]
}

loss_counts() {
    tc -s qdisc show dev v0
    echo "gaps: $(gaps)"
    [[ $(gaps) -gt 0 ]]
}

# Whoever asks the kernel for the way from one address to the other is given the wire.
routes_are_wire() {
    ip route get 10.0.0.2 from 10.0.0.1 | tee route
    grep -q 'dev v0' route
    ip route get 10.0.0.1 from 10.0.0.2 | tee route
    grep -q 'dev v1' route
}

# The packets cross the wire and not `lo`.
wire_carries() {
    local packets
    packets=$(cat /sys/class/net/v0/statistics/tx_packets)
    echo "v0 sent $packets packets"
    [[ $packets -ge 2000 ]]
}

nobody_opens() {
    [[ "$(as_nobody id -u)" == 65534 ]]
    as_nobody ibv_devinfo -d rxe0
}

nobody_cannot_pin() {
    if as_nobody bash -c 'ulimit -l 64; ibv_rc_pingpong -d rxe0 -g 1 -s 1048576' >pin 2>&1; then
        return 1
    fi
    cat pin
    grep -q "Couldn't register MR" pin
}

perftest() {
    both 18516 ib_send_lat -d rxe0 -x 1 -p 18516 -n 100 -F -- \
        ib_send_lat -d rxe1 -x 1 -p 18516 -n 100 -F 127.0.0.1
    both 18517 ib_write_bw -d rxe0 -x 1 -p 18517 -n 100 -s 8192 -F -- \
        ib_write_bw -d rxe1 -x 1 -p 18517 -n 100 -s 8192 -F 127.0.0.1
}

check "a failing line is seen" failing_line_is_seen
check "a hanging command is ended" hang_is_ended
wire_up 4200
check "rxe0 is active" device_is_active rxe0
check "rxe1 is active" device_is_active rxe1
check "the routes are the wire" routes_are_wire
check "ping-pong" pingpong 500
check "the wire carries the packets" wire_carries
check "no gaps without loss" no_gaps
lose v0 1
check "ping-pong with 1 % loss" pingpong 500
check "loss is counted" loss_counts
clear_loss v0
check "send and write of perftest" perftest
check "a user without privileges opens a device" nobody_opens
check "a limit on pinned memory is kept" nobody_cannot_pin
