# shellcheck shell=bash
# What guest scripts source: two soft-RoCE devices on a wire, loss, counters, checks.
#
#     source /guest/lib.sh
#     wire_up
#     check "two devices" ibv_devinfo -d rxe1
#
# rxe0 is on v0 (10.0.0.1), rxe1 on v1 (10.0.0.2); v0 and v1 are the two ends of one veth pair, and
# what one device sends to the other crosses it as RoCEv2 packets. GID index 1 is the IPv4 one.
#
# When the script ends, the checks are counted; one that failed, or none at all, is status 1.
set -euo pipefail

checks_passed=0 checks_failed=0
# Seconds that each command of `check` may take. Generous: it ends a hang, it measures nothing.
check_limit=60

# ---- the wire --------------------------------------------------------------------------------

# wire_up [MTU]: makes the pair and the devices. MTU is the link's, in bytes: 4200 gives an
# active_mtu of 4096; 1500 gives 1024.
wire_up() {
    local mtu=${1:-4200} end
    ip link add v0 type veth peer name v1
    for end in 0 1; do
        # Both ends are ours, so packets arrive from an address of our own.
        echo 1 >"/proc/sys/net/ipv4/conf/v$end/accept_local"
        echo 0 >"/proc/sys/net/ipv4/conf/v$end/rp_filter"
        ip link set "v$end" mtu "$mtu" up
        ip address add "10.0.0.$((end + 1))/24" dev "v$end"
    done
    echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
    route_over_wire
    for end in 0 1; do
        rdma link add "rxe$end" type rxe netdev "v$end"
    done
    for end in 0 1; do
        wait_until 20 port_ready "rxe$end" "10.0.0.$((end + 1))"
    done
}

# The kernel hands a packet between two of its own addresses to `lo` (rxe of 6.1 names its
# own link when it asks, sockets do not). What comes from v0 or v1 is
# looked up as local, what goes from one address to the other in a table that knows only the
# wire, and the rule for everything local moves behind both.
route_over_wire() {
    ip rule add pref 10 iif v0 lookup local
    ip rule add pref 11 iif v1 lookup local
    ip rule add pref 20 iif lo from 10.0.0.1 to 10.0.0.2 lookup 101
    ip rule add pref 21 iif lo from 10.0.0.2 to 10.0.0.1 lookup 102
    ip rule add pref 30 lookup local
    ip rule delete pref 0
    ip route add 10.0.0.2 dev v0 src 10.0.0.1 table 101
    ip route add 10.0.0.1 dev v1 src 10.0.0.2 table 102
    # Neighbours that never age: losses hit RoCE packets, not ARP.
    ip neighbour replace 10.0.0.2 lladdr "$(cat /sys/class/net/v1/address)" dev v0 nud permanent
    ip neighbour replace 10.0.0.1 lladdr "$(cat /sys/class/net/v0/address)" dev v1 nud permanent
}

# port_ready DEVICE ADDRESS: active, with the address as GID 1.
port_ready() {
    local port="/sys/class/infiniband/$1/ports/1" bytes gid
    IFS=. read -ra bytes <<<"$2"
    printf -v gid '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "${bytes[@]}"
    [[ "$(cat "$port/state")" == *ACTIVE && "$(cat "$port/gids/1")" == "$gid" ]]
}

# lose END PERCENT: of what END (v0 or v1) sends, this share is dropped at random.
lose() {
    tc qdisc replace dev "$1" root netem loss "$2%"
}

# clear_loss END
clear_loss() {
    ! tc qdisc show dev "$1" | grep -q netem || tc qdisc delete dev "$1" root
}

# counter DEVICE NAME: prints one of hw_counters, such as out_of_seq_request.
counter() {
    cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2"
}

# ---- commands --------------------------------------------------------------------------------

# wait_until SECONDS COMMAND...: until COMMAND succeeds; 1 and a message if it never does.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        if [[ $SECONDS -ge $end ]]; then
            echo "never true: $*" >&2
            return 1
        fi
        sleep 0.1
    done
}

# listening PORT: does somebody listen on this TCP port? Asks without connecting, because a
# server that takes one client would take the question for it.
listening() {
    grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") [0-9A-F]+:0000 0A " \
        /proc/net/tcp /proc/net/tcp6
}

# both PORT SERVER... -- CLIENT...: starts SERVER, waits until it listens on PORT, runs CLIENT;
# succeeds if both do. The status is the client's, or else the server's.
both() {
    local port=$1 server=() pid status=0 served=0
    shift
    while [[ "$1" != -- ]]; do
        server+=("$1")
        shift
    done
    shift
    "${server[@]}" &
    pid=$!
    wait_until 30 listening "$port" || status=$?
    [[ $status -ne 0 ]] || "$@" || status=$?
    # Without its client a server would wait for ever.
    [[ $status -eq 0 ]] || kill "$pid" 2>/dev/null || true
    wait "$pid" || served=$?
    [[ $status -ne 0 ]] || status=$served
    return "$status"
}

# as_nobody COMMAND...: without any privilege. For a limit, a shell around it:
# as_nobody bash -c 'ulimit -l 64; exec ibv_rc_pingpong'.
as_nobody() {
    setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
        --no-new-privs -- "$@"
}

# limited SECONDS COMMAND...: 124 when it took longer; whatever it started is killed then. COMMAND
# may be a function, and the first line of it that fails ends it, unless the caller stands in a
# condition or before `||`: there bash ignores failing lines, in everything below.
limited() {
    local limit=$1 pid watchdog status=0 fired
    shift
    fired=$(mktemp)
    # A process group of its own, to be killed as one; jobs that the command starts stay in it.
    set -m
    (
        set +m -e
        "$@"
    ) &
    pid=$!
    (
        set +m
        sleep "$limit"
        echo >"$fired"
        kill -KILL -- "-$pid"
    ) >/dev/null 2>&1 &
    watchdog=$!
    set +m
    # The shell would report the killed job in its own words.
    { wait "$pid" || status=$?; } 2>/dev/null
    { kill -KILL -- "-$watchdog"; wait "$watchdog"; } 2>/dev/null || true
    [[ ! -s "$fired" ]] || status=124
    rm -f "$fired"
    return "$status"
}

# ---- checks ----------------------------------------------------------------------------------

# check NAME COMMAND...: `ok NAME`, or `not ok NAME (status)` behind what the command printed.
# COMMAND may be a function; it fails by any of its lines.
check() {
    local name=$1 status log
    shift
    log=$(mktemp)
    # Not by `||`, see `limited`.
    set +e
    limited "$check_limit" "$@" >"$log" 2>&1
    status=$?
    set -e
    if [[ $status -eq 0 ]]; then
        checks_passed=$((checks_passed + 1))
        echo "ok $name"
    else
        checks_failed=$((checks_failed + 1))
        tail -n 40 "$log" | sed 's/^/    /'
        echo "not ok $name ($status)"
    fi
    rm -f "$log"
}

summary() {
    local status=$?
    echo "$checks_passed passed, $checks_failed failed"
    [[ $status -eq 0 && ($checks_failed -gt 0 || $checks_passed -eq 0) ]] && status=1
    exit "$status"
}
trap summary EXIT
trap 'echo "stopped in line $LINENO: $BASH_COMMAND"' ERR
