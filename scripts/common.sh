# Functions of the scripts, which source this file. They report each step, and do nothing twice.

set -euo pipefail
script=$(realpath "$0")
started_in=$PWD
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

build_packages=(gcc libc6-dev cmake ninja-build pkg-config libuv1-dev liburcu-dev libxxhash-dev nettle-dev libssl-dev
    liblz4-dev libsnappy-dev libzstd-dev zlib1g-dev)
test_packages=(g++ libcriterion-dev libhiredis-dev redis-tools openssl systemd libseccomp2) # these two for tests/service
quick_packages=("${build_packages[@]}" "${test_packages[@]}" python3 python3-redis curl git)
client_packages=(python3 python3-redis curl openssl libcurl4-openssl-dev
    prometheus golang-go golang-github-gomodule-redigo-dev node-redis postgresql python3-psycopg2 mkdocs) # without them pages are skipped
lint_packages=(clang clang-format clang-tidy git python3)
package_packages=(build-essential debhelper help2man fakeroot git xz-utils)
package_test_packages=("${package_packages[@]}" python3 rpm lintian debootstrap systemd-container)

# In bold where it goes to a terminal (no-color.org).
bold= plain=
if [ -t 2 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$'\033[1m' plain=$'\033[0m'
fi
say() { printf '%s== %s%s\n' "$bold" "$*" "$plain" >&2; }
fail() { say "$*"; exit 1; }

# With -h or --help as first argument: prints the comment at the top of the script and ends.
help_if_asked() {
    case ${1:-} in
    -h | --help)
        awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$script"
        exit
        ;;
    esac
}

# The extent of a benchmark: `quick` or all.
mode_of() {
    case ${1:-full} in
    full | quick) echo "${1:-full}" ;;
    *) fail "'$1' is not understood; see --help" ;;
    esac
}

# Installs the missing Debian packages; if that is not possible, names them.
need() {
    local missing=()
    for package in $(printf '%s\n' "$@" | sort -u); do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    if ! command -v apt-get >/dev/null; then
        say "this is not Debian; please install the equivalents of: ${missing[*]}"
        return
    fi
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            fail "packages are missing, and there is no sudo here; run this as root, then scripts/${script##*/} again:" \
                "apt-get update && apt-get install --no-install-recommends ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq >&2
    LC_ALL=C "${as_root[@]}" apt-get install --assume-no --no-install-recommends "${missing[@]}" 2>/dev/null |
        awk '/newly installed/ { printf "   with what they need %d packages", $3 }
            /^Need to get/ { sub(/^Need to get /, ""); sub(/ of archives\.$/, ""); printf ", %s to fetch", $0 }
            /^After this operation/ { printf ", %s %s on the disk", $4, $5 } END { print "" }' >&2 || true
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
}

# The packages of Node.js and npm, unless these are installed, from any source.
node_packages() {
    command -v node >/dev/null && command -v npm >/dev/null || echo nodejs npm
}

# All that the tests of the preset dev need.
dev_packages() {
    echo "${quick_packages[@]}" "${client_packages[@]}" "${package_test_packages[@]}"
    node_packages
}

# Tests sync thousands of files, which takes minutes on a busy disk. In a namespace of mounts, on a machine with 8 GiB to
# spare: a /tmp in memory.
mount_tmp() {
    awk '$1 == "MemAvailable:" { exit $2 < 8388608 }' /proc/meminfo && mount -t tmpfs -o mode=1777,size=50% tmpfs /tmp 2>/dev/null
}

# Runs a command so, if it can be done and hides no clone in /tmp.
in_memory() {
    if [ "$(id -u)" -eq 0 ] && [[ $root != /tmp/* ]] && unshare --mount bash -c "$(declare -f mount_tmp); mount_tmp"; then
        unshare --mount bash -c "$(declare -f mount_tmp); mount_tmp && exec \"\$@\"" bash "$@"
    else
        "$@"
    fi
}

# Shows ninja's progress, from its output: on a terminal in one line, elsewhere a line every ten seconds. Copies it to the file.
show_progress() { # LOG
    local line shown=$SECONDS
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$1"
        [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
        if [ -t 2 ]; then
            printf '\r== %s of %s \033[K' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" >&2
        elif ((SECONDS >= shown + 10)); then
            say "${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
            shown=$SECONDS
        fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

# Configures and builds a preset, or only its `targets`; prints the progress, and otherwise only faults.
targets=()
build() {
    local preset=$1 place
    shift
    for place in build "build/$preset" "build/$preset/build.ninja"; do
        [ -e "$place" ] || place=$(dirname "$place")
        [ ! -e "$place" ] || [ -w "$place" ] ||
            fail "$(id -un) may not write $(realpath "$place"), which belongs to $(stat -c %U "$place"): run this as $(stat -c %U "$place"), or in a clone of your own"
    done
    say "building ($preset)"
    local log
    log=$(mktemp)
    if ! { cmake --preset "$preset" "$@" && cmake --build --preset "$preset" ${targets:+--target "${targets[@]}"}; } 2>&1 | show_progress "$log"; then
        cat "$log" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
}
