# Two units of the daemon at once: the second is refused, and the first does not notice.
pid="$(start_daemon)"
daemon="$(process "$pid")"
task="$(add -- sleep 1000)"
worker="$(worker_of "$task")"

second() { # unit, arguments...
    local unit="$1" status
    shift
    systemd-run --quiet --unit="$unit" --property=Type=exec /usr/bin/tenured "$@"
    wait_for "$unit to end" 20 unit_is "$unit" failed
    status="$(property "$unit" ExecMainStatus)"
    note "$unit ended with $status"
    [ "$status" != 0 ] || fail "$unit ended well"
}
# On the same board.
second second-board.service
journal_says 'board.* is held by'
# With a board of its own, for the same name.
second second-name.service --state-dir=/var/lib/tenured-two --runtime-dir=/run/tenured-two
journal_says 'owns org.tenured1'

lives "$daemon"
lives "$worker"
task_is "$task" running
same "the owner of the name" "$pid" "$(busctl --json=short call org.freedesktop.DBus /org/freedesktop/DBus \
    org.freedesktop.DBus GetConnectionUnixProcessID s org.tenured1 | jq .data[0])"
rm -rf /var/lib/tenured-two /run/tenured-two
