# Where no login manager announces that the host goes down, the manager's own job does: what is running then is lost,
# uncounted, and runs again after the boot.
# limit: 120
# reboot

case "$TURN" in
1)
    systemctl mask --runtime --now systemd-logind.service dbus-org.freedesktop.login1.service >/dev/null 2>&1 || true
    mkdir -p /etc/tenured/tenured.toml.d
    printf '[run]\nmax_running = 8\n' >/etc/tenured/tenured.toml.d/case.toml
    systemctl enable --quiet tenured.service
    start_daemon >/dev/null
    for _ in 1 2 3; do
        task="$(add waits --retries 0 -- /bin/sleep 1000)"
        wait_for "the task to run" 20 task_is "$task" running >/dev/null
    done
    # Not by `systemctl reboot`: that would ask the login manager.
    sync
    systemctl start --no-block --job-mode=replace-irreversibly reboot.target
    wait_for "the end of this boot" 60 false
    ;;
*)
    wait_for "the daemon" 20 unit_is tenured.service active >/dev/null
    for task in 1 2 3; do
        wait_for "the task to run again" 20 task_is "$task" running >/dev/null
        same "its runs" "lost,-" "$(outcomes "$task" | paste -sd,)"
        same "its failures" 0 "$(task_says "$task" Failures)"
    done
    stamped="$(journal -b -1 -u tenured.service 2>/dev/null | grep -c "the host goes down" || true)"
    note "stamped $stamped time(s) in the boot before"
    ;;
esac
