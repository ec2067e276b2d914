# Everything of a run is moved out of its scope, and then its supervisor is killed: an empty scope is no proof. The
# task is not handed out again before the last of it has gone.
# limit: 60
configure '[sweep]' 'interval = "1s"' 'linger = "2s"' '[run]' 'stop_grace = "1s"' 'backoff = "1s"'
start_daemon
task="$(add --retries 3 -- bash -c '
    exec 9>>"'"$CASE_DIR"'/lock"
    flock --nonblock 9 || { echo overlap >>"'"$CASE_DIR"'/ran"; exit 0; }
    echo "begin $TENURED_RUN" >>"'"$CASE_DIR"'/ran"
    [ "$TENURED_ATTEMPT" = 1 ] || exit 0
    setsid sleep 1000 &
    exec sleep 1001')"
worker="$(worker_of "$task")"
supervisor="$(ps -o ppid= -p "${worker%%:*}" | tr -d ' ')"
child() { pgrep -fx 'sleep 1000'; }
left="$(process "$(wait_for "the child" 5 child)")"
unit="$(task_says "$task" Unit)"
mkdir /sys/fs/cgroup/elsewhere
for pid in "${worker%%:*}" "${left%%:*}" "$supervisor"; do
    echo "$pid" >/sys/fs/cgroup/elsewhere/cgroup.procs
done
wait_for "the scope to be over" 10 unit_is "$unit" inactive
kill -KILL "$supervisor"
wait_for "the worker to die with its supervisor" 5 gone "$worker"
wait_for "the second attempt" 30 task_is "$task" done
gone "$left" || fail "the first attempt lives on"
same "what ran" "begin" "$(cut -d' ' -f1 "$CASE_DIR/ran" | sort -u)"
same "attempts" 2 "$(wc -l <"$CASE_DIR/ran")"
rmdir /sys/fs/cgroup/elsewhere
