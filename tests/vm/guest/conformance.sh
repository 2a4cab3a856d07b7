# shellcheck shell=bash
# The conformance bodies on soft-RoCE: all of them with classic verbs, those about posting with
# extended verbs too. What rxe does otherwise is in rxe_differences, and must still differ.
source /guest/lib.sh

wire_up
check_limit=200
export DOORBELL_DEVICES=rxe0,rxe1 RUST_BACKTRACE=0

# Prints the tests that differ with these verbs.
differences() {
    awk -v verbs="$1" '!/^#/ && NF && ($2 == "any" || $2 == verbs) { print $1 }' \
        /guest/rxe_differences
}

# conforms VERBS [FILTER]...: everything but the differences passes.
conforms() {
    local skip=() test
    while read -r test; do
        skip+=(--skip "conformance::$test")
    done < <(differences "$1")
    DOORBELL_POSTING=$1 rdma-tests --test-threads=1 "${skip[@]}" "${@:2}"
}

# differs VERBS TEST: it fails.
differs() {
    if DOORBELL_POSTING=$1 rdma-tests --exact "on_hw::conformance::$2" >/tmp/differs 2>&1; then
        echo "it passes now: strike it from rxe_differences"
        return 1
    fi
    # A name that matches nothing would not fail either.
    grep -q '^running 1 test' /tmp/differs
}

check "conformance, classic" conforms classic
check "conformance, extended" conforms extended operations flush limits
while read -r test; do
    check "differs, classic: $test" differs classic "$test"
done < <(differences classic)
check "differs, extended: scatter list" differs extended \
    operations::read_brings_the_peers_bytes_to_a_scatter_list
