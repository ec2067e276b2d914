# Enable, start, status, stop, disable, as an operator does.
systemctl enable tenured.service
systemctl is-enabled tenured.service
[ -L /etc/systemd/system/multi-user.target.wants/tenured.service ] || fail "nothing wants it at boot"
[ -L /etc/systemd/system/dbus-org.tenured1.service ] || fail "it has no name for the bus"

pid="$(start_daemon)"
unit_is tenured.service active
same "the owner of the name" "$pid" "$(busctl --json=short call org.freedesktop.DBus /org/freedesktop/DBus \
    org.freedesktop.DBus GetConnectionUnixProcessID s org.tenured1 | jq .data[0])"
type="$(property tenured.service Type)"
if [ "$(systemd_version)" -ge 253 ]; then same Type notify-reload "$type"; else same Type notify "$type"; fi
wait_for "a line for people" 5 bash -c 'systemctl status tenured.service | grep -q "Status: \""'
systemctl status tenured.service
# A host that is busy with other things may have a slow disk.
same "what is not well" "" "$(tenurectl --json status | jq -r '.Degraded[]' | grep -vx slow_disk || true)"
same "mode of the board" 600 "$(stat -c %a /var/lib/tenured/board.db)"
same "mode of the state" 700 "$(stat -c %a /var/lib/tenured)"

daemon="$(process "$pid")"
systemctl reload tenured.service
lives "$daemon"
systemctl stop tenured.service
gone "$daemon"
unit_is tenured.service inactive
same "how it ended" success "$(property tenured.service Result)"
[ -d /run/tenured ] || fail "the runtime directory is gone with the boot's nonce"

systemctl disable tenured.service
[ ! -e /etc/systemd/system/dbus-org.tenured1.service ] || fail "its name for the bus stayed"
if tenurectl status; then fail "somebody answers"; fi
unit_is tenured.service inactive
# Nothing in that life was worth a warning.
journal --priority=warning --identifier=tenured --output=cat | grep -v slow_disk >"$CASE_DIR/warnings" || true
[ ! -s "$CASE_DIR/warnings" ] || fail "warnings: $(cat "$CASE_DIR/warnings")"
