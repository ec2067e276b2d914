# The service manager is told the truth: ready when the bus is served, a line for people that follows the counts, a
# reload that ends, whether the configuration was taken or refused, and a stop that leaves workers alone.

status_line() { property tenured.service StatusText; }

start_daemon >/dev/null
# Ready means served: not a moment to wait for.
busctl call org.tenured1 /org/tenured1 org.freedesktop.DBus.Properties Get ss org.tenured1.Manager Version >/dev/null
wait_for "the first line" 5 prints "0 running, 0 ready" status_line

task="$(add waits -- /bin/sleep 1000)"
wait_for "the line to follow" 5 prints "1 running, 0 ready" status_line
tenurectl drain >/dev/null
wait_for "the line to say that it drains" 5 prints "1 running, 0 ready; draining" status_line
tenurectl drain --off >/dev/null

pid="$(daemon_pid)"
systemctl reload tenured.service
same "after a reload" "active running" "$(property tenured.service ActiveState) $(property tenured.service SubState)"
same "the process" "$pid" "$(daemon_pid)"

mkdir -p /etc/tenured
cp /etc/tenured/tenured.toml "$CASE_DIR/tenured.toml"
echo 'nonsense = true' >>/etc/tenured/tenured.toml
systemctl reload tenured.service || true
cp "$CASE_DIR/tenured.toml" /etc/tenured/tenured.toml
same "after a refused reload" "active running" \
    "$(property tenured.service ActiveState) $(property tenured.service SubState)"
same "the process" "$pid" "$(daemon_pid)"
refused() { journal -u tenured.service -p err | grep refused; }
wait_for "the refusal in the journal" 5 refused

worker="$(worker "$task")"
systemctl stop tenured.service
lives "$worker" >/dev/null || fail "the worker went with the daemon"
same "how the daemon ended" success "$(property tenured.service Result)"
