# A soft-reboot: the same kernel, the same boot id, but no worker survives it: `lost`, uncounted, run again.
# needs: systemd 254
# reboot
# limit: 90
configure '[run]' 'max_running = 8'
if [ "$TURN" = 1 ]; then
    systemctl enable tenured.service
    start_daemon
    for code in 0 3; do
        task="$(add_waiting go "$code" --retries 0)"
        worker_of "$task" >>"$CASE_DIR/workers"
        echo "$task" >>"$CASE_DIR/tasks"
    done
    cat /proc/sys/kernel/random/boot_id >"$CASE_DIR/boot"
    next_turn_after soft-reboot
fi
same "the boot" "$(cat "$CASE_DIR/boot")" "$(cat /proc/sys/kernel/random/boot_id)"
note "soft reboots: $(busctl get-property org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager SoftRebootsCount)"
wait_for "the daemon to be back by itself" 20 unit_is tenured.service active
mapfile -t tasks <"$CASE_DIR/tasks"
for task in "${tasks[@]}"; do
    worker="$(worker_of "$task")"
    if grep -qx "$worker" "$CASE_DIR/workers"; then fail "task $task has the worker of before"; fi
    same "the runs of $task" "lost -" "$(outcomes "$task" | paste -sd' ')"
    same "counted failures of $task" 0 "$(task_says "$task" Failures)"
done
touch "$CASE_DIR/go"
wait_for "the first to be done" 10 task_is "${tasks[0]}" done
wait_for "the second to fail" 10 task_is "${tasks[1]}" blocked
