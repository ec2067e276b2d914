# A soft reboot that no daemon saw, since it was stopped before: the boot is the same, and what the manager ended is
# lost all the same, uncounted, and runs again; what had ended before by itself has its own end.
# needs: systemd 254
# reboot
# limit: 90
case "$TURN" in
1)
    configure '[run]' 'max_running = 8'
    start_daemon
    plain="$(add --retries 0 -- sleep 1000)"
    polite="$(add --retries 0 -- bash -c 'trap "exit 0" TERM; while :; do sleep 0.05; done')"
    ended="$(add_waiting go 7 --retries 0)"
    for task in "$plain" "$polite" "$ended"; do worker_of "$task" >>"$CASE_DIR/workers"; done
    worker="$(worker "$ended")"
    systemctl stop tenured.service
    touch "$CASE_DIR/go"
    wait_for "a worker to end" 10 gone "$worker"
    cat /proc/sys/kernel/random/boot_id >"$CASE_DIR/boot"
    next_turn_after soft-reboot
    ;;
*)
    same "the boot" "$(cat "$CASE_DIR/boot")" "$(cat /proc/sys/kernel/random/boot_id)"
    unit_is tenured.service inactive
    start_daemon
    for task in 1 2; do
        worker="$(worker_of "$task")"
        if grep -qx "$worker" "$CASE_DIR/workers"; then fail "task $task has the worker of before"; fi
        same "the runs of $task" "lost -" "$(outcomes "$task" | paste -sd' ')"
        same "counted failures of $task" 0 "$(task_says "$task" Failures)"
    done
    task_is 3 blocked
    same "the runs of 3" failed "$(outcomes 3)"
    same "the exit code of 3" 7 "$(exit_code 3)"
    ;;
esac
