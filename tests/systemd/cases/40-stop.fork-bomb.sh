# A worker that goes on making processes in sessions of their own, all deaf to TERM, overruns its time: its
# cgroup is empty before the next run begins.
# limit: 90
configure '[run]' 'max_running = 4'
start_daemon
cat >"$CASE_DIR/bomb" <<'BOMB'
#!/bin/bash
# Who of another run of this task is still there?
for process in /proc/[0-9]*; do
    if tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx "TENURED_TASK=$TENURED_TASK"; then
        tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx "TENURED_RUN=$TENURED_RUN" ||
            echo "$process $(tr '\0' ' ' <"$process/cmdline")"
    fi
done >"$1/survivors.$TENURED_RUN" 2>/dev/null
touch "$1/began.$TENURED_RUN"
trap '' TERM HUP INT
breed() {
    while [ "$(ls "$2" | wc -l)" -lt 200 ]; do
        touch "$2/$BASHPID.$RANDOM"
        setsid bash -c 'trap "" TERM HUP INT; while :; do sleep 1000; done' &
        [ "$1" -eq 0 ] || breed $(($1 - 1)) "$2" &
        sleep 0.02
    done
    while :; do sleep 1000; done
}
mkdir "$1/bred.$TENURED_RUN"
breed 4 "$1/bred.$TENURED_RUN"
BOMB
chmod +x "$CASE_DIR/bomb"
task="$(add --max-runtime 2s --stop-grace 1s --retries 1 --backoff 100ms -- "$CASE_DIR/bomb" "$CASE_DIR")"
worker_of "$task"
group="/sys/fs/cgroup$(property "$(task_says "$task" Unit)" ControlGroup)"
many() { [ "$(wc -l <"$group/cgroup.procs")" -gt 40 ] || { wc -l <"$group/cgroup.procs"; return 1; }; }
wait_for "its crowd" 10 many
wait_for "both runs to be over" 30 task_is "$task" blocked
same "their ends" "timed_out timed_out" "$(outcomes "$task" | paste -sd' ')"
same "runs that began" 2 "$(ls "$CASE_DIR" | grep -c '^began')"
for survivors in "$CASE_DIR"/survivors.*; do
    [ ! -s "$survivors" ] || fail "the next run began beside $(cat "$survivors")"
done
if grep -lzs "^TENURED_TASK=$task\$" /proc/[0-9]*/environ; then fail "processes are left"; fi
[ ! -d "$group" ] || fail "its cgroup is left"
