"""Measures the command as whole processes, beside flock: size, and time to run `true` under a lock.

  python3 packaging/bench.py COMMAND REDIS_SERVER [ROUNDS]

It starts a private server. In each round each of the commands runs once, in another order each time, so that all of them meet the
same machine; medians and quartiles are printed, and the median of the ratios to flock in the same round.
"""

import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

command, server_path = sys.argv[1:3]
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 300
WARM_UP = 20


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(words):
    """Milliseconds of the clock and of the processor."""
    start = time.perf_counter()
    pid = os.posix_spawn(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    took = time.perf_counter() - start
    if status:
        sys.exit(f"{words}: status {os.waitstatus_to_exitcode(status)}")
    return took * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3


def row(name, runs, flocks):
    times = [time for time, _ in runs]
    low, middle, high = statistics.quantiles(times, n=4)
    ratio = statistics.median(time / flock for time, (flock, _) in zip(times, flocks))
    cpu = statistics.mean(cpu for _, cpu in runs)
    print(f"| {name} | {middle:.2f} ms ({low:.2f}–{high:.2f}) | {ratio:.2f} | {cpu:.2f} ms |")


with tempfile.TemporaryDirectory(prefix="lh-bench.", dir="/tmp") as folder:
    port, path = free_port(), f"{folder}/redis.sock"
    server = subprocess.Popen(
        [server_path, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", path, "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 20
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.05)
        lines = {
            "`true` alone": ["/usr/bin/true"],
            "`flock FILE true`": ["/usr/bin/flock", f"{folder}/lock", "/usr/bin/true"],
            "`leasehold --version`": [command, "--version"],
            "`leasehold run x -- true`, unix socket": [command, "run", "x", "--url", f"redis+unix://{path}", "--", "/usr/bin/true"],
            "`leasehold run x -- true`, TCP": [command, "run", "x", "--url", f"redis://127.0.0.1:{port}/", "--", "/usr/bin/true"],
        }
        runs = {name: [] for name in lines}
        for number in range(WARM_UP + rounds):
            for name in random.sample(list(lines), len(lines)):
                one = run(lines[name])
                if number >= WARM_UP:
                    runs[name].append(one)
    finally:
        server.terminate()
        server.wait()

print(f"{rounds} rounds; the command has {pathlib.Path(command).stat().st_size / 1e6:.2f} MB\n")
print("| what | time (quartiles) | to flock | processor |\n|---|---|---|---|")
for name, of_it in runs.items():
    row(name, of_it, runs["`flock FILE true`"])
