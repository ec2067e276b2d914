# Somebody writes the numbers of a worker, of its children, of its supervisor into other cgroups: all of them are still
# ours. The run goes on, is not over before the last of them has gone, and a stop reaches every one.
# limit: 120
configure '[sweep]' 'interval = "1s"' 'linger = "2s"' '[run]' 'stop_grace = "1s"' 'max_running = 8'
start_daemon

root=/sys/fs/cgroup
# The worker and two children in sessions of their own, one of them deaf to TERM.
family='setsid bash -c "trap \"\" TERM; echo \$\$ >$0.deaf; while :; do sleep 0.1; done" &
setsid bash -c "echo \$\$ >$0.other; exec sleep 1000" &
wait'

# Sets task, unit, worker, supervisor, deaf, other.
begin() { # name, further words of add
    local name="$1"
    shift
    task="$(add --retries 0 "$@" -- bash -c "$family" "$CASE_DIR/$name")"
    worker="$(worker_of "$task")"
    unit="$(task_says "$task" Unit)"
    supervisor="$(process "$(sed 's/.*) //' "/proc/${worker%%:*}/stat" | cut -d' ' -f2)")"
    wait_for "its children" 10 [ -s "$CASE_DIR/$name.deaf" -a -s "$CASE_DIR/$name.other" ]
    deaf="$(process "$(cat "$CASE_DIR/$name.deaf")")"
    other="$(process "$(cat "$CASE_DIR/$name.other")")"
}
# To a cgroup that systemd does not know of.
move() { # process, name
    mkdir -p "$root/$2"
    echo "${1%%:*}" >"$root/$2/cgroup.procs"
    same "its cgroup" "0::/$2" "$(grep ^0:: "/proc/${1%%:*}/cgroup")"
}
as_before() {
    local member
    tenurectl sweep >/dev/null
    for member in "$worker" "$supervisor" "$deaf" "$other"; do lives "$member"; done
    running "$task"
    same "the worker" "$worker" "$(worker "$task")"
    same "its runs" - "$(outcomes "$task")"
    same "why it is held" "" "$(task_says "$task" Held)"
}
all_gone() {
    local member
    for member in "$worker" "$supervisor" "$deaf" "$other"; do gone "$member" || return; done
}
stops() {
    tenurectl cancel "$task"
    wait_for "the task to be cancelled" 15 task_is "$task" cancelled
    all_gone || fail "the task was over before all of it had gone"
    same "its runs" cancelled "$(outcomes "$task")"
}
tidy() {
    local directory
    for directory in "$root"/elsewhere.*; do
        [ -s "$directory/cgroup.procs" ] && fail "somebody is left in $directory"
        wait_for "$directory to be free" 5 rmdir "$directory"
    done
}

note "the worker and a child, each elsewhere"
begin first
move "$worker" elsewhere.1
move "$deaf" elsewhere.2
as_before
systemctl restart tenured.service
as_before
stops
tidy

note "all of them, the supervisor too: systemd takes the scope for ended"
begin second
for member in "$worker" "$supervisor" "$deaf" "$other"; do move "$member" elsewhere.3; done
wait_for "systemd to collect the scope" 10 prints not-found property "$unit" LoadState
as_before
systemctl restart tenured.service
as_before
stops
tidy

note "the children elsewhere, and the supervisor killed: nobody but the environment tells whose they are"
begin third
move "$deaf" elsewhere.4
move "$other" elsewhere.5
kill -9 "${supervisor%%:*}"
wait_for "the leader to go with its supervisor" 10 gone "$worker"
tenurectl sweep >/dev/null
lives "$deaf"
lives "$other"
task_is "$task" running
systemctl restart tenured.service
lives "$deaf"
task_is "$task" running
wait_for "the end" 20 task_is "$task" blocked
all_gone || fail "the run was over before all of it had gone"
same "its end" crashed "$(outcomes "$task")"
tidy

note "timed out, all in a cgroup below one of the daemon's neighbours"
begin fourth --max-runtime 2s
move "$worker" elsewhere.6
move "$deaf" elsewhere.6
wait_for "the end" 20 task_is "$task" blocked
all_gone || fail "the run was over before all of it had gone"
same "its end" timed_out "$(outcomes "$task")"
tidy
