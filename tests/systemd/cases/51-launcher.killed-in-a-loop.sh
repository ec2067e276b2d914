# limit: 180
# The launcher is killed over and over while a hundred tasks are started: each is done exactly once, and the
# socket by which it is made again never fails.

tasks=100

kill_without_end() {
    local kills=0 pid
    while [ ! -e "$CASE_DIR/enough" ]; do
        # Asked anew each time: the service's main process changes with each kill.
        pid="$(property tenured-launcher.service MainPID)"
        if [ "$pid" != 0 ] && kill -9 "$pid" 2>/dev/null; then
            kills=$((kills + 1))
            echo "$kills" >"$CASE_DIR/kills"
        fi
        sleep "0.0$((kills % 10))"
    done
}

all_done() {
    is "$tasks" "$(tenurectl --json list --all | jq -r 'select(.Status == "done") | .Task' | wc -l)"
}

start_daemon >/dev/null
trace="$CASE_DIR/trace"
: >"$trace"
kill_without_end &
for ((task = 0; task < tasks; task++)); do
    add -- sh -c "echo \$TENURED_TASK >>$trace" >/dev/null
done
wait_for "all tasks to be done" 120 all_done
touch "$CASE_DIR/enough"
wait
note "$(cat "$CASE_DIR/kills") kills"
[ "$(cat "$CASE_DIR/kills")" -ge 20 ] || fail "the launcher was killed $(cat "$CASE_DIR/kills") times only"

same "commands that ran twice" "" "$(sort "$trace" | uniq -d | paste -sd' ')"
same "commands that ran" "$tasks" "$(wc -l <"$trace")"
unit_is tenured-launcher.socket active
same "how the socket's life went" success "$(property tenured-launcher.socket Result)"
! journal -u tenured-launcher.socket | grep -i failed || fail "the socket had failed in between"
