# PID 1 is executed again with workers running, and reloads in a loop during 200 launches: every task runs
# once, every scope goes.
# limit: 180
configure '[run]' 'max_running = 8'
pid="$(start_daemon)"
daemon="$(process "$pid")"
task="$(add_waiting go 0)"
worker="$(worker_of "$task")"
systemctl daemon-reexec
lives "$daemon"
lives "$worker"
wait_for "a task after it" 15 task_is "$(add -- true)" done

(while :; do systemctl daemon-reload || true; sleep 0.2; done) &
loop=$!
trap 'kill $loop 2>/dev/null || true' EXIT
for _ in $(seq 200); do
    printf '%s\n' "$(add -- true)"
done >"$CASE_DIR/tasks"
open() { prints 0 bash -c 'tenurectl --json list | jq -r .Status | grep -cE "ready|todo|blocked" || true'; }
only_one_runs() { prints "$task" bash -c 'tenurectl --json list | jq -r "select(.Status == \"running\") | .Task" | sort -n'; }
wait_for "all to be started" 120 open
wait_for "all to end" 30 only_one_runs
systemctl daemon-reexec
kill "$loop"
wait "$loop" || true
for number in $(cat "$CASE_DIR/tasks"); do
    [ "$(outcomes "$number" | grep -vx not_started)" = completed ] || fail "task $number ended: $(outcomes "$number")"
done
lives "$daemon"
lives "$worker"
touch "$CASE_DIR/go"
wait_for "the first to be done" 10 task_is "$task" done
no_scope() { prints "" bash -c "systemctl list-units --no-legend --plain 'tenured-*.scope'"; }
wait_for "no scope to be left" 10 no_scope
