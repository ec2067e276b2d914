# PID 1 is executed again, and reloads, in a loop during 200 launches: every task runs once, every scope goes.
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

(while :; do systemctl daemon-reload || true; systemctl daemon-reexec || true; sleep 0.2; done) &
loop=$!
trap 'kill $loop 2>/dev/null || true' EXIT
for _ in $(seq 200); do
    printf '%s\n' "$(add -- true)"
done >"$CASE_DIR/tasks"
open() { prints "" bash -c 'set -o pipefail; tenurectl --json list --limit 1000 | jq -r "select(.Status | IN(\"ready\", \"todo\", \"blocked\")) | .Task"'; }
only_one_runs() { prints "$task" bash -c 'set -o pipefail; tenurectl --json list --limit 1000 | jq -r "select(.Status == \"running\") | .Task" | sort -n'; }
wait_for "all to be started" 120 open
wait_for "all to end" 30 only_one_runs
kill "$loop"
wait "$loop" || true
wait_for "the manager to be back" 10 systemctl daemon-reload
failed_starts=0
for number in $(cat "$CASE_DIR/tasks"); do
    outcomes "$number" >"$CASE_DIR/outcomes"
    same "task $number" completed "$(grep -vx not_started "$CASE_DIR/outcomes")"
    failed_starts=$((failed_starts + $(grep -cx not_started "$CASE_DIR/outcomes" || true)))
done
note "$failed_starts starts came to nothing"
[ "$failed_starts" -le 20 ] || fail "$failed_starts of 200 starts came to nothing: systemd is not asked again"
lives "$daemon"
lives "$worker"
touch "$CASE_DIR/go"
wait_for "the first to be done" 10 task_is "$task" done
no_scope() { prints "" bash -c "systemctl list-units --no-legend --plain 'tenured-*.scope'"; }
wait_for "no scope to be left" 10 no_scope
