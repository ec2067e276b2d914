# The drain unit empties the host first: nothing new starts, its start returns when nothing runs, its stop
# lets tasks start again.
start_daemon
running="$(add_waiting go 0)"
worker="$(worker_of "$running")"
systemctl start --no-block tenured-drain.service
draining() { prints true bash -c 'tenurectl --json status | jq .Draining'; }
wait_for "the daemon to drain" 10 draining
later="$(add -- true)"
tenurectl sweep
unit_is tenured-drain.service activating
task_is "$later" ready
lives "$worker"
touch "$CASE_DIR/go"
wait_for "the drain to be through" 10 unit_is tenured-drain.service active
task_is "$running" done
task_is "$later" ready
# Also over a restart of the daemon.
systemctl restart tenured.service
draining
task_is "$later" ready
systemctl stop tenured-drain.service
wait_for "the later task to have its turn" 10 task_is "$later" done

# A drain that is broken off.
rm "$CASE_DIR/go"
running="$(add_waiting go 0)"
worker_of "$running"
systemctl start --no-block tenured-drain.service
wait_for "the daemon to drain" 10 draining
systemctl stop tenured-drain.service
same Draining false "$(tenurectl --json status | jq .Draining)"
touch "$CASE_DIR/go"
