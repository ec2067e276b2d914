# Somebody in the daemon's own unit, and in the launcher's, is ended for want of memory: neither unit goes with it,
# and no worker does (C28).
# needs: vm
# needs: controller memory
start_daemon
task="$(add -- sleep 1000)"
worker="$(worker_of "$task")"
trap 'systemctl revert tenured.service tenured-launcher.service' EXIT
kills() { sed -n 's/^oom_kill //p' "/sys/fs/cgroup/system.slice/$1/memory.events"; }
for unit in tenured.service tenured-launcher.service; do
    group="/sys/fs/cgroup/system.slice/$unit"
    main="$(process "$(property "$unit" MainPID)")"
    before="$(kills "$unit")"
    systemctl set-property --runtime "$unit" MemoryMax=$(($(cat "$group/memory.current") + 24 * 1024 * 1024))
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        echo 1000 >/proc/self/oom_score_adj
        exec tail /dev/zero
    ) && fail "the hog in $unit was not ended"
    [ "$(kills "$unit")" -gt "$before" ] || fail "nobody of $unit was ended for memory"
    systemctl set-property --runtime "$unit" MemoryMax=infinity
    # A manager that is told to look anew has heard of it, and leaves the unit alone.
    systemctl daemon-reload
    wait_for "all jobs to be through" 10 settled
    lives "$main"
    unit_is "$unit" active
    same "restarts of $unit" 0 "$(property "$unit" NRestarts)"
done
lives "$worker"
last="$(add -- true)"
wait_for "another task to be done" 20 task_is "$last" done
lives "$worker"
running "$task"
