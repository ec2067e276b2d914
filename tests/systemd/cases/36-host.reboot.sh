# A reboot with three running tasks: their runs are `lost`, which counts for nothing, and they run again.
# reboot
# also: vm
# limit: 90
configure '[run]' 'max_running = 8'
if [ "$TURN" = 1 ]; then
    systemctl enable tenured.service
    start_daemon
    for code in 0 0 3; do
        task="$(add_waiting "go" "$code" --retries 0)"
        worker_of "$task" >>"$CASE_DIR/workers"
        echo "$task" >>"$CASE_DIR/tasks"
    done
    waiting="$(add --in 1h -- true)"
    echo "$waiting" >"$CASE_DIR/waiting"
    cat /proc/sys/kernel/random/boot_id >"$CASE_DIR/boot"
    # Worker that ends by itself on TERM, with a success, as polite ones do.
    polite="$(add --retries 0 -- bash -c 'trap "exit 0" TERM; while :; do sleep 0.05; done')"
    worker_of "$polite" >>"$CASE_DIR/workers"
    echo "$polite" >"$CASE_DIR/polite"
    next_turn_after reboot
fi
[ "$(cat "$CASE_DIR/boot")" != "$(cat /proc/sys/kernel/random/boot_id)" ] || fail "the boot has the same id"
wait_for "the daemon to be back by itself" 20 unit_is tenured.service active
for task in $(cat "$CASE_DIR/tasks" "$CASE_DIR/polite"); do
    worker="$(worker_of "$task")"
    if grep -qx "$worker" "$CASE_DIR/workers"; then fail "task $task has the worker of the other boot"; fi
    same "the runs of $task" "lost -" "$(outcomes "$task" | paste -sd' ')"
    same "counted failures of $task" 0 "$(task_says "$task" Failures)"
done
task_is "$(cat "$CASE_DIR/waiting")" todo || task_is "$(cat "$CASE_DIR/waiting")" ready
touch "$CASE_DIR/go"
mapfile -t tasks <"$CASE_DIR/tasks"
wait_for "the first to be done" 10 task_is "${tasks[0]}" done
wait_for "the second to be done" 10 task_is "${tasks[1]}" done
wait_for "the third to fail" 10 task_is "${tasks[2]}" blocked
same "counted failures of the third" 1 "$(task_says "${tasks[2]}" Failures)"
tenurectl cancel "$(cat "$CASE_DIR/polite")"
