# The power is cut with running tasks: what was acknowledged is there, runs are `lost`, and they run again.
# reboot
# also: vm
# limit: 120
configure '[run]' 'max_running = 4'
if [ "$TURN" = 1 ]; then
    systemctl enable tenured.service
    start_daemon
    task="$(add_waiting go 0)"
    worker_of "$task" >"$CASE_DIR/workers"
    echo "$task" >"$CASE_DIR/task"
    manager SetQueue 'sa{sv}' people 0
    # The list itself has to survive the cut too; the board's own answers need no such help.
    sync
    for number in $(seq 20); do
        manager CreateTask 'sa{sv}' "number $number" 1 Queue s people | sed -E 's/^tb ([0-9]+) .*/\1/'
    done >"$CASE_DIR/acknowledged"
    sync "$CASE_DIR/acknowledged"
    last="$(manager CreateTask 'sa{sv}' "the last" 1 Queue s people | sed -E 's/^tb ([0-9]+) .*/\1/')"
    echo "$last" >>"$CASE_DIR/acknowledged"
    sync "$CASE_DIR/acknowledged"
    next_turn_after power-cut
fi
wait_for "the daemon to be back by itself" 30 unit_is tenured.service active
same "acknowledged tasks" 21 "$(wc -l <"$CASE_DIR/acknowledged")"
for number in $(cat "$CASE_DIR/acknowledged"); do
    task_is "$number" ready || fail "task $number: $(task_is "$number" ready)"
done
task="$(cat "$CASE_DIR/task")"
worker_of "$task"
same "the runs" "lost -" "$(outcomes "$task" | paste -sd' ')"
same "counted failures" 0 "$(task_says "$task" Failures)"
touch "$CASE_DIR/go"
wait_for "the task to be done" 10 task_is "$task" done
