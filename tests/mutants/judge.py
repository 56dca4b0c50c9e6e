#!/usr/bin/env python3
"""Judges the mutants that plant.py has planted: each is alive in one run of the tests after
another, until one fails or takes too long. Prints a table, and the survivors.

    judge.py PLANTED KNOWN JOBS RESULTS WHICH LIB SCHEDULER IT

PLANTED is the list of plant.py. KNOWN has survivors that somebody has read, each with the reason
why it cannot matter on the indented line after it. RESULTS gets a line for each mutant as soon as
it is judged; what it has already is not judged again. With the WHICH `beside`, only the unit tests
of a mutant's folder judge it. The last three are the programs.
"""

import collections
import concurrent.futures
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

# No test allocates more; a mutant that never stops allocating must not take the machine along.
MOST_MEMORY_KB = 12 << 20


def judges(file, which, lib, scheduler, it):
    """The runs for a mutant in this file: a name, the command, and whether single tests can be
    run again."""
    # Most are caught by the tests beside them, which take a moment.
    beside = '::'.join(file.split(':')[0].split('/')[1:-1][:2]) + '::'
    yield 'its unit tests', [lib, '--quiet', beside], True
    if which == 'beside':
        return
    yield 'all unit tests', [lib, '--quiet'], True
    if file.startswith(('src/base', 'src/lease', 'src/wait', 'src/hold')):
        yield 'scheduler', [scheduler, '--schedules', '40', '--seed', '1', '--first'], False
        yield 'memory', [it, '--quiet', 'contract::memory'], True
    # The readers of other stores' answers are judged by their unit tests alone: their servers take too long.
    if file.startswith('src/store/redlock'):
        yield 'redlock', [it, '--quiet', 'contract::redlock::'], True
    elif not file.startswith(('src/store/postgres', 'src/store/zookeeper', 'src/store/tls')):
        yield 'redis', [it, '--quiet', 'contract::redis::'], True
    # Last, because they take the longest.
    for beginning, (what, modules) in BEYOND.items():
        if file.startswith(beginning):
            without = ['--skip', 'postgres', '--skip', 'mysql', '--skip', 'zookeeper']
            yield what, [it, '--quiet'] + without + modules, True


# The tests of what the contract does not ask, by the beginnings of files.
OF_HOLDS = 'tests of holds', [
    'cancelling::', 'closing::', 'ended_waits::', 'late_releases::', 'loss::', 'loss_reasons::', 'memory::', 'min_hold::',
    'outcomes::', 'panics::', 'processes::', 'redisson_readers::', 'rwlock::', 'shared_reads::', 'snapshot::',
    'stats::', 'turns::', 'unheard::', 'user_code::', 'waiting::',
]
BEYOND = {
    'src/hold': OF_HOLDS,
    'src/lease': OF_HOLDS,
    'src/wait': OF_HOLDS,
    'src/store/net': ('tests of connections', ['broken_connection::', 'slow_names::', 'stopping::', 'stray_frames::', 'tls::']),
    'src/store/redis': ('tests of scripts', ['golden::', 'lua::', 'min_hold::', 'scripts::', 'outcomes::']),
    'src/store/redlock': ('tests of Redlock', ['redlock::']),
}


class Judge:
    def __init__(self, tree, programs):
        self.tree = tree
        self.programs = programs
        self.limits = {}

    def run(self, command, number, limit):
        """Whether it passed, `None` if it took too long, and what it wrote."""
        environment = dict(os.environ, LEASEHOLD_MUTANT=str(number), RUST_BACKTRACE='0', LEASEHOLD_FUZZ_SECONDS='0')
        shell = ['sh', '-c', 'ulimit -v %d; exec "$@"' % MOST_MEMORY_KB, 'sh'] + command
        with tempfile.TemporaryFile(mode='w+', errors='replace') as output:
            child = subprocess.Popen(shell, cwd=self.tree, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=subprocess.STDOUT, start_new_session=True)
            try:
                passed = child.wait(limit) == 0
            except subprocess.TimeoutExpired:
                passed = None
            # With the servers of its tests.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            output.seek(0)
            return passed, output.read()

    def fails(self, name, command, singly, number, limit):
        """Why it fails, or `None`. A test that fails by chance has caught nothing: it is run again."""
        passed, said = self.run(command, number, limit)
        if passed is None:
            return '%s: it takes too long' % name
        failed = sorted(set(re.findall(r'^    ([a-z0-9_:]+)$', said, re.MULTILINE))) if singly else []
        # Of many that fail, a few are enough to know.
        if passed or failed and self.run([command[0], '--exact', '--quiet'] + failed[:5], number, limit)[0]:
            return None
        return '%s: %s' % (name, failed[0] if failed else said.strip().splitlines()[-1:])

    def measure(self, name, command, singly):
        """Without a mutant all must pass. What it takes is the measure for those with one."""
        began = time.monotonic()
        failed = self.fails(name, command, singly, 0, 1800)
        if failed:
            sys.exit('without a mutant fails %s' % failed)
        # Unit tests take a moment, and many mutants hang.
        least = 20 if name == 'its unit tests' else 60
        self.limits[name] = least + 5 * (time.monotonic() - began)
        print('%s: at most %.0f s' % (name, self.limits[name]), flush=True)

    def verdict(self, number, file):
        for name, command, singly in judges(file, *self.programs):
            failed = self.fails(name, command, singly, number, self.limits[name])
            if failed:
                return 'caught by %s' % failed
        return 'SURVIVED'


def known_survivors(path):
    with open(path, encoding='utf-8') as file:
        return {line.rstrip('\n') for line in file if line.startswith('src/')}


def main():
    planted, known, jobs, results = sys.argv[1:5]
    judge = Judge(os.path.join(os.path.dirname(planted), 'tree'), sys.argv[5:])
    known = known_survivors(known)
    with open(planted, encoding='utf-8') as file:
        mutants = [line.rstrip('\n').split('\t') for line in file]
    verdicts = {}
    if os.path.exists(results):
        with open(results, encoding='utf-8') as file:
            verdicts = dict(line.rstrip('\n').split('\t') for line in file)
    # The folders in turn, so that what is judged is a sample even if it is stopped.
    places = collections.Counter()
    turn = {}
    for number, folder, _ in mutants:
        places[folder] += 1
        turn[number] = places[folder]
    todo = sorted((m for m in mutants if m[2] not in verdicts), key=lambda m: turn[m[0]])
    needed = {asked[0]: asked for _, _, file in todo for asked in judges(file, *judge.programs)}
    lock = threading.Lock()

    def one(mutant):
        number, _, name = mutant
        verdict = judge.verdict(int(number), name)
        with lock, open(results, 'a', encoding='utf-8') as file:
            verdicts[name] = verdict
            file.write('%s\t%s\n' % (name, verdict))
        print('%4d of %d: %s: %s' % (len(verdicts), len(mutants), name, verdict), flush=True)

    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        list(pool.map(lambda asked: judge.measure(*asked), needed.values()))
        list(pool.map(one, todo))
    table(mutants, verdicts, known)


def table(mutants, verdicts, known):
    """The figures, and an exit status that says whether each survivor is known."""
    rows = collections.defaultdict(lambda: [0, 0, 0])
    unread = []
    for _, folder, name in mutants:
        if verdicts[name] != 'SURVIVED':
            column = 0
        elif name in known:
            column = 1
        else:
            column = 2
            unread.append(name)
        for row in (folder, 'all'):
            rows[row][column] += 1
    print('\n%-24s %7s %7s %9s %8s' % ('', 'mutants', 'caught', 'no matter', 'survived'))
    rows['all'] = rows.pop('all')
    for row, (caught, known_ones, survived) in rows.items():
        mattering = caught + survived
        share = '%5.1f %%' % (100 * caught / mattering) if mattering else ''
        print('%-24s %7d %7d %9d %8d  %s' % (row, caught + known_ones + survived, caught, known_ones, survived, share))
    for name in unread:
        print('SURVIVED %s' % name)
    sys.exit(1 if unread else 0)


main()
