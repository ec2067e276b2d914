# A soft reboot ends all processes under the same kernel: what ran is lost, uncounted, and runs again, and the stamp of
# that shutdown does not keep the next user space from starting anything (C11).
# needs: systemd 254
# limit: 120
# reboot

case "$TURN" in
1)
    systemctl enable --quiet tenured.service
    start_daemon >/dev/null
    task="$(add waits --retries 0 -- /bin/sleep 1000)"
    wait_for "the task to run" 20 task_is "$task" running >/dev/null
    next_turn_after soft-reboot
    ;;
*)
    wait_for "the daemon" 20 unit_is tenured.service active >/dev/null
    wait_for "the task to run again" 20 task_is 1 running >/dev/null
    same "its runs" "lost,-" "$(outcomes 1 | paste -sd,)"
    same "its failures" 0 "$(task_says 1 Failures)"
    ;;
esac
