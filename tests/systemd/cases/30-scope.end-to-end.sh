# A task in its scope from end to end: unit, slice, limits, environment, journal, exit status, and what is left.
# also: vm
pid="$(start_daemon)"
limits=()
for limit in "memory MemoryMax=64M" "pids TasksMax=50" "cpu CPUQuota=50%"; do
    if has_controller "${limit% *}"; then
        limits+=(--property "${limit#* }")
    else
        # What would not be kept is refused, with the reason.
        refused="$(add --property "${limit#* }" -- true)"
        wait_for "the task to be refused" 10 task_is "$refused" blocked
        same "its code" config "$(task_says "$refused" BlockCode)"
        name="${limit#* }"
        [[ "$(task_says "$refused" BlockReason)" == *"${name%%=*}"* ]] || fail "the reason does not name it"
    fi
done
manager SetQueue 'sa{sv}' night-shift 0
task="$(add_waiting go 3 --queue night-shift --retries 0 --user ann "${limits[@]}" --env GREETING=hello 'the one')"
worker="$(worker_of "$task")"
worker_pid="${worker%%:*}"
unit="$(task_says "$task" Unit)"
note "worker $worker in $unit"
[[ "$unit" =~ ^tenured-$task-run-$(task_says "$task" Run)-[0-9a-f]+\.scope$ ]] || fail "a strange name: $unit"
unit_is "$unit" active
same "its slice" "tenured-night\\x2dshift.slice" "$(property "$unit" Slice)"
if has_controller pids; then same TasksMax 50 "$(property "$unit" TasksMax)"; fi
if has_controller memory; then same MemoryMax $((64 * 1024 * 1024)) "$(property "$unit" MemoryMax)"; fi
if has_controller cpu; then same CPUQuota 500ms "$(property "$unit" CPUQuotaPerSecUSec)"; fi
same CollectMode inactive-or-failed "$(property "$unit" CollectMode)"
for wrong in BindsTo PartOf Requires; do
    [[ "$(property "$unit" "$wrong")" != *tenured.service* ]] || fail "$wrong: $(property "$unit" "$wrong")"
done
group="$(property "$unit" ControlGroup)"
same "the worker's cgroup" "0::$group" "$(grep ^0:: "/proc/$worker_pid/cgroup")"
same "the worker's user" "$(id -u ann)" "$(stat -c %u "/proc/$worker_pid")"
same "its oom score" 0 "$(cat "/proc/$worker_pid/oom_score_adj")"
tr '\0' '\n' <"/proc/$worker_pid/environ" >"$CASE_DIR/environ"
grep -qx "GREETING=hello" "$CASE_DIR/environ"
grep -qx "TENURED_TASK=$task" "$CASE_DIR/environ"
if grep -qE '^(NOTIFY_SOCKET|LISTEN_FDS|INVOCATION_ID|JOURNAL_STREAM|WATCHDOG_USEC)=' "$CASE_DIR/environ"; then
    fail "it has the daemon's environment: $(cat "$CASE_DIR/environ")"
fi
# Nobody of the unit is in the daemon's or the launcher's cgroup.
grep -qx "$worker_pid" "/sys/fs/cgroup$group/cgroup.procs"

touch "$CASE_DIR/go"
wait_for "the end" 10 task_is "$task" blocked
same "its outcome" failed "$(outcomes "$task")"
same "the exit status" 3 "$(exit_code "$task")"
wait_for "the unit to be collected" 10 prints not-found property "$unit" LoadState
[ ! -d "/sys/fs/cgroup$group" ] || fail "its cgroup is left"

# Output: by the unit, by the identifier, and by tenurectl.
task="$(add --user ann -- sh -c 'echo to be seen; echo not to be missed >&2')"
wait_for "the end" 10 task_is "$task" done
unit="tenured-$task-run-"
has_line() { journal --output=cat --identifier="tenured-$task" | grep -x 'to be seen'; }
wait_for "its lines by the identifier" 5 has_line
journalctl --quiet --output=json --identifier="tenured-$task" | jq -r ._SYSTEMD_UNIT | grep -q "^$unit" ||
    fail "the lines are not the scope's: $(journalctl -q -o json -t "tenured-$task")"
tenurectl logs "$task" | tee "$CASE_DIR/logs"
grep -q "to be seen" "$CASE_DIR/logs" && grep -q "not to be missed" "$CASE_DIR/logs" || fail "tenurectl does not show the output"
# The same by the task, whoever ends how fast: `journalctl TENURED_TASK=42`.
by_task() { journal --output=cat "TENURED_TASK=$task" _TRANSPORT=stdout | grep -x 'not to be missed'; }
wait_for "its lines by the task" 5 by_task
# The daemon's own words about it, by their fields.
by_field() { journal --output=cat "TENURED_TASK=$task" _SYSTEMD_UNIT=tenured.service | grep .; }
wait_for "the daemon's lines by field" 5 by_field
same "the daemon" "$pid" "$(daemon_pid)"
