# Three workers across 20 restarts, 20 `kill -9` of the daemon and a watchdog's kill: the same processes, and
# every end counted once with its own status.
# limit: 240
configure '[run]' 'max_running = 8'
drop_in tenured.service '[Service]' RestartSec=50ms
start_daemon
tasks=() workers=()
for code in 0 7 9; do
    task="$(add_waiting "go.$code" "$code" --retries 0)"
    tasks+=("$task")
    workers+=("$(worker_of "$task")")
done
all_live() {
    local worker
    for worker in "${workers[@]}"; do lives "$worker" || return; done
}
ready_again() { # the old process
    gone "$1" && unit_is tenured.service active && tenurectl list >/dev/null
}
for turn in $(seq 20); do
    systemctl restart tenured.service
    all_live || fail "after restart $turn"
done
for turn in $(seq 20); do
    daemon="$(process "$(daemon_pid)")"
    systemctl kill --kill-whom=main --signal=KILL tenured.service
    wait_for "a new daemon after kill $turn" 10 ready_again "$daemon"
    all_live || fail "after kill $turn"
done
# A daemon that makes no progress is ended by the watchdog.
drop_in tenured.service '[Service]' RestartSec=50ms WatchdogSec=2s
systemctl restart tenured.service
daemon="$(process "$(daemon_pid)")"
kill -STOP "${daemon%%:*}"
wait_for "the watchdog" 20 ready_again "$daemon"
journal_says "Failed with result 'watchdog'"
all_live || fail "after the watchdog"
for task in "${tasks[@]}"; do
    task_is "$task" running
    same "runs of $task" - "$(outcomes "$task")"
done

touch "$CASE_DIR"/go.{0,7,9}
wait_for "the first to be done" 10 task_is "${tasks[0]}" done
wait_for "the others to fail" 10 task_is "${tasks[1]}" blocked
wait_for "the others to fail" 10 task_is "${tasks[2]}" blocked
for index in 0 1 2; do
    task="${tasks[index]}"
    same "starts of $task" 1 "$(count_events "$task" started)"
    same "runs of $task" 1 "$(outcomes "$task" | wc -l)"
done
same "exit of the second" 7 "$(exit_code "${tasks[1]}")"
same "exit of the third" 9 "$(exit_code "${tasks[2]}")"
