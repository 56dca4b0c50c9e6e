#!/bin/sh
# Takes the commands out of the recipes and runs them against a private server, and checks the files with the tools that read
# them, as far as these are here.
#
#   sh packaging/recipes/test.sh [COMMAND]
#
# COMMAND is the `leasehold` to test; without it, that of packaging/binary.sh, which is built first if it is missing.
# LEASEHOLD_SERVER is the redis-server to use.
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=packaging/common.sh
. packaging/common.sh
# shellcheck source=packaging/server.sh
. packaging/server.sh
read_target --target "$(uname -m)"
missing=$(sh packaging/needs.sh recipes)
[ -z "$missing" ] || die "this is missing here: $missing"
recipes=packaging/recipes
if [ $# = 0 ]; then
    [ -x "$binary" ] || sh packaging/binary.sh --target "$arch"
else
    binary=$1
fi
case $binary in /*) ;; *) binary=$PWD/$binary ;; esac

work=$(mktemp -d /tmp/lh-recipes.XXXXXX)
server_pid=
started=
clean_up() {
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    stop_server
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# What the recipes run. It says that it began, and goes on until it may end.
mkdir "$work/bin"
ln -s "$binary" "$work/bin/leasehold"
cat >"$work/job" <<'END'
#!/bin/sh
if ! mkdir "$STAGE/running"; then
    echo 'two at once' >>"$STAGE/wrong"
    exit 1
fi
trap 'rmdir "$STAGE/running"; exit 143' TERM
echo "$LEASEHOLD_NAME $LEASEHOLD_TOKEN" >>"$STAGE/began"
# The stage goes when the test has failed.
until [ -e "$STAGE/may-end" ] || [ ! -d "$STAGE" ]; do sleep 0.05; done
rmdir "$STAGE/running"
exit "$(cat "$STAGE/may-end")"
END
chmod 755 "$work/job"
cp "$work/job" "$work/deploy.sh"
start_server "$work/redis.sock"
PATH=$work/bin:$PATH
LEASEHOLD_URL=redis+unix://$work/redis.sock
TARGET=production CI_PIPELINE_ID=4711 GITHUB_RUN_ID=4711
# No name of a user comes out of the machine's own environment.
export PATH LEASEHOLD_URL TARGET CI_PIPELINE_ID GITHUB_RUN_ID STAGE

# ---- steps ---------------------------------------------------------------------

# The command of a recipe, as one line or more for a shell, with this binary and the script above in place of what is installed.
take_out() { # take_out RECIPE
    python3 "$recipes/commands.py" "$recipes/$1" |
        sed -e "s:/usr/local/bin/[a-z-]*:$work/job:g" -e "s:/usr/bin/leasehold:$work/bin/leasehold:g" >"$work/command"
    grep -q 'leasehold run ' "$work/command" || die "$1 has no leasehold run"
    # Which of its words is the name: the first behind `run`.
    name=$(sed -n 's/.*leasehold run "*\([^ "]*\).*/\1/p' "$work/command" | sed "s/\$TARGET/$TARGET/")
}

# A run in the background, as a service manager starts it: the command itself and no shell around it.
start() { # start NUMBER: sets pid
    (
        cd "$work" || exit 1
        exec sh -c "$(sed '$s/^\([^ ]*leasehold \)/exec \1/' "$work/command")"
    ) >"$STAGE/said.$1" 2>&1 &
    pid=$!
    started="$started $pid"
}

has_ended() { ! kill -0 "$1" 2>/dev/null; }
status_of() { # status_of PID: waits for it.
    until_true 30 has_ended "$1" || return 1
    status=0
    wait "$1" || status=$?
}
ends_with() { # ends_with STATUS PID
    if status_of "$2" && [ "$status" = "$1" ]; then return 0; fi
    echo "status ${status:-none}"
    cat "$STAGE"/said.*
    return 1
}
began() { # began TIMES
    [ -e "$STAGE/began" ] && [ "$(wc -l <"$STAGE/began")" -eq "$1" ]
}
waits() { # waits NUMBER: one that --verbose lets say so.
    grep -q 'waiting for' "$STAGE/said.$1" 2>/dev/null
}
is_free() {
    freedom=0
    "$binary" show "$name" >/dev/null 2>&1 || freedom=$?
    [ "$freedom" = 1 ]
}
# What is left over of a run would be a lock, a waiter, or a client that is known by its name.
nothing_is_left() {
    python3 - "$work/redis.sock" <<'END'
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
server.sendall(b"KEYS *\r\nPUBSUB CHANNELS *\r\nQUIT\r\n")
answer = server.makefile("rb").read().decode()
# Fencing tokens go on counting, and --min-hold keeps the lock.
left = [line for line in answer.splitlines() if line[:1] not in "*$+" and "token" not in line]
if left:
    sys.exit(f"left in the store: {left}")
END
}
stage() { # stage NAME
    STAGE=$work/stage.$1
    mkdir -p "$STAGE"
}
quietly() { "$@" >"$work/quiet" 2>&1; }
nothing_wrong() { [ ! -e "$STAGE/wrong" ]; }

# Two at once: one runs, the other one ends with status 0 and lets it. Only --min-hold keeps the lock afterwards.
job() { # job RECIPE
    recipe=$1
    stage "$(echo "$recipe" | tr / -)"
    take_out "$recipe"
    sed -i 's/--min-hold[ =][0-9a-z]* //; s/--min-hold-on-success //' "$work/command"
    start 1
    first=$pid
    start 2
    second=$pid
    # Whichever was later ends.
    either_ended() { has_ended "$first" || has_ended "$second"; }
    ok "$recipe: of two at once, one ends" until_true 30 either_ended
    if has_ended "$first"; then other=$first runs=$second; else other=$second runs=$first; fi
    ok "$recipe: with status 0" ends_with 0 "$other"
    ok "$recipe: the other one runs" until_true 30 began 1
    echo 0 >"$STAGE/may-end"
    ok "$recipe: and ends with status 0" ends_with 0 "$runs"
    ok "$recipe: once" began 1
    ok "$recipe: it was never run twice at once" nothing_wrong
    ok "$recipe: nothing is left in the store" until_true 10 nothing_is_left
    with_status_of_job
    with_min_hold
}

# The status of a job that fails is that of the run.
with_status_of_job() {
    stage "$(basename "$recipe")-fails"
    echo 9 >"$STAGE/may-end"
    start 1
    ok "$recipe: a job that fails is seen" ends_with 9 "$pid"
}

# As it is written, with --min-hold: whoever comes after the end does not run it again.
with_min_hold() {
    stage "$(basename "$recipe")-later"
    take_out "$recipe"
    echo 0 >"$STAGE/may-end"
    start 1
    ok "$recipe: runs as it is written" ends_with 0 "$pid"
    start 2
    ok "$recipe: one that comes a little later does nothing" ends_with 0 "$pid"
    ok "$recipe: the job ran once" began 1
    quietly "$binary" unlock "$name" --force
}

# As it is written: after a failure another attempt does the job, and does not take the lock for that of another machine.
tried_again() { # tried_again RECIPE
    recipe=$1
    stage "$(basename "$recipe")-again"
    take_out "$recipe"
    echo 9 >"$STAGE/may-end"
    for attempt in 1 2; do
        start "$attempt"
        ok "$recipe: attempt $attempt fails with the status of the job" ends_with 9 "$pid"
    done
    ok "$recipe: both ran the job" began 2
}

# Two take turns; SIGTERM ends one that waits, and one that runs.
turns() { # turns RECIPE
    recipe=$1
    stage "$(echo "$recipe" | tr / -)"
    take_out "$recipe"
    start 1
    first=$pid
    ok "$recipe: the first one runs" until_true 30 began 1
    ok "$recipe: and is in the store" not quietly nothing_is_left
    start 2
    second=$pid
    ok "$recipe: the second one waits" until_true 30 waits 2
    start 3
    third=$pid
    ok "$recipe: the third one waits" until_true 30 waits 3
    kill -TERM "$third"
    ok "$recipe: SIGTERM ends a wait" ends_with 143 "$third"
    kill -TERM "$first"
    ok "$recipe: SIGTERM is passed on to the one that runs" ends_with 143 "$first"
    ok "$recipe: then the second one runs" until_true 30 began 2
    echo 0 >"$STAGE/may-end"
    ok "$recipe: and ends with the status of its command" ends_with 0 "$second"
    ok "$recipe: never two at once" nothing_wrong
    ok "$recipe: the lock is free" is_free
    ok "$recipe: nothing is left in the store" until_true 10 nothing_is_left
}

# Somebody frees the lock by force. With a short lease, because the next renewal finds it.
loss() { # loss RECIPE
    recipe=$1
    stage "$(echo "$recipe" | tr / -)-loss"
    take_out "$recipe"
    sed -i 's/ -- / --lease 1s -- /' "$work/command"
    start 1
    ok "$recipe: it runs" until_true 30 began 1
    quietly "$binary" unlock "$name" --force
    ok "$recipe: a lost lock ends it with status 70" ends_with 70 "$pid"
    is_ended() { [ ! -e "$STAGE/running" ]; }
    ok "$recipe: and its command" until_true 10 is_ended
}

# ---- the files -------------------------------------------------------------------

# With this command and the script in place of what is installed: systemd looks whether they are there.
if command -v systemd-analyze >/dev/null 2>&1; then
    mkdir "$work/units"
    for unit in "$recipes"/systemd/*; do
        sed -e "s:/usr/local/bin/[a-z-]*:$work/job:g" -e "s:/usr/bin/leasehold:$work/bin/leasehold:g" -e '/^Documentation=/d' \
            "$unit" >"$work/units/$(basename "$unit")"
    done
    verified() {
        # It also has something to say about the units of the machine, and status 0 for much of what is wrong.
        if systemd-analyze verify "$work"/units/* >"$work/said" 2>&1 && ! grep -qF "$work/units" "$work/said"; then return 0; fi
        cat "$work/said"
        return 1
    }
    ok 'systemd has no objection to the units' verified
    ok 'systemd understands the time' \
        quietly systemd-analyze calendar "$(sed -n 's/^OnCalendar=//p' "$recipes/systemd/nightly-report.timer")"
    sed -i 's/^KillMode=.*/KillMode=perhaps/' "$work/units/importer.service"
    ok 'and would object' not quietly verified
else
    not_run 'what systemd says of the recipes' 'systemd-analyze is missing (apt-get install systemd)'
fi
if command -v kubectl >/dev/null 2>&1; then
    for manifest in cronjob deployment; do
        ok "kubectl knows all fields of $manifest.yaml" python3 "$recipes/commands.py" --schema "$recipes/kubernetes/$manifest.yaml"
        sed 's/restartPolicy:/restartPolice:/; s/replicas:/replica:/' "$recipes/kubernetes/$manifest.yaml" >"$work/wrong.yaml"
        ok 'and would miss one' not quietly python3 "$recipes/commands.py" --schema "$work/wrong.yaml"
    done
else
    not_run 'what kubectl says of the recipes' 'kubectl is missing (https://kubernetes.io/docs/tasks/tools)'
fi
if docker compose version >/dev/null 2>&1; then
    ok 'docker compose reads compose.yaml' docker compose --file "$recipes/compose/compose.yaml" config --quiet
elif command -v docker-compose >/dev/null 2>&1; then
    ok 'docker-compose reads compose.yaml' docker-compose --file "$recipes/compose/compose.yaml" config --quiet
else
    not_run 'what docker compose says of the recipe' 'it is missing (apt-get install docker-compose)'
fi

# What compose mounts is there, and Prometheus reads its part.
mounted() {
    python3 - "$recipes/compose/compose.yaml" <<'END'
import pathlib, sys, yaml
recipe = pathlib.Path(sys.argv[1])
for service in yaml.safe_load(recipe.read_text())["services"].values():
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith(".") and not (recipe.parent / source).is_file():
            sys.exit(f"{source} is missing")
END
}
ok 'what compose.yaml mounts is there' mounted
if command -v promtool >/dev/null 2>&1; then
    cp "$recipes/compose/prometheus.yml" packaging/watching/alerts.yml "$work"
    ok 'promtool has no objection to the configuration of compose' quietly promtool check config "$work/prometheus.yml"
else
    not_run 'what promtool says of the recipe' 'promtool is missing (apt-get install prometheus)'
fi

# ---- the commands ------------------------------------------------------------------

job cron/nightly-report
job systemd/nightly-report.service
job kubernetes/cronjob.yaml
tried_again systemd/nightly-report.service
tried_again kubernetes/cronjob.yaml
turns systemd/importer.service
turns kubernetes/deployment.yaml
turns compose/compose.yaml
turns ci/gitlab-ci.yml
turns ci/github-actions.yml
loss systemd/importer.service
loss cron/nightly-report
loss ci/gitlab-ci.yml

# The exporter serves, and SIGTERM ends it as systemd expects.
stage exporter
sed -n 's/^ExecStart=//p' "$recipes/systemd/leasehold-exporter.service" |
    sed -e "s:/usr/bin/leasehold:$work/bin/leasehold:" -e 's/127.0.0.1:9843/127.0.0.1:0/' >"$work/command"
start 1
serves() {
    page=$(sed -n 's/^listening on //p' "$STAGE/said.1")
    [ -n "$page" ] && python3 -c 'import sys, urllib.request as web
sys.exit(b"\nleasehold_store_up{" not in web.urlopen(sys.argv[1]).read())' "$page" 2>/dev/null
}
ok 'systemd/leasehold-exporter.service: it serves the store' until_true 30 serves
kill -TERM "$pid"
ok 'systemd/leasehold-exporter.service: SIGTERM ends it with status 0' ends_with 0 "$pid"

# The statuses of the unit are those of the command.
stage statuses
take_out systemd/importer.service
sed -i 's/ -- / --retry-store 0s -- /; s/--retry-store 10m//' "$work/command"
stop_server
start 1
ok 'a store that is away ends it with status 69' ends_with 69 "$pid"
prevented=$(sed -n 's/^RestartPreventExitStatus=//p' "$recipes/systemd/importer.service")
for status_of_help in $prevented 69 70; do
    ok "the help knows the status $status_of_help" grep -qw "$status_of_help" <<END
$("$binary" --help)
END
done
for tried_again in 69 70; do
    ok "systemd tries again after $tried_again" not grep -qw "$tried_again" <<END
$prevented
END
done
ok 'systemd takes SIGTERM for a success' grep -qx 'SuccessExitStatus=143' "$recipes/systemd/importer.service"
echo "recipes: $checks checks passed"
