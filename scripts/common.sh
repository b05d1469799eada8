# What the scripts have in common; sourced by them. Says what it does, does nothing twice.

set -euo pipefail
script=$(realpath "$0")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

build_packages=(gcc libc6-dev cmake ninja-build pkg-config libuv1-dev liburcu-dev libxxhash-dev nettle-dev)
test_packages=(libcriterion-dev libhiredis-dev redis-tools)
client_packages=(python3 python3-redis)

say() { printf '== %s\n' "$*" >&2; }
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

# What a benchmark measures: `quick` or all.
mode_of() {
    case ${1:-full} in
    full | quick) echo "${1:-full}" ;;
    *) fail "'$1' is not understood; see --help" ;;
    esac
}

# Installs the Debian packages that are missing; on other systems, says which ones are.
need() {
    local missing=()
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    if ! command -v apt-get >/dev/null; then
        say "this is not Debian; please install the equivalents of: ${missing[*]}"
        return
    fi
    local sudo=
    [ "$(id -u)" -eq 0 ] || sudo=sudo
    say "installing ${missing[*]}"
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Node.js and npm: those that are there, from wherever they came, otherwise the distribution's.
need_node() {
    command -v node >/dev/null && command -v npm >/dev/null || need nodejs npm
}

# Configures and builds a preset; prints only what goes wrong.
build() {
    local preset=$1
    shift
    say "building ($preset)"
    local log
    log=$(mktemp)
    if ! { cmake --preset "$preset" "$@" && cmake --build --preset "$preset"; } >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
}
