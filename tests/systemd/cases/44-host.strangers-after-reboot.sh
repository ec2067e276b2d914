# After a reboot the numbers of the old workers belong to strangers: none of them gets a signal. What had ended before
# the reboot, and nobody had read its exit record, ended as the record says; what ran is `lost`, and runs again.
# reboot
# also: vm
# limit: 120

# A process with a number of our choice, that says which signals it gets. Nobody else may fork in between.
stranger() { # pid
    local tries=50
    while [ "$tries" -gt 0 ]; do
        tries=$((tries - 1))
        [ ! -e "/proc/$1" ] || fail "the number $1 is taken: $(tr '\0' ' ' <"/proc/$1/cmdline")"
        echo "$(($1 - 1))" >"$CASE_DIR/proc/sys/kernel/ns_last_pid"
        perl -e '
            for my $signal (qw(TERM INT HUP CONT USR1 USR2)) {
                $SIG{$signal} = sub { open my $file, ">>", $ARGV[0]; print $file "$signal\n" };
            }
            sleep 1 while 1' "$CASE_DIR/signals.$1" &
        [ "$!" != "$1" ] || return 0
        kill -9 "$!"
        wait "$!" 2>/dev/null || true
    done
    fail "no process could be given the number $1"
}

# Numbers of processes can be given there; elsewhere it is read-only in a container.
mkdir -p "$CASE_DIR/proc"
mount -t proc proc "$CASE_DIR/proc" || skip "no process can be given a number here"
case "$TURN" in
1)
    # Far above what a boot uses by itself.
    echo 20000 >"$CASE_DIR/proc/sys/kernel/ns_last_pid"
    configure '[run]' 'max_running = 8'
    start_daemon
    for name in first second; do
        task="$(add --retries 0 -- sleep 1000)"
        worker="$(worker_of "$task")"
        echo "$worker" >>"$CASE_DIR/workers"
        # Its supervisor too.
        sed 's/.*) //' "/proc/${worker%%:*}/stat" | cut -d' ' -f2 >>"$CASE_DIR/supervisors"
        note "$name: task $task, worker $worker"
    done
    well="$(add_waiting go 0 --retries 0)"
    badly="$(add_waiting go 7 --retries 0)"
    ended=("$(worker_of "$well")" "$(worker_of "$badly")")
    systemctl stop tenured.service
    touch "$CASE_DIR/go"
    for worker in "${ended[@]}"; do wait_for "a worker to end" 10 gone "$worker"; done
    while read -r worker; do lives "$worker"; done <"$CASE_DIR/workers"
    # Both records are there; nobody has read them.
    written() { is 2 "$(find /var/lib/tenured/exits -type f -exec grep -l ^end=exit {} + | wc -l)"; }
    wait_for "their records" 10 written
    umount "$CASE_DIR/proc"
    next_turn_after reboot
    ;;
*)
    unit_is tenured.service inactive || fail "the daemon was started before its time"
    strangers=()
    while read -r pid; do
        stranger "$pid"
        strangers+=("$(process "$pid")")
    done < <(sed 's/:.*//' "$CASE_DIR/workers" "$CASE_DIR/supervisors")
    start_daemon
    for task in 1 2; do
        worker="$(worker_of "$task")"
        same "the runs of $task" "lost -" "$(outcomes "$task" | paste -sd' ')"
        same "counted failures of $task" 0 "$(task_says "$task" Failures)"
    done
    task_is 3 done
    same "the runs of 3" completed "$(outcomes 3)"
    task_is 4 blocked
    same "the runs of 4" failed "$(outcomes 4)"
    same "the exit code of 4" 7 "$(exit_code 4)"
    same "counted failures of 4" 1 "$(task_says 4 Failures)"

    # The new runs are stopped, and the strangers still live, whole.
    for task in 1 2; do
        tenurectl cancel "$task"
        wait_for "task $task to be cancelled" 10 task_is "$task" cancelled
    done
    for stranger in "${strangers[@]}"; do lives "$stranger"; done
    [ -z "$(cat "$CASE_DIR"/signals.* 2>/dev/null)" ] || fail "strangers got $(cat "$CASE_DIR"/signals.*)"
    umount "$CASE_DIR/proc"
    ;;
esac
