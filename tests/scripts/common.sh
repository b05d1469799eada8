# What these tests have in common; sourced by them.

# A port of 127.0.0.1 that nobody has, of those that no other test takes (tests/support/ports.py) and that the kernel does not give to
# connections. Of these tests two that run at the same time begin at different ones.
free_port() {
    local port=$((1024 + $$ % 950))
    while (exec 3<>/dev/tcp/127.0.0.1/"$port") 2>/dev/null; do port=$((port + 1)); done
    echo "$port"
}

# Waits until the file has the text; fails after a minute, and when the process, if one is named, has ended without it.
until_said() { # FILE TEXT [PID]
    local going=yes
    for _ in $(seq 600); do
        [ -z "${3:-}" ] || kill -0 "$3" 2>/dev/null || going=no
        ! grep -qF -- "$2" "$1" || return 0
        [ $going = yes ] || return 1
        sleep 0.1
    done
    return 1
}
