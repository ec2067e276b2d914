# Measures what a user waits for: the start of a command beside `systemd-run --scope`, starts per second, a
# restart with many workers, and the memory of a supervisor. Only when it is named, and with --release.
# by name
# limit: 240
configure '[run]' 'max_running = 300' '[limits]' 'running_per_user = 0'
start_daemon

# Of a file of numbers: the median and the 99th of a hundred.
quantiles() { # file
    sort -n "$1" | awk '{ seen[NR] = $1 } END { printf "p50 %.1f ms, p99 %.1f ms (%d)\n", seen[int((NR + 1) / 2)], seen[int(NR * 0.99)], NR }'
}
median() { sort -n "$1" | awk '{ seen[NR] = $1 } END { print seen[int((NR + 1) / 2)] }'; }
stamp() { echo "${EPOCHREALTIME/[.,]/}"; }

# From the client's start to the command's first breath, for both.
for _ in $(seq 200); do
    before="$(stamp)"
    after="$(systemd-run --quiet --scope date +%s%6N 2>/dev/null)"
    echo "$(((after - before) / 10))"
done | awk '{ print $1 / 100 }' >"$CASE_DIR/systemd-run"
: >"$CASE_DIR/stamps"
for turn in $(seq 200); do
    before="$(stamp)"
    busctl -- call org.tenured1 /org/tenured1 org.tenured1.Manager CreateTask "sa{sv}" figure 1 \
        Command as 3 /bin/sh -c "date +%s%6N >'$CASE_DIR/began.$turn'" >/dev/null
    until [ -s "$CASE_DIR/began.$turn" ]; do :; done
    echo "$((($(cat "$CASE_DIR/began.$turn") - before) / 10))" >>"$CASE_DIR/stamps"
    rm "$CASE_DIR/began.$turn"
done
awk '{ print $1 / 100 }' "$CASE_DIR/stamps" >"$CASE_DIR/tenured"
note "figure: start of a command with systemd-run --scope: $(quantiles "$CASE_DIR/systemd-run")"
note "figure: start of a command, from CreateTask on: $(quantiles "$CASE_DIR/tenured")"

settled_all() { prints 0 bash -c 'tenurectl --json status | jq "(.Stats.Ready // 0) + (.Stats.Running // 0)"'; }
wait_for "the last of them" 20 settled_all
configure '[run]' 'max_running = 8'
manager SetQueue 'sa{sv}' many 1 Paused b true
for _ in $(seq 500); do
    busctl call org.tenured1 /org/tenured1 org.tenured1.Manager CreateTask 'sa{sv}' figure 2 Queue s many Command as 1 /bin/true
done >/dev/null
before="$(stamp)"
manager SetQueue 'sa{sv}' many 1 Paused b false
wait_for "500 tasks" 120 settled_all
took=$(($(stamp) - before))
note "figure: starts per second over 500 tasks, eight at a time: $((500 * 1000000 / took))"
same "done of them" 500 "$(manager ListTasks 'a{sv}' 3 Queue s many Status as 1 done Limit u 1000 | grep -o '"Task" t' | wc -l)"

configure '[run]' 'max_running = 300'
for _ in $(seq 200); do
    busctl call org.tenured1 /org/tenured1 org.tenured1.Manager CreateTask 'sa{sv}' figure 1 Command as 2 /bin/sleep 1000
done >/dev/null
many_run() { prints 200 bash -c 'tenurectl --json status | jq .Stats.Running'; }
wait_for "200 workers" 60 many_run
supervisors() { pgrep -f '^tenured-exec [0-9]' || pgrep tenured-exec; }
supervisors | while read -r pid; do
    awk '/^Private_(Clean|Dirty):/ { sum += $2 } END { print sum }' "/proc/$pid/smaps_rollup"
done >"$CASE_DIR/memory"
note "figure: memory of a supervisor's own: $(median "$CASE_DIR/memory") KiB of $(wc -l <"$CASE_DIR/memory") supervisors"
for _ in 1 2 3; do
    systemctl restart tenured.service
    began="$(property tenured.service ExecMainStartTimestampMonotonic)"
    ready="$(property tenured.service ActiveEnterTimestampMonotonic)"
    note "figure: restart with 200 workers, to READY: $(((ready - began) / 1000)) ms"
    echo "$(((ready - began) / 1000))" >>"$CASE_DIR/restarts"
done
many_run
[ "$(median "$CASE_DIR/restarts")" -lt 1000 ] || fail "a restart with 200 workers takes a second and more"
[ "$(median "$CASE_DIR/memory")" -lt 1024 ] || fail "a supervisor takes a MiB and more"
