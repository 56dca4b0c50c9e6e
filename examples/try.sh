#!/bin/sh
# Shows the main job: a worker pool of several processes under one lock, while one is killed in its critical section, one is
# suspended past its lease, and the server is killed and comes back empty. Fails loudly if one increment is lost.
#
#   sh examples/try.sh                     the locks are in Redis
#   sh examples/try.sh --store postgres    in PostgreSQL, which comes back with its locks
#   sh examples/try.sh --store zookeeper   in ZooKeeper, which does too; needs a JDK 17 and Maven
set -eu
cd "$(dirname "$0")/.."

store=redis
case "$*" in
'' | '--store redis') ;;
'--store postgres') store=postgres ;;
'--store zookeeper') store=zookeeper ;;
*)
    echo "usage: sh examples/try.sh [--store redis|postgres|zookeeper]" >&2
    exit 2
    ;;
esac

command -v cargo >/dev/null 2>&1 || {
    echo "try.sh: Rust is needed; see https://rustup.rs" >&2
    exit 1
}
if [ "$store" = postgres ]; then
    LEASEHOLD_POSTGRES=$(sh tests/server.sh --postgres)
    export LEASEHOLD_POSTGRES
    echo "PostgreSQL: $LEASEHOLD_POSTGRES (a private server, on a unix socket of its own)" >&2
    echo "building the example (once)" >&2
    cargo build --quiet --features postgres --example worker_pool
    exec cargo run --quiet --features postgres --example worker_pool -- --store postgres
fi
if [ "$store" = zookeeper ]; then
    LEASEHOLD_ZOOKEEPER_JAR=$(sh tests/server.sh --zookeeper)
    export LEASEHOLD_ZOOKEEPER_JAR
    echo "ZooKeeper: $LEASEHOLD_ZOOKEEPER_JAR (a private server, on a port of its own of the loopback interface)" >&2
    echo "building the example (once)" >&2
    cargo build --quiet --features zookeeper --example worker_pool
    exec cargo run --quiet --features zookeeper --example worker_pool -- --store zookeeper
fi
LEASEHOLD_SERVER=$(sh tests/server.sh)
export LEASEHOLD_SERVER
echo "server: $LEASEHOLD_SERVER (a private one, on a unix socket of its own)" >&2
echo "building the example (once)" >&2
cargo build --quiet --example worker_pool
exec cargo run --quiet --example worker_pool
