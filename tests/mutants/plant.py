#!/usr/bin/env python3
"""Plants a sample of mutants in a copy of the tree, all at once: a variable of the environment
chooses at run time which of them is alive. So the whole sample is compiled once, and not once for
each, which on a small machine is the difference between an hour and days.

    plant.py LIST TREE SEED NUMBER OUT UNVIABLE FOLDERS WHICH

LIST is what `cargo mutants --list --json` prints for TREE. Of each folder NUMBER mutants are chosen
(FOLDERS is a list with commas; if it is empty: of all), by a hash of SEED and of what they change,
so another run with this seed chooses the same ones as long as their functions are there. OUT gets
one line for each: number, folder, name. With the WHICH `beside` no scheduler judges them, so it is
not built.

A function with mutants becomes a `match` of the chosen number, with a copy of its body for each
mutant and the original for all other numbers. A copy that does not compile is taken out again, and
the sample gets the next one instead; the next run knows its name from UNVIABLE, and leaves it out
at once.
"""

import collections
import hashlib
import json
import os
import re
import subprocess
import sys

# What is judged, by the folder that the table shows.
FOLDERS = {
    'base/lease.rs': r'src/base/lease\.rs',
    'lease/': r'src/lease/.*',
    'wait/': r'src/wait/.*',
    'hold/': r'src/hold/.*',
    # Without the sockets of the scheduler, which no user has.
    'store/net/': r'src/store/net/(?!scheduled\.rs).*',
    'store/redlock/': r'src/store/redlock/.*',
    "answers: Redis": r'src/store/redis/(script/.*|sentinel/(question|verdict)|cluster/(topology|map)'
                      r'|wire/(reply|server_error|pubsub))\.rs|src/store/redis/script/.*',
    'answers: PostgreSQL': r'src/store/postgres/(requests|wire/(transport|server_error|listener|password))\.rs',
    'answers: ZooKeeper': r'src/store/zookeeper/(names|lease|wire/(jute|frames|reply|code|status))\.rs',
    'answers: certificates': r'src/store/tls/(der|binding)\.rs',
}

SWITCH = '''
/// Which mutant is alive. Only in the copy of the tree that tests/mutants.sh makes.
#[doc(hidden)]
#[allow(missing_docs, unreachable_pub)]
pub mod planted {
    pub fn alive() -> u32 {
        static ALIVE: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        *ALIVE.get_or_init(|| std::env::var("LEASEHOLD_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0))
    }
}
'''


class Mutant:
    def __init__(self, raw, text):
        self.file = raw['file']
        self.span = [offset(text, raw['span'][end]) for end in ('start', 'end')]
        self.function = [offset(text, raw['function']['span'][end]) for end in ('start', 'end')]
        self.replacement = raw['replacement']
        # Without the position, which changes with every line that is written above it.
        self.name = '%s: %s' % (self.file, raw['name'].split(': ', 1)[1])
        self.number = 0


def offset(text, at):
    """The index of a line and a column, both counted from 1."""
    return text.starts[at['line'] - 1] + at['column'] - 1


class Text(str):
    def __new__(cls, path):
        with open(path, encoding='utf-8') as file:
            text = super().__new__(cls, file.read())
        text.starts = [0] + [m.end() for m in re.finditer('\n', text)]
        return text


def read(listed, tree):
    """All mutants of the folders, those with one name numbered."""
    texts, found, seen = {}, collections.defaultdict(list), collections.Counter()
    with open(listed, encoding='utf-8') as file:
        all_mutants = json.load(file)
    for raw in all_mutants:
        folder = next((f for f, form in FOLDERS.items() if re.fullmatch(form, raw['file'])), None)
        if folder is None or raw['file'].endswith('_tests.rs') or not raw['function']:
            continue
        if raw['file'] not in texts:
            texts[raw['file']] = Text(os.path.join(tree, raw['file']))
        text = texts[raw['file']]
        mutant = Mutant(raw, text)
        # cargo-mutants knows tests only by `#[cfg(test)]`, without conditions beside it.
        if '\nmod tests {' in text[:mutant.span[0]]:
            continue
        seen[mutant.name] += 1
        if seen[mutant.name] > 1:
            mutant.name += ' (%d)' % seen[mutant.name]
        # Not compiled here: Windows, or the scheduler.
        head = text[mutant.function[0]:body_of(text, *mutant.function)]
        if not re.search(r'#\[cfg\((windows|shuttle)\)\]', head):
            found[folder].append(mutant)
    return texts, found


# Where a function begins, behind its comments and attributes.
HEAD = r'(pub(\([^)]*\))?\s+)?((const|unsafe|extern\s+"\w+")\s+)*fn\s'


def body_of(text, start, end):
    """Where the body of the function at `start` begins."""
    head = re.compile(HEAD).match(text, start, end) or re.compile(r'^\s*' + HEAD, re.MULTILINE).search(text, start, end)
    return text.index('{', head.end())


def plant(text, mutants):
    """The text with these mutants, and for each of its lines the mutants that it may belong to."""
    functions = collections.defaultdict(list)
    for mutant in mutants:
        functions[tuple(mutant.function)].append(mutant)
    # Of functions in functions only the outer one is copied.
    outer = {}
    for span in sorted(functions, key=lambda span: (span[0], -span[1])):
        around = next((o for o in outer if o[0] <= span[0] and span[1] <= o[1]), span)
        outer.setdefault(around, []).extend(functions[span])
    pieces, lines, done = [], [], 0

    def add(piece, owners):
        pieces.append(piece)
        lines.extend([owners] * piece.count('\n'))

    for (start, end), inside in sorted(outer.items()):
        body = body_of(text, start, end)
        add(text[done:body], [])
        # What is wrong with the function as a whole, such as `const`, is the fault of all.
        add('{ match crate::planted::alive() {\n', inside)
        for m in inside:
            add('%d => %s%s%s\n' % (m.number, text[body:m.span[0]], m.replacement, text[m.span[1]:end]), [m])
        add('_ => %s\n} }' % text[body:end], inside)
        done = end
    add(text[done:], [])
    return ''.join(pieces), lines


def errors(command, tree):
    """Runs cargo, and returns its errors: file, line, and the message."""
    ran = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True, check=False)
    found = []
    for line in ran.stdout.splitlines():
        message = json.loads(line).get('message') if line.startswith('{') else None
        if not isinstance(message, dict) or message.get('level') != 'error':
            continue
        spans = [s for s in message['spans'] if s['is_primary']] + message['spans']
        found.append(([(s['file_name'], s['line_start']) for s in spans], message['rendered']))
    return ran.returncode, found


def main():
    listed, tree, seed, number, out, unviable_file, only, which = sys.argv[1:]
    texts, found = read(listed, tree)
    if only:
        asked = [folder.strip('/') for folder in only.split(',')]
        found = {folder: mutants for folder, mutants in found.items() if folder.strip('/') in asked}
        if len(found) < len(asked):
            sys.exit('no such folder in %s; there are %s' % (only, ', '.join(FOLDERS)))
    rank = lambda m: hashlib.sha256(('%s %s' % (seed, m.name)).encode()).hexdigest()
    waiting = {folder: sorted(mutants, key=rank) for folder, mutants in found.items()}
    chosen = {folder: [] for folder in waiting}
    numbers = iter(range(1, 1 << 20))
    out_of = {folder: len(mutants) for folder, mutants in waiting.items()}
    unviable = collections.Counter()
    if os.path.exists(unviable_file):
        with open(unviable_file, encoding='utf-8') as file:
            known_as_unviable = set(file.read().splitlines())
    else:
        known_as_unviable = set()

    def fill():
        for folder, some in chosen.items():
            while len(some) < int(number) and waiting[folder]:
                mutant = waiting[folder].pop(0)
                if mutant.name in known_as_unviable:
                    unviable[folder] += 1
                    continue
                mutant.number = next(numbers)
                some.append(mutant)

    lib = os.path.join(tree, 'src/lib.rs')
    with open(lib, 'a', encoding='utf-8') as file:
        file.write(SWITCH)
    # Types are checked before loans, so there are several rounds.
    commands = [['cargo', 'test', '--lib', '--no-run', '--all-features'],
                ['cargo', 'build', '--profile', 'scheduler', '-p', 'leasehold-scheduler',
                 '--config', 'build.rustflags=["--cfg","shuttle"]',
                 '--target-dir', os.path.join(os.environ['CARGO_TARGET_DIR'], 'shuttle')]]
    if which == 'beside':
        del commands[1:]
    fill()
    # What takes the place of one that the second command has refused has not met the first.
    passed = 0
    while passed < len(commands):
        lines = {}
        for path, text in texts.items():
            here = [m for some in chosen.values() for m in some if m.file == path]
            planted, lines[path] = plant(text, here) if here else (text, [])
            with open(os.path.join(tree, path), 'w', encoding='utf-8') as file:
                file.write(planted)
        code, found_errors = errors(commands[passed] + ['--quiet', '--message-format=json'], tree)
        if code == 0:
            passed += 1
            continue
        failed, passed = passed, 0
        guilty = set()
        for spans, rendered in found_errors:
            owners = next((lines[p][n - 1] for p, n in spans if p in lines and n <= len(lines[p]) and lines[p][n - 1]), [])
            guilty.update(owners)
            if not owners and spans:
                sys.exit('not the error of a mutant:\n' + rendered)
        if not guilty:
            sys.exit('cargo failed without an error that names a line: %s' % ' '.join(commands[failed]))
        for folder, some in chosen.items():
            unviable[folder] += sum(m in guilty for m in some)
            chosen[folder] = [m for m in some if m not in guilty]
        with open(unviable_file, 'a', encoding='utf-8') as file:
            file.writelines(m.name + '\n' for m in guilty)
        print('plant: %d do not compile' % len(guilty), file=sys.stderr)
        fill()
    with open(out, 'w', encoding='utf-8') as file:
        for folder, some in chosen.items():
            print('plant: %-24s %4d of %5d, beside %d that do not compile' %
                  (folder, len(some), out_of[folder], unviable[folder]), file=sys.stderr)
            file.writelines('%d\t%s\t%s\n' % (m.number, folder, m.name) for m in some)


main()
