# Functions of the benchmark scripts, which source this file after common.sh: servers on free ports, with one worker each,
# that end with the script; their files in $tmp.

bloomeryd=build/release/server/bloomeryd pin_server=() # the program of daemon(), and what precedes a server
tmp=$(mktemp -d "${TMPDIR:-/var/tmp}/bloomery-bench.XXXXXX")
pids=()
cleanup() {
    kill "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$tmp"
}
trap cleanup EXIT

free_port() { # a port without a listener, below those that the kernel gives to connections
    local port
    while port=$((20000 + RANDOM % 12000)); (exec 3<>/dev/tcp/127.0.0.1/"$port") 2>/dev/null; do :; done
    echo "$port"
}

wait_for() { # PORT
    for _ in $(seq 600); do redis-cli -p "$1" ping >/dev/null 2>&1 && return; sleep 0.1; done
    fail "nobody answers on port $1"
}

daemon() { # NAME [setting ...]: starts a $bloomeryd with one worker; port_NAME and pid_NAME are its own
    local name=$1 port
    shift
    port=$(free_port)
    "${pin_server[@]}" "$bloomeryd" --port "$port" --threads 1 --dir "$tmp/$name" --save "" --logfile "$tmp/$name.log" "$@" &
    pids+=($!)
    declare -g "pid_$name=$!" "port_$name=$port"
    wait_for "$port"
}

start_redis() { # [setting ...]; its port is in rport
    rport=$(free_port)
    # Debian's redis-server is this binary under another name; redis-tools has it, and does not start a service.
    (cd "$tmp" && exec -a redis-server redis-check-rdb --port "$rport" --save "" --logfile "$tmp/redis.log" "$@") &
    pids+=($!)
    wait_for "$rport"
    redis_version=$(redis-cli -p "$rport" info server | awk -F: '/^redis_version/ {print $2}' | tr -d '\r')
}

processors() { # the numbers of those that this script may use, one a line
    local range
    for range in $(awk '/^Cpus_allowed_list/ { gsub(",", " ", $2); print $2 }' /proc/self/status); do
        seq "${range%-*}" "${range#*-}"
    done
}

# For latencies: the server gets the first of two processors. On the other one the load generator, which must send each request
# when it is due, goes before everything else ("${first[@]}"), and other clients go last ("${last[@]}").
two_processors() {
    mapfile -t cpus < <(processors)
    [ "${#cpus[@]}" -ge 2 ] || fail "needs two processors: one for the server, one for its clients"
    first=(taskset -c "${cpus[1]}")
    chrt -f 1 true 2>/dev/null && first+=(chrt -f 1)
    last=(taskset -c "${cpus[1]}" nice -n 19)
}

machine="$(awk -F': ' '/model name/ {print $2; exit}' /proc/cpuinfo), $(nproc) processors, $(uname -s) $(uname -r)"

info() { # PORT FIELD: a number of INFO
    redis-cli -p "$1" info everything | awk -F: -v field="$2" '$1 == field {printf "%.15g\n", $2}' # mawk prints 4.1e+09
}

json_number() { # FILE FIELD
    awk -v field="$2" 'match($0, "\"" field "\":[0-9.]+") { print substr($0, RSTART + length(field) + 3, RLENGTH - length(field) - 3) }' "$1"
}

# write_part NAME: the standard input becomes the part of docs/benchmarks.md between the marks of NAME.
write_part() {
    cat >"$tmp/part"
    awk -v begin="<!-- $1 -->" -v end="<!-- end of $1 -->" -v part="$tmp/part" '
        $0 == begin { print; while ((getline line <part) > 0) print line; skip = 1 }
        $0 == end { skip = 0 }
        !skip' docs/benchmarks.md >"$tmp/page"
    cp "$tmp/page" docs/benchmarks.md
}
