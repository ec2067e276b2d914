# A daemon that does not get on is ended by the watchdog and started anew; workers live on, and are found again.
# limit: 120

mkdir -p /run/systemd/system/tenured.service.d
printf '[Service]\nWatchdogSec=2s\n' >/run/systemd/system/tenured.service.d/watchdog.conf
systemctl daemon-reload
mkdir -p /etc/tenured/tenured.toml.d
printf '[run]\nmax_running = 8\n' >/etc/tenured/tenured.toml.d/case.toml
pid="$(start_daemon)"

workers=()
tasks=()
for _ in 1 2 3; do
    task="$(add waits -- /bin/sleep 1000)"
    tasks+=("$task")
    wait_for "the task to run" 20 task_is "$task" running >/dev/null
    workers+=("$(wait_for "its worker" 20 worker "$task")")
done

another_daemon() { # the pid before
    local now
    now="$(daemon_pid 2>/dev/null)" || return 1
    [ "$now" != "$1" ] && unit_is tenured.service active
}

all_as_before() {
    local at
    for at in 0 1 2; do
        lives "${workers[$at]}" >/dev/null || fail "a worker did not live on"
        same "its process" "${workers[$at]}" "$(worker "${tasks[$at]}")"
        same "its runs" "-" "$(outcomes "${tasks[$at]}" | paste -sd,)"
    done
}

note "a daemon that gets on is left alone for longer than the watchdog waits"
first="$(property tenured.service WatchdogTimestampMonotonic)"
pinged() { [ "$(property tenured.service WatchdogTimestampMonotonic)" -gt "$((first + 3000000))" ]; }
wait_for "pings" 20 pinged
same "the process" "$pid" "$(daemon_pid)"

note "one that stands still"
kill -STOP "$pid"
wait_for "another daemon" 40 another_daemon "$pid"
all_as_before

note "one whose loop is stuck in a configuration that does not end"
pid="$(daemon_pid)"
mv /etc/tenured/tenured.toml "$CASE_DIR/tenured.toml"
mkfifo /etc/tenured/tenured.toml
systemctl kill --kill-whom=main --signal=HUP tenured.service
# Opening it for writing waits for the reader: from then on the loop waits for the end of what it reads.
exec 9>/etc/tenured/tenured.toml
rm /etc/tenured/tenured.toml
cp "$CASE_DIR/tenured.toml" /etc/tenured/tenured.toml
wait_for "another daemon" 40 another_daemon "$pid"
exec 9>&-
all_as_before
timed_out() { journal -u tenured.service | grep "Watchdog timeout"; }
wait_for "the manager to have said why" 5 timed_out
