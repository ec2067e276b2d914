# busctl as root: the interface introspects, its methods can be called, and its signals are seen.
start_daemon
busctl introspect org.tenured1 /org/tenured1 org.tenured1.Manager >"$CASE_DIR/interface"
for member in .CreateTask .ClaimTask .Sweep .Degraded .TaskChanged .RunEnded; do
    grep -q "^$member " "$CASE_DIR/interface" || fail "$member is not there"
done
busctl tree org.tenured1

busctl monitor --json=short org.tenured1 >"$CASE_DIR/seen" 2>&1 &
watcher=$!
trap 'kill $watcher || true' EXIT
# It says so once it is let in.
pinged() { busctl call org.tenured1 /org/tenured1 org.freedesktop.DBus.Peer Ping; grep -q '"member":"Ping"' "$CASE_DIR/seen"; }
wait_for "the monitor to see calls" 10 pinged

same "a new task" "tb 1 true" "$(manager CreateTask 'sa{sv}' "by hand" 2 Command as 1 /bin/true IdempotencyKey s once)"
same "the same key" "tb 1 false" "$(manager CreateTask 'sa{sv}' "by hand" 2 Command as 1 /bin/true IdempotencyKey s once)"
wait_for "the task to be done" 10 task_is 1 done
wait_for "its signals" 5 grep -q '"member":"RunEnded"' "$CASE_DIR/seen"
grep -q '"member":"TaskChanged"' "$CASE_DIR/seen" || fail "no TaskChanged"
same "a property" "s \"$(tenured --version | cut -d' ' -f2)\"" \
    "$(busctl get-property org.tenured1 /org/tenured1 org.tenured1.Manager Version)"

if manager CancelTask 'ta{sv}' 4711 0 2>"$CASE_DIR/refused"; then fail "there is a task 4711"; fi
grep -q 4711 "$CASE_DIR/refused" || fail "the refusal does not say which: $(cat "$CASE_DIR/refused")"
if manager Sweep 'a{sv}' 1 Nonsense b true 2>"$CASE_DIR/refused"; then fail "an unknown key was ignored"; fi
grep -q Nonsense "$CASE_DIR/refused" || fail "the refusal does not name the key"
