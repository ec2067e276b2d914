# The bus is restarted with workers running: supervision goes on, the name is owned again, tasks start again.
# limit: 90
configure '[run]' 'max_running = 8'
pid="$(start_daemon)"
daemon="$(process "$pid")"
task="$(add_waiting go 4 --retries 0)"
other="$(add_waiting other 0)"
worker="$(worker_of "$task")"
other_worker="$(worker_of "$other")"
# The login manager of later systemds does not come to a new bus by itself.
trap 'systemctl start dbus.socket dbus.service && systemctl restart systemd-logind.service' EXIT
systemctl stop dbus.socket dbus.service
unit_is dbus.service inactive
lives "$daemon"
lives "$worker"
# A worker that ends while there is no bus is seen all the same, through the private socket.
touch "$CASE_DIR/go"
private() { tenurectl --address unix:path=/run/tenured/private --json "$@"; }
seen() { prints blocked bash -c "tenurectl --address unix:path=/run/tenured/private --json show $task | jq -rs '[.[] | .. | objects | select(has(\"Status\")) | .Status][0]'"; }
wait_for "the end without a bus" 15 seen
private status | tee "$CASE_DIR/status"
grep -q bus_lost "$CASE_DIR/status" || fail "it does not say that the bus is lost"
later="$(private add -- true | jq .Task)"
systemctl start dbus.socket dbus.service
wait_for "the name on the new bus" 30 tenurectl list
wait_for "the later task" 30 task_is "$later" done
same "failed starts of the later task" completed "$(outcomes "$later")"
lives "$daemon"
lives "$other_worker"
touch "$CASE_DIR/other"
wait_for "the other to be done" 10 task_is "$other" done
same "its runs" completed "$(outcomes "$other")"
has_bus() { prints false bash -c 'set -o pipefail; tenurectl --json status | jq "[.Degraded[]?] | any(. == \"bus_lost\")"'; }
wait_for "the daemon to be well again" 15 has_bus
