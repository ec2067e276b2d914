# Somebody moves a worker into another scope: it is still ours, it is still seen, and a stop still reaches it.
# limit: 60
configure '[sweep]' 'interval = "1s"' '[run]' 'stop_grace = "2s"' 'max_running = 4'
start_daemon
steal() { # process, unit
    busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager \
        StartTransientUnit 'ssa(sv)a(sa(sv))' "$2" fail 1 PIDs au 1 "${1%%:*}" 0
    stolen() { grep -q "$1" "/proc/$2/cgroup" || { cat "/proc/$2/cgroup"; return 1; }; }
    wait_for "it to be moved" 5 stolen "$2" "${1%%:*}"
}
task="$(add -- sleep 1000)"
worker="$(worker_of "$task")"
steal "$worker" thief.scope
tenurectl sweep
lives "$worker"
running "$task"
same "the worker" "$worker" "$(worker "$task")"
# Also for a daemon that was not there when it happened.
systemctl restart tenured.service
tenurectl sweep
running "$task"
lives "$worker"
tenurectl cancel "$task"
wait_for "it to be stopped" 15 gone "$worker"
wait_for "the task to be cancelled" 10 task_is "$task" cancelled
same "its runs" cancelled "$(outcomes "$task")"

# One that ends by itself after it was moved has its own status.
task="$(add_waiting go 6 --retries 0)"
worker="$(worker_of "$task")"
steal "$worker" thief-two.scope
tenurectl sweep
touch "$CASE_DIR/go"
wait_for "the end" 10 task_is "$task" blocked
same "its exit" 6 "$(exit_code "$task")"
