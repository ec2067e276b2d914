# A worker that no signal ends (D state), in a scope that systemd gave up and calls failed: the claim is held as
# `unkillable`, its slots stay taken, the task is not done again; once the kernel lets go all ends as asked.
# limit: 90
configure '[sweep]' 'interval = "1s"' '[run]' 'stop_grace = "1s"' 'max_running = 4'
[ -e /dev/fuse ] || modprobe fuse 2>/dev/null || mknod /dev/fuse c 10 229 || true
mkdir "$CASE_DIR/mount"
perl /usr/lib/tenured-tests/stuck.pl "$CASE_DIR/mount" >"$CASE_DIR/server" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; umount -l "$CASE_DIR/mount" || true' EXIT
serving() { grep -q serving "$CASE_DIR/server" || { cat "$CASE_DIR/server"; [ -e "/proc/$server" ]; return 1; }; }
for _ in $(seq 100); do serving >/dev/null && break; sleep 0.05; done
serving || skip "no file system of our own can be mounted here: $(tail -n 1 "$CASE_DIR/server")"

start_daemon
manager SetQueue 'sa{sv}' narrow 1 MaxRunning u 1
task="$(add --queue narrow -- cat "$CASE_DIR/mount/stuck")"
next="$(add --queue narrow -- true)"
worker="$(worker_of "$task")"
unit="$(task_says "$task" Unit)"
other="$(add --launch direct -- cat "$CASE_DIR/mount/stuck")"
supervisor="$(sed 's/.*) //' "/proc/$(worker_of "$other" | sed 's/:.*//')/stat" | cut -d' ' -f2)"
# Hundredths of a second that the supervisor has used.
busy() { sed 's/.*) //' "/proc/$supervisor/stat" | { read -r -a stat; echo $((stat[11] + stat[12])); }; }
other_held() { [[ "$(task_says "$other" Held)" == *unkillable* ]]; }
tenurectl cancel "$task" "$other"
in_d() { prints D bash -c "sed 's/.*) //; s/ .*//' /proc/${worker%%:*}/stat"; }
wait_for "it to be stuck" 10 in_d
held() { [[ "$(task_says "$task" Held)" == *unkillable* ]] || { tenurectl show "$task"; return 1; }; }
wait_for "the claim to be held" 20 held >/dev/null
# It is said once, and there is no storm of signals: not of the daemon's, and not of a supervisor's that goes on
# trying, as that of a worker without a scope does.
wait_for "the other to be held" 20 other_held >/dev/null
before="$(busy)"
since="$(read_clock)"
until=$((since + 4000))
later() { tenurectl sweep >/dev/null && [ "$(read_clock)" -ge "$until" ]; }
wait_for "four seconds of sweeps" 10 later
spent=$(($(busy) - before))
elapsed=$(($(read_clock) - since))
note "the supervisor used $spent hundredths of a second in $elapsed ms"
[ "$spent" -le $((elapsed / 500 * ${SLOWNESS:-1})) ] || fail "the supervisor used $spent hundredths of a second in $elapsed ms"
same "how often it was said of the other" 1 "$(count_events "$other" held)"
same "what was sent to the other" 2 "$(count_events "$other" signalled)"
same "how often it was said" 1 "$(count_events "$task" held)"
same "what was sent" 2 "$(count_events "$task" signalled)"
# systemd gives up on the scope.
systemctl stop "$unit" || note "systemctl: $?"
note "the scope is now: $(property "$unit" ActiveState) $(property "$unit" SubState) $(property "$unit" Result)"
tenurectl sweep
lives "$worker"
held
task_is "$task" running
task_is "$next" ready
# A new life of the daemon sees it no other way.
systemctl restart tenured.service
tenurectl sweep
lives "$worker"
task_is "$task" running
task_is "$next" ready
same "its runs" - "$(outcomes "$task")"
same "how often it was said" 1 "$(count_events "$task" held)"
same "what was sent" 2 "$(count_events "$task" signalled)"

kill "$server"
wait_for "the kernel to let go" 10 gone "$worker"
wait_for "the other to be cancelled" 15 task_is "$other" cancelled
wait_for "the task to be cancelled" 15 task_is "$task" cancelled
same "its end" cancelled "$(outcomes "$task")"
wait_for "the next to have its turn" 15 task_is "$next" done
