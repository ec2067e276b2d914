# systemd calls a scope failed, or abandons it, while processes live in it: nothing is over before its cgroup is
# empty. The task is not done again meanwhile, its slot stays taken, and a stop still reaches all of it.
# limit: 120
configure '[sweep]' 'interval = "1s"' 'linger = "4s"' '[run]' 'stop_grace = "1s"' 'max_running = 8'
start_daemon
manager SetQueue 'sa{sv}' narrow 1 MaxRunning u 1

# The leader leaves a file to end by; both are deaf to what systemd sends.
pair='trap "" TERM HUP; (trap "" TERM HUP; echo $BASHPID >"$0.child"; exec env -i setsid sleep 1000) & until [ -e "$0.go" ]; do sleep 0.05; done; exit 6'

# Waits until systemd calls it anything but active.
given_up() { # unit
    local state
    state="$(property "$1" ActiveState)"
    [ "$state" = failed ] || [ "$state" = inactive ] || { echo "$state"; return 1; }
}
give_up() { # unit
    mkdir -p "/run/systemd/system/$1.d"
    printf '%s\n' '[Scope]' SendSIGKILL=no TimeoutStopSec=300ms >"/run/systemd/system/$1.d/case.conf"
    systemctl daemon-reload
    systemctl stop "$1" || note "systemctl stop: $?"
    wait_for "systemd to give it up" 10 given_up "$1"
    note "$1 is $(property "$1" LoadState) $(property "$1" ActiveState) $(property "$1" SubState)"
}

populated() { grep -qx 'populated 1' "$1/cgroup.events"; }

# Sets task, next, worker, child, supervisor, unit, group.
begin() { # name
    task="$(add --queue narrow --retries 0 -- bash -c "$pair" "$CASE_DIR/$1")"
    next="$(add --queue narrow -- true)"
    worker="$(worker_of "$task")"
    unit="$(task_says "$task" Unit)"
    group="/sys/fs/cgroup$(property "$unit" ControlGroup)"
    wait_for "its child" 10 [ -s "$CASE_DIR/$1.child" ]
    child="$(process "$(cat "$CASE_DIR/$1.child")")"
    supervisor="$(process "$(sed 's/.*) //' "/proc/${worker%%:*}/stat" | cut -d' ' -f2)")"
}

still_running() {
    tenurectl sweep >/dev/null
    lives "$worker"
    running "$task"
    same "its runs" - "$(outcomes "$task")"
    task_is "$next" ready
}

cancel_reaches_all() {
    tenurectl cancel "$task"
    wait_for "the task to be cancelled" 15 task_is "$task" cancelled
    gone "$worker"
    gone "$child"
    wait_for "the next to have its turn" 10 task_is "$next" done
}

note "given up, and ended by itself"
begin first
give_up "$unit"
populated "$group" || fail "its cgroup is empty: systemd did not give it up, but ended it"
still_running
systemctl restart tenured.service
still_running
systemctl reset-failed
still_running
touch "$CASE_DIR/first.go"
wait_for "the leader to end" 10 gone "$worker"
# Its child holds the run open until the linger time and the ladder.
lives "$child"
task_is "$task" running
task_is "$next" ready
wait_for "the end" 20 task_is "$task" blocked
gone "$child"
same "its end" failed "$(outcomes "$task")"
same "its exit code" 6 "$(exit_code "$task")"
wait_for "the next to have its turn" 10 task_is "$next" done
[ ! -d "$group" ] || ! populated "$group" || fail "something is left in its cgroup"

note "given up, and stopped"
begin second
give_up "$unit"
still_running
cancel_reaches_all

note "given up, leader and supervisor killed: only the cgroup knows of the rest, which has no environment"
begin third
give_up "$unit"
kill -9 "${supervisor%%:*}" "${worker%%:*}"
wait_for "the leader to be gone" 10 gone "$worker"
wait_for "the supervisor to be gone" 10 gone "$supervisor"
tenurectl sweep >/dev/null
lives "$child"
task_is "$task" running
task_is "$next" ready
systemctl restart tenured.service
lives "$child"
task_is "$task" running
task_is "$next" ready
wait_for "the end" 20 task_is "$task" blocked
gone "$child"
same "its end" crashed "$(outcomes "$task")"
wait_for "the next to have its turn" 10 task_is "$next" done

note "abandoned"
begin fourth
busctl call org.freedesktop.systemd1 \
    "$(busctl --json=short call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager GetUnit s "$unit" | jq -r '.data[0]')" \
    org.freedesktop.systemd1.Scope Abandon
same "the scope" abandoned "$(property "$unit" SubState)"
still_running
cancel_reaches_all
