# At a shutdown the workers are ended first and the daemon after them; a stop of the daemon touches none. A scope is
# ordered after the daemon's unit, and bound to it in no other way.
# reboot
# also: vm
# limit: 120
# A worker that says when it was asked to end, and takes a moment for it.
slow='trap "echo asked >>$0; sleep 1; echo over >>$0; exit 0" TERM; echo up >>$0; while :; do sleep 0.05; done'

bound() { # unit
    local word
    for word in BindsTo BoundBy PartOf ConsistsOf Requires RequiredBy Requisite Wants WantedBy UpheldBy \
        PropagatesStopTo StopPropagatedFrom; do
        [[ "$(property "$1" "$word")" != *tenured.service* && "$(property tenured.service "$word")" != *"$1"* ]] ||
            fail "$1 is bound to the daemon by $word"
    done
}

moments() { # unit, words of the journal; microseconds of the boot before, of the last such line
    journalctl --quiet --boot=-1 --output=json --unit="$1" --grep="$2" |
        jq -rs '.[-1].__MONOTONIC_TIMESTAMP // empty'
}

case "$TURN" in
1)
    configure '[run]' 'max_running = 8'
    systemctl enable --quiet tenured.service
    start_daemon
    for number in 1 2; do
        task="$(add --stop-grace 20s --retries 0 -- bash -c "$slow" "$CASE_DIR/worker.$number")"
        worker_of "$task" >>"$CASE_DIR/workers"
        unit="$(task_says "$task" Unit)"
        echo "$unit" >>"$CASE_DIR/units"
        [[ " $(property "$unit" After) " == *" tenured.service "* ]] || fail "not after the daemon: $(property "$unit" After)"
        same "how long the manager waits for it" 20s "$(property "$unit" TimeoutStopUSec)"
        bound "$unit"
        wait_for "the worker to listen" 10 grep -qx up "$CASE_DIR/worker.$number"
    done
    # A stop of the daemon is its own alone, and so is a failure of it.
    for turn in 1 2; do
        systemctl stop tenured.service
        wait_for "all jobs to be through" 10 settled
        while read -r worker; do lives "$worker"; done <"$CASE_DIR/workers"
        while read -r unit; do unit_is "$unit" active; done <"$CASE_DIR/units"
        start_daemon
    done
    if grep -h asked "$CASE_DIR"/worker.*; then fail "a stop of the daemon reached a worker"; fi
    next_turn_after reboot
    ;;
*)
    for number in 1 2; do
        same "what worker $number saw" "up asked over" "$(paste -sd' ' "$CASE_DIR/worker.$number" | sed 's/ up$//')"
    done
    # The daemon was there until its workers had ended, and heard of both ends.
    journalctl --quiet --boot=-1 --output=short-monotonic --unit=tenured.service --unit='tenured-*.scope' | tail -n 30
    asked="$(moments tenured.service 'Stopping ')"
    [ -n "$asked" ] || fail "the daemon was not stopped in order"
    while read -r unit; do
        stopped="$(moments "$unit" '(Stopped|Deactivated|Succeeded)')"
        [ -n "$stopped" ] || fail "$unit did not stop in order"
        note "$unit ended at $stopped, the daemon was asked at $asked"
        [ "$stopped" -lt "$asked" ] || fail "$unit ended after the daemon was asked to"
    done <"$CASE_DIR/units"
    wait_for "the daemon to be back by itself" 20 unit_is tenured.service active
    for task in 1 2; do
        worker_of "$task" >/dev/null
        same "the runs of $task" "lost -" "$(outcomes "$task" | paste -sd' ')"
        same "counted failures of $task" 0 "$(task_says "$task" Failures)"
    done
    ;;
esac
