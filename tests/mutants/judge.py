#!/usr/bin/env python3
"""Judges the mutants that plant.py has planted: each is alive in one run of the tests after
another, until one fails or takes too long. Prints a table, and the survivors.

    judge.py PLANTED KNOWN JOBS RESULTS LIB SCHEDULER IT

PLANTED is the list of plant.py. KNOWN has survivors that somebody has read, each with the reason
why it cannot matter on the indented line after it. RESULTS gets a line for each mutant as soon as
it is judged; what it has already is not judged again. The last three are the programs.
"""

import collections
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import threading
import time

# No test allocates more; a mutant that never stops allocating must not take the machine along.
MOST_MEMORY_KB = 12 << 20
SCHEDULED = re.compile(r'src/(base|lease|wait|hold)/')


def judges(file, lib, scheduler, it):
    """The runs for a mutant in this file: a name, the command, and whether single tests can be
    run again."""
    all_judges = [('unit', [lib, '--quiet'], True)]
    if SCHEDULED.match(file):
        all_judges.append(('scheduler', [scheduler, '--seconds', '5', '--seed', '1', '--first'], False))
    if not file.startswith(('src/store/postgres', 'src/store/zookeeper', 'src/store/redlock', 'src/store/redis')):
        all_judges.append(('memory', [it, '--quiet', 'contract::memory'], True))
    where = {'src/store/postgres': 'postgres', 'src/store/zookeeper': 'zookeeper', 'src/store/redlock': 'redlock'}
    store = next((store for folder, store in where.items() if file.startswith(folder)), 'redis')
    all_judges.append((store, [it, '--quiet', 'contract::%s::' % store], True))
    return all_judges


class Judge:
    def __init__(self, tree, programs):
        self.tree = tree
        self.programs = programs
        self.limits = {}

    def run(self, command, number, limit):
        """Whether it passed, `None` if it took too long, and what it wrote."""
        environment = dict(os.environ, LEASEHOLD_MUTANT=str(number), RUST_BACKTRACE='0')
        shell = ['sh', '-c', 'ulimit -v %d; exec "$@"' % MOST_MEMORY_KB, 'sh'] + command
        child = subprocess.Popen(shell, cwd=self.tree, env=environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
                                 start_new_session=True)
        try:
            said, _ = child.communicate(timeout=limit)
            return child.returncode == 0, said
        except subprocess.TimeoutExpired:
            return None, ''
        finally:
            # With the servers of its tests.
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()

    def measure(self, file):
        """Without a mutant all must pass. What it takes is the measure for those with one."""
        for name, command, _ in judges(file, *self.programs):
            if name in self.limits:
                continue
            began = time.monotonic()
            passed, said = self.run(command, 0, 900)
            if not passed:
                sys.exit('%s fails without a mutant:\n%s' % (name, said[-4000:]))
            self.limits[name] = 30 + 5 * (time.monotonic() - began)

    def verdict(self, number, file):
        for name, command, singly in judges(file, *self.programs):
            passed, said = self.run(command, number, self.limits[name])
            if passed is None:
                return 'caught by %s: it takes too long' % name
            if passed:
                continue
            failed = sorted(set(re.findall(r'^    ([a-z0-9_:]+)$', said, re.MULTILINE))) if singly else []
            if not failed:
                return 'caught by %s' % name
            # A test that fails by chance has caught nothing. A few are enough to know.
            again, _ = self.run([command[0], '--exact', '--quiet'] + failed[:5], number, self.limits[name])
            if not again:
                return 'caught by %s: %s' % (name, failed[0])
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
    todo = [m for m in mutants if m[2] not in verdicts]
    for _, _, name in todo:
        judge.measure(name)
    lock = threading.Lock()

    def one(mutant):
        number, _, name = mutant
        verdict = judge.verdict(int(number), name)
        with lock, open(results, 'a', encoding='utf-8') as file:
            verdicts[name] = verdict
            file.write('%s\t%s\n' % (name, verdict))
        print('%4d of %d: %s: %s' % (len(verdicts), len(mutants), name, verdict), flush=True)

    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
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
