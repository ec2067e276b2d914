# What cases use. A case is sourced by bash after this file, as root, on a host with tenured installed but
# neither enabled nor running, with an empty board. Anything that fails ends the case.
#
#   $TURN        1, and one more after each reboot that the case asked for
#   $CASE_DIR    a directory of the case; what is in it is there after a reboot too, and is collected
set -euo pipefail

SKIPPED=77
NEXT_TURN=85

# Ends the case: it cannot show its thing here, and why.
skip() { echo "$*"; exit "$SKIPPED"; }

# Ends the case: it failed, and what was seen.
fail() { echo "FAILED: $*" >&2; exit 1; }

note() { echo "-- $*"; }

# Ends this turn; the next one comes after that: reboot, soft-reboot, or the power cut.
next_turn_after() { # reboot, soft-reboot or power-cut
    echo "$1" >"$CASE_DIR/next"
    exit "$NEXT_TURN"
}

# Waits until a command succeeds, and says at the end of the time what it last printed.
wait_for() { # words, seconds, command...
    local words="$1" seconds="$2" end saw="" now
    shift 2
    # A machine in software is slower by that much.
    seconds=$((seconds * ${SLOWNESS:-1}))
    now="$(read_clock)"
    end=$((now + seconds * 1000))
    until saw="$("$@" 2>&1)"; do
        now="$(read_clock)"
        [ "$now" -lt "$end" ] || fail "waited $seconds s for: $words; \`$*\` last said: ${saw:-nothing}"
        sleep 0.05
    done
    [ -z "$saw" ] || printf '%s\n' "$saw"
}

# Succeeds where two words are the same, else says what was there.
is() { # wanted, seen
    [ "$1" = "$2" ] || { echo "wanted: $1; is: $2"; return 1; }
}

# As `is`, but of what a command prints.
prints() { # wanted, command...
    local wanted="$1" seen
    shift
    seen="$("$@" 2>&1)" || { echo "\`$*\` failed: $seen"; return 1; }
    is "$wanted" "$seen"
}

# Ends the case where two words differ.
same() { # what, wanted, seen
    [ "$2" = "$3" ] || fail "$1: wanted \`$2\`, is \`$3\`"
}

# Milliseconds since the boot; no process is made for it.
read_clock() {
    local up
    read -r up _ </proc/uptime
    echo $((10#${up/./} * 10))
}

# A property of a unit.
property() { # unit, name
    systemctl show --property="$2" --value "$1"
}

unit_is() { # unit, state
    prints "$2" property "$1" ActiveState
}

systemd_version() { systemctl --version | sed -nE '1s/^systemd ([0-9]+).*/\1/p'; }

# Field 22 of /proc/PID/stat, after the last parenthesis: with the pid it says which process is meant.
start_ticks() { # pid
    local stat
    stat="$(cat "/proc/$1/stat")" || return
    stat="${stat##*) }"
    # shellcheck disable=SC2086
    set -- $stat
    echo "${20}"
}

# A process by number and start: `1234:567890`.
process() { # pid
    echo "$1:$(start_ticks "$1")"
}

# Whether exactly that process lives, zombies apart.
lives() { # process
    local pid="${1%%:*}" state
    [ "$(start_ticks "$pid" 2>/dev/null)" = "${1##*:}" ] || { echo "$1 is gone"; return 1; }
    state="$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat")"
    [ "$state" != Z ] || { echo "$1 is a zombie"; return 1; }
}

gone() { # process
    ! lives "$1" >/dev/null || { echo "$1 lives: $(tr '\0' ' ' <"/proc/${1%%:*}/cmdline")"; return 1; }
}

# Starts the daemon as an operator does, and says its pid.
start_daemon() {
    systemctl start tenured.service
    daemon_pid
}

daemon_pid() {
    local pid
    pid="$(property tenured.service MainPID)"
    [ "$pid" != 0 ] || { echo "tenured.service has no main process" >&2; return 1; }
    echo "$pid"
}

# Adds a task and prints its number. Further words are those of `tenurectl add`.
add() { tenurectl --json add "$@" | jq -r .Task; }

# One field of a task or of its last run as the daemon tells it: `task_says 3 Status`.
task_says() { # task, field
    tenurectl --json show "$1" | jq -rs --arg name "$2" '[.[] | .. | objects | select(has($name)) | .[$name]][0] // ""'
}

task_is() { # task, status
    prints "$2" task_says "$1" Status
}

# The runs of a task, one outcome a line, oldest first.
outcomes() { # task
    busctl --json=short call org.tenured1 /org/tenured1 org.tenured1.Manager ListRuns 'ta{sv}' "$1" 0 |
        jq -r '.data[0][] | .Outcome.data // "" | if . == "" then "-" else . end'
}

# The kinds of a task's events, one a line, oldest first.
events() { # task
    busctl --json=short call org.tenured1 /org/tenured1 org.tenured1.Manager ListEvents 'a{sv}' 1 Task t "$1" |
        jq -r '.data[0][].Kind.data'
}

# The exit code of a task's last run.
exit_code() { # task
    busctl --json=short call org.tenured1 /org/tenured1 org.tenured1.Manager ListRuns 'ta{sv}' "$1" 0 |
        jq -r '.data[0][-1].ExitCode.data'
}

# Waits until the journal has a line of this case with these words, whoever wrote it.
journal_says() { # words
    wait_for "the journal to say: $1" 10 journal_has "$1" >/dev/null
}
journal_has() { journal --output=cat --grep="$1" | grep .; }

# Whether the kernel keeps limits of a kind for units here: memory, cpu, pids, io.
has_controller() { grep -qw "$1" /sys/fs/cgroup/cgroup.controllers; }

# The worker of a running task as a process.
worker() { # task
    local pid
    pid="$(task_says "$1" WorkerPid)"
    [ "${pid:-0}" != 0 ] || { echo "task $1 has no worker" >&2; return 1; }
    process "$pid"
}

manager() { # method, signature and arguments...
    busctl call org.tenured1 /org/tenured1 org.tenured1.Manager "$@"
}

# The journal of this case so far.
journal() { # journalctl's words...
    journalctl --quiet --sync 2>/dev/null || true
    journalctl --quiet --no-pager --since="@$(cat "$CASE_DIR/since")" "$@"
}

# Runs a command as one of the users, in a login of theirs: `as ann systemctl --user ...`.
as() { # user, command...
    local user="$1" uid
    uid="$(id -u "$user")"
    shift
    setpriv --reuid "$user" --regid "$user" --init-groups env -i HOME="/home/$user" USER="$user" LOGNAME="$user" \
        SHELL=/bin/bash PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 SYSTEMD_PAGER=cat \
        XDG_RUNTIME_DIR="/run/user/$uid" DBUS_SESSION_BUS_ADDRESS="unix:path=/run/user/$uid/bus" "$@"
}

# The host as it was after the installation: no daemon, no worker, no board, no drop-in.
reset_host() {
    local units=(tenured.service tenured-launcher.socket tenured-launcher.service tenured-drain.service)
    local user
    timeout 30 systemctl stop "${units[@]}" || systemctl kill --signal=KILL "${units[@]}" || true
    systemctl kill --signal=KILL 'tenured-*.scope' || true
    systemctl stop 'tenured-*.scope' || true
    systemctl disable "${units[@]}" || true
    for user in ann bob; do
        loginctl disable-linger "$user" || true
        loginctl terminate-user "$user" || true
        rm -rf "/home/$user"
        mkdir -p "/home/$user"
        chown "$user:$user" "/home/$user"
    done
    rm -rf /var/lib/tenured /run/tenured /etc/tenured/tenured.toml.d /run/systemd/system/tenured*.d
    systemctl daemon-reload
    systemctl reset-failed || true
}

# Adds to the configuration; a daemon that runs is told.
configure() { # lines of toml...
    mkdir -p /etc/tenured/tenured.toml.d
    printf '%s\n' "$@" >/etc/tenured/tenured.toml.d/case.toml
    ! systemctl --quiet is-active tenured.service || systemctl reload tenured.service
}

# A drop-in of a unit for this case alone.
drop_in() { # unit, lines...
    local unit="$1"
    shift
    mkdir -p "/run/systemd/system/$unit.d"
    printf '%s\n' "$@" >"/run/systemd/system/$unit.d/case.conf"
    systemctl daemon-reload
}

# Adds a task whose command ends with a code once a file is there: `task="$(add_waiting go 3)"`, `touch
# "$CASE_DIR/go"`.
add_waiting() { # file, code, further words of add...
    local file="$CASE_DIR/$1" code="$2"
    shift 2
    add "$@" -- bash -c "until [ -e '$file' ]; do sleep 0.05; done; exit $code"
}

# How often a kind is among a task's events.
count_events() { # task, kind
    events "$1" | grep -cx "$2" || true
}

running() { # task
    task_is "$1" running && [ "$(task_says "$1" Stage)" = running ]
}

# Waits until a task runs, and says who its worker is.
worker_of() { # task
    wait_for "task $1 to run" 10 running "$1" >/dev/null
    worker "$1"
}

# Where no job of the service manager is left.
settled() {
    prints "No jobs running." systemctl list-jobs
}
