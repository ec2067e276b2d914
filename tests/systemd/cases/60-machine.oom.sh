# A worker that takes more memory than its task may have: its outcome is `oom`, it is counted, and nobody else
# is touched.
# needs: vm
# needs: controller memory
start_daemon
calm="$(add -- sleep 1000)"
worker="$(worker_of "$calm")"
task="$(add --retries 0 --property MemoryMax=32M -- tail /dev/zero)"
wait_for "the task to be blocked" 60 task_is "$task" blocked
same "its outcome" oom "$(outcomes "$task")"
same "counted failures" 1 "$(task_says "$task" Failures)"
same "events of that kind" 1 "$(count_events "$task" oom)"
lives "$worker"
running "$calm"
# One of a crowd: the command itself goes on and says how it ended, and it is told all the same.
crowd="$(add --retries 0 --property MemoryMax=32M -- bash -c 'tail /dev/zero; exit 5')"
wait_for "the task to be blocked" 60 task_is "$crowd" blocked
same "its outcome" oom "$(outcomes "$crowd")"
