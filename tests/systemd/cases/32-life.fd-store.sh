# The manager keeps a descriptor of each worker, and with it how a worker ended while no daemon was there, even where
# nothing else of it is left; what has ended leaves the store.
# limit: 120

kept() { property tenured.service NFileDescriptorStore; }

# Whether the kernel tells the end of a process to whoever has its pidfd: since Linux 6.15.
kernel_tells() {
    local major minor
    IFS=.- read -r major minor _ < <(uname -r)
    [ "$major" -gt 6 ] || { [ "$major" = 6 ] && [ "$minor" -ge 15 ]; }
}

# A task whose worker waits for a file, and ends with 7.
waiting_task() { # file
    local task
    task="$(add waits --retries 0 -- /bin/sh -c "while ! [ -e $1 ]; do sleep 0.1; done; exit 7")"
    wait_for "the task to run" 20 running "$task" >/dev/null
    echo "$task"
}

exit_code() { # task
    busctl --json=short call org.tenured1 /org/tenured1 org.tenured1.Manager ListRuns 'ta{sv}' "$1" 0 |
        jq -r '.data[0][-1].ExitCode.data'
}

took_back() { # how many
    journal -u tenured.service --output=json | jq -es --arg back "$1" 'any(.BACK == $back)' >/dev/null
}

start_daemon >/dev/null
task="$(waiting_task "$CASE_DIR/go-1")"
wait_for "worker and supervisor to be kept" 10 prints 2 kept
worker="$(worker "$task")"

note "restart"
systemctl restart tenured.service
wait_for "both back" 10 took_back 2
same "the worker" "$worker" "$(worker "$task")"
same "what is kept" 2 "$(kept)"

note "kill -9"
systemctl kill --kill-whom=main --signal=KILL tenured.service
wait_for "the next daemon" 20 prints running task_says "$task" Status
same "the worker" "$worker" "$(worker "$task")"
same "what is kept" 2 "$(kept)"

note "a worker that ends while the daemon stands still, its record lost"
pid="$(daemon_pid)"
kill -STOP "$pid"
touch "$CASE_DIR/go-1"
wait_for "the worker to end" 10 gone "$worker"
# Its space is set aside from the start: only one that says how the command ended is written.
records_written() { grep -qs '^end=exit:' /var/lib/tenured/exits/*; }
wait_for "its record" 10 records_written
scope_empty() { ! grep -qs . /sys/fs/cgroup/tenured.slice/*/tenured-"$task"-run-*.scope/cgroup.procs; }
wait_for "its supervisor to end" 10 scope_empty
rm -f /var/lib/tenured/exits/*
kill -KILL "$pid"
wait_for "the run to have ended" 20 task_is "$task" blocked
if kernel_tells; then
    same "how it ended" failed "$(outcomes "$task")"
    same "its exit code" 7 "$(exit_code "$task")"
else
    same "how it ended" crashed "$(outcomes "$task")"
fi
wait_for "the store to be empty" 10 prints 0 kept

note "stop and start"
task="$(waiting_task "$CASE_DIR/go-2")"
worker="$(worker "$task")"
wait_for "worker and supervisor to be kept" 10 prints 2 kept
systemctl enable --quiet tenured.service
systemctl stop tenured.service
lives "$worker" >/dev/null || fail "the worker went with the daemon"
if [ "$(systemd_version)" -ge 254 ]; then
    same "what is kept of a stopped unit" 2 "$(kept)"
fi
start_daemon >/dev/null
same "the worker" "$worker" "$(worker "$task")"
touch "$CASE_DIR/go-2"
wait_for "the run to have ended" 20 task_is "$task" blocked
same "how it ended" failed "$(outcomes "$task")"
wait_for "the store to be empty" 10 prints 0 kept
