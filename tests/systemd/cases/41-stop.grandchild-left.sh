# Exit 0 with a grandchild left: the run is not over, and the task not done, before the grandchild has gone: by
# itself within the linger time, or by the ladder after it.
# limit: 60
configure '[sweep]' 'interval = "1s"' 'linger = "2s"' '[run]' 'stop_grace = "1s"'
start_daemon
leave='setsid bash -c "echo \$\$ >$0; $1" & until [ -s "$0" ] && [ -e "$0.seen" ]; do sleep 0.02; done; exit 0'
grandchild() { local pid; pid="$(cat "$1")"; process "$pid"; }
# The command has ended, its grandchild has not.
wait_for_end() { # task, file
    local worker
    worker="$(worker_of "$1")"
    wait_for "the grandchild" 10 [ -s "$2" ]
    touch "$2.seen"
    wait_for "the command to end" 10 gone "$worker"
}

# One that goes by itself.
task="$(add -- bash -c "$leave" "$CASE_DIR/first" "until [ -e '$CASE_DIR/go' ]; do sleep 0.05; done")"
wait_for_end "$task" "$CASE_DIR/first"
first="$(grandchild "$CASE_DIR/first")"
lives "$first"
task_is "$task" running
touch "$CASE_DIR/go"
wait_for "the task to be done" 10 task_is "$task" done
gone "$first"
same "what was signalled" 0 "$(count_events "$task" signalled)"

# One that has to be told, and is deaf to TERM.
task="$(add -- bash -c "$leave" "$CASE_DIR/second" "trap '' TERM; while :; do sleep 1000; done")"
wait_for_end "$task" "$CASE_DIR/second"
second="$(grandchild "$CASE_DIR/second")"
lives "$second"
task_is "$task" running
wait_for "the task to be done" 20 task_is "$task" done
gone "$second"
same "its end" completed "$(outcomes "$task")"
