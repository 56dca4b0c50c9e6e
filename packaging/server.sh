# A private server for the tests of this folder. It is sourced from the top of the repository, after $work was made.
# shellcheck shell=sh disable=SC2154

# start_server SOCKET: also on a free port of the loopback interface. Sets server_pid and server_port.
start_server() {
    if [ -z "${LEASEHOLD_SERVER:-}" ]; then
        LEASEHOLD_SERVER=$(sh tests/server.sh 2>"$work/server.found") ||
            { cat "$work/server.found" >&2; die 'there is no redis-server; name one in LEASEHOLD_SERVER'; }
    fi
    for _ in 1 2 3 4 5; do
        # The one of an earlier server would be read for that of this one.
        rm -f "$work/server.log" "$1"
        server_port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
        "$LEASEHOLD_SERVER" --port "$server_port" --bind 127.0.0.1 --unixsocket "$1" --unixsocketperm 777 --save '' \
            --appendonly no --maxmemory-policy noeviction --dir "$work" >"$work/server.log" 2>&1 &
        server_pid=$!
        # Somebody else may have got the port meanwhile; then it ends.
        until_true 10 server_answers_or_ended "$1" || true
        if [ -S "$1" ] && kill -0 "$server_pid" 2>/dev/null; then return 0; fi
        stop_server
    done
    cat "$work/server.log" >&2
    die 'the server does not start'
}

server_answers_or_ended() { # server_answers_or_ended SOCKET
    { [ -S "$1" ] && grep -q 'Ready to accept' "$work/server.log" 2>/dev/null; } || ! kill -0 "$server_pid" 2>/dev/null
}

stop_server() {
    [ -z "${server_pid:-}" ] || { kill "$server_pid" && wait "$server_pid"; } 2>/dev/null || true
    server_pid=
}

# until_true SECONDS COMMAND...: waits for a condition. False if it has not come true in that time.
until_true() {
    tries=$(($1 * 20))
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.05
    done
}

checks=0
# ok WHAT COMMAND...: the command must be true.
ok() {
    what=$1
    shift
    if "$@"; then
        checks=$((checks + 1))
        printf 'ok      %s\n' "$what"
    else
        printf 'FAILED  %s\n        (%s)\n' "$what" "$*"
        exit 1
    fi
}

not() { ! "$@"; }

# not_run WHAT WHY: tests/run.sh shows it in its summary.
not_run() {
    printf 'not run: %s: %s\n' "$1" "$2"
    [ -z "${LEASEHOLD_SKIPPED:-}" ] || printf '%s: %s\n' "$1" "$2" >>"$LEASEHOLD_SKIPPED"
}
