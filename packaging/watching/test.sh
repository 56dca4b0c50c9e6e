#!/bin/sh
# Checks the alerts and the dashboard with a Prometheus that scrapes an exporter and a program: every query must have an
# answer, and one with a misspelt name must have none.
#
#   sh packaging/watching/test.sh COMMAND PROGRAM [PICTURE]
#
# COMMAND is the `leasehold` to test, and PROGRAM the built example `metrics`. PICTURE is drawn from the dashboard's own
# queries, of two minutes of work. LEASEHOLD_SERVER is the redis-server to use.
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=packaging/common.sh
. packaging/common.sh
# shellcheck source=packaging/server.sh
. packaging/server.sh
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
missing=$(sh packaging/needs.sh watching)
[ -z "$missing" ] || die "this is missing here: $missing"
command=$1 program=$2 picture=${3:-}
here=packaging/watching

work=$(mktemp -d /tmp/lh-watching.XXXXXX)
server_pid=
started=
clean_up() {
    # shellcheck disable=SC2086  # several processes
    [ -z "$started" ] || { kill $started && wait $started; } 2>/dev/null || true
    stop_server
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

ok() { # ok WHAT COMMAND...
    what=$1
    shift
    "$@" || die "not so: $what"
    echo "ok      $what"
}
not() { ! "$@"; }
quietly() { "$@" >"$work/quiet" 2>&1; }
begin() { # begin NAME COMMAND...
    name=$1
    shift
    "$@" >"$work/$name" 2>&1 &
    started="$started $!"
}

# ---- the files ------------------------------------------------------------------

cp $here/alerts.yml $here/alerts_test.yml $here/prometheus.yml "$work"
checked() { if quietly promtool "$@"; then return 0; fi; cat "$work/quiet"; return 1; }
ok 'promtool has no objection to the configuration' checked check config "$work/prometheus.yml"
ok 'each alert fires when it should, and no sooner' checked test rules "$work/alerts_test.yml"
for threshold in 's/> 20$/> 50/' 's/== 0$/== 2/' 's/0.99/0.5/; s/> 30$/> 90/'; do
    sed -i "$threshold" "$work/alerts.yml"
    ok 'and a wrong threshold is noticed' not quietly promtool test rules "$work/alerts_test.yml"
    cp $here/alerts.yml "$work"
done

# ---- what is scraped --------------------------------------------------------------

start_server "$work/redis.sock"
LEASEHOLD_URL=redis+unix://$work/redis.sock
export LEASEHOLD_URL
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
of_program=$(free_port) of_exporter=$(free_port) of_prometheus=$(free_port)
begin program "$program" "$LEASEHOLD_URL" "127.0.0.1:$of_program"
begin exporter "$command" exporter --listen "127.0.0.1:$of_exporter" --every 200ms --label redis
# A lock that is held, and waited for.
begin holder "$command" run nightly-report -- sleep 600
begin waiter "$command" run nightly-report -- true
sed -e "s/9184/$of_program/; s/9843/$of_exporter/; s/scrape_interval: 15s/scrape_interval: 1s/" -i "$work/prometheus.yml"
begin prometheus prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" \
    --web.listen-address="127.0.0.1:$of_prometheus" --log.level=warn
prometheus=http://127.0.0.1:$of_prometheus

# Somebody frees the program's lock by force, and then puts something else in its place: a loss, and calls that fail.
disturb() {
    python3 - "$work/redis.sock" <<'END'
import socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
def send(line):
    server.sendall(line.encode() + b"\r\n")
    server.recv(100)
for _ in range(200):
    send("DEL invoices")
    time.sleep(0.001)
send("SET invoices something-else")
time.sleep(0.3)
send("DEL invoices")
END
}
answered() { disturb; python3 $here/queries.py check "$prometheus" >"$work/answers" 2>&1; }
if ! until_true 10 answered; then
    cat "$work"/answers "$work"/prometheus "$work"/exporter
    die 'not every query has an answer'
fi
ok "$(tail -n 1 "$work/answers")" true
for wrong in 's/leasehold_calls_total/leasehold_call_total/' 's/by (kind)/by (kinds)/; s/leasehold_store_up/leasehold_up/'; do
    sed "$wrong" $here/dashboard.json >"$work/wrong.json"
    ok 'a misspelt name is noticed' not quietly python3 $here/queries.py check "$prometheus" --dashboard "$work/wrong.json"
done

if [ -n "$picture" ]; then
    from=$(date +%s)
    # Other names, so that the panels by name have something to show.
    for name in invoices-eu invoices-us backup; do
        begin "$name" sh -c "while :; do '$command' run $name -- sleep 0.1; done"
        begin "$name.2" sh -c "while :; do '$command' run $name -- sleep 0.2; done"
    done
    sleep 60
    disturb
    sleep 60
    python3 $here/queries.py draw "$prometheus" "$from" "$(date +%s)" "$picture"
fi
echo 'watching: all checks passed'
