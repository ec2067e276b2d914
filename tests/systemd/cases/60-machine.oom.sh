# A worker that takes more memory than its task may have: its outcome is `oom`, it is counted, tried again after the
# back-off, and in the end blocked with a reason that names the memory; nobody else is touched (C36).
# needs: vm
# needs: controller memory
# limit: 90
configure '[run]' 'max_running = 8'
pid="$(start_daemon)"
calm="$(add --property MemoryMax=32M -- sleep 1000)"
worker="$(worker_of "$calm")"

# Milliseconds between the end of each run and the beginning of the next.
pauses() { # task
    busctl --json=short call org.tenured1 /org/tenured1 org.tenured1.Manager ListRuns 'ta{sv}' "$1" 0 |
        jq -r '.data[0] as $runs | range(1; $runs | length) | ($runs[.].StartedUsec.data - $runs[. - 1].EndedUsec.data) / 1000 | floor'
}
task="$(add --retries 2 --backoff 2s --property MemoryMax=32M -- tail /dev/zero)"
wait_for "the task to be blocked" 60 task_is "$task" blocked
same "its outcomes" "oom oom oom" "$(outcomes "$task" | paste -sd' ')"
same "counted failures" 3 "$(task_says "$task" Failures)"
same "events of that kind" 3 "$(count_events "$task" oom)"
same "its code" failures "$(task_says "$task" BlockCode)"
[[ "$(task_says "$task" BlockReason)" == *"out of memory"* ]] || fail "its reason: $(task_says "$task" BlockReason)"
pauses "$task" | while read -r pause; do
    [ "$pause" -ge 1900 ] || fail "it was tried again after $pause ms: $(pauses "$task" | paste -sd' ')"
done
# One of a crowd: the command itself goes on and says how it ended, and it is told all the same.
crowd="$(add --retries 0 --property MemoryMax=32M -- bash -c 'tail /dev/zero; exit 5')"
wait_for "the task to be blocked" 60 task_is "$crowd" blocked
same "its outcome" oom "$(outcomes "$crowd")"
same "its exit code" 5 "$(exit_code "$crowd")"
[[ "$(task_says "$crowd" BlockReason)" == *"out of memory"* ]] || fail "its reason: $(task_says "$crowd" BlockReason)"
# One that gets along without the one that was killed has done its work.
clever="$(add --retries 0 --property MemoryMax=32M -- bash -c 'tail /dev/zero; exit 0')"
wait_for "the task to be done" 60 task_is "$clever" done
# One whose own limit is far away ends by a KILL of somebody else: that is no want of memory.
killed="$(add --retries 0 --property MemoryMax=32M -- bash -c 'kill -9 $$')"
wait_for "the task to be blocked" 60 task_is "$killed" blocked
same "its outcome" crashed "$(outcomes "$killed")"
lives "$worker"
running "$calm"
same "the daemon" "$pid" "$(daemon_pid)"
