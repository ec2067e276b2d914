# A stop of the service wins over clients that wait for it: none of them has it started again, and each goes on
# when it is back.
# limit: 60
systemctl --quiet enable tenured.service
start_daemon
task="$(add_waiting go 0)"
worker="$(worker_of "$task")"
tenurectl wait "$task" >"$CASE_DIR/wait" 2>&1 &
waiter=$!
tenurectl logs -f "$task" >"$CASE_DIR/logs" 2>&1 &
follower=$!
# Each has a connection to ask and one to hear: then it has subscribed.
connected() { prints 4 sh -c "busctl list --no-legend --no-pager | grep -c '^:.* tenurectl '"; }
wait_for "both to have subscribed" 10 connected
for _ in 1 2 3; do
    systemctl stop tenured.service
    # The safety net of a client is 15 s: longer than the wait here; the stop itself is what it used to undo.
    same "the service" inactive "$(property tenured.service ActiveState)"
    wait_for "no start of it" 5 prints "" systemctl list-jobs --no-legend --no-pager tenured.service
    same "the service" inactive "$(property tenured.service ActiveState)"
    systemctl start tenured.service
done
lives "$worker"
touch "$CASE_DIR/go"
wait "$waiter" || fail "wait ended with $?: $(cat "$CASE_DIR/wait")"
wait "$follower" || fail "logs ended with $?: $(cat "$CASE_DIR/logs")"
