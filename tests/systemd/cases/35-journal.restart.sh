# journald is restarted while a worker prints: the worker goes on, and so does its output.
# limit: 90
start_daemon
task="$(add --retries 0 -- bash -c "n=0; until [ -e '$CASE_DIR/go' ]; do n=\$((n + 1)); echo line \$n || exit 9; sleep 0.02; done; echo last line")"
worker="$(worker_of "$task")"
lines() { journalctl --quiet --output=cat --identifier="tenured-$task" | wc -l; }
more_than() { local seen; seen="$(lines)"; [ "$seen" -gt "$1" ] || { echo "$seen lines"; return 1; }; }
wait_for "its lines" 10 more_than 10
for turn in 1 2 3; do
    systemctl restart systemd-journald.service
    lives "$worker"
    before="$(lines)"
    wait_for "lines after restart $turn" 20 more_than $((before + 10))
done
# And after a journald that was killed.
systemctl kill --kill-whom=main --signal=KILL systemd-journald.service
wait_for "journald to be back" 20 unit_is systemd-journald.service active
lives "$worker"
touch "$CASE_DIR/go"
wait_for "the end" 10 task_is "$task" done
wait_for "its last line" 10 bash -c "journalctl -q -o cat -t tenured-$task | grep -x 'last line'"
same "its runs" completed "$(outcomes "$task")"
unit_is tenured.service active
same "restarts of the daemon" 0 "$(property tenured.service NRestarts)"
