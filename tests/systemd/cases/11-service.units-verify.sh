# The units are what this systemd understands, and the daemon's is a small room.
verify() { SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no "$@" 2>&1; }
verify /usr/lib/systemd/system/tenured*.service /usr/lib/systemd/system/tenured*.socket \
    /usr/lib/systemd/system/tenured.slice | tee "$CASE_DIR/said"
# As a user's manager would read it.
(export XDG_RUNTIME_DIR="$CASE_DIR"; SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --user --man=no \
    /usr/lib/systemd/user/tenured.service 2>&1) | tee "$CASE_DIR/said.user"
if [ "$(systemd_version)" -ge 254 ]; then
    [ ! -s "$CASE_DIR/said" ] || fail "warnings about the units"
    [ ! -s "$CASE_DIR/said.user" ] || fail "warnings about the user's unit"
else
    # What is known to be new: the second Type= (253), FileDescriptorStorePreserve= (254).
    if grep -vE 'notify-reload|FileDescriptorStorePreserve' "$CASE_DIR/said" "$CASE_DIR/said.user"; then
        fail "other warnings than the known ones"
    fi
fi

start_daemon
systemd-analyze security --no-pager tenured.service >"$CASE_DIR/security"
exposure="$(sed -nE 's/.*Overall exposure level for tenured.service: ([0-9.]+).*/\1/p' "$CASE_DIR/security")"
note "exposure $exposure"
awk -v seen="$exposure" 'BEGIN { exit !(seen != "" && seen <= 2.0) }' || fail "exposure $exposure: $(grep ✗ "$CASE_DIR/security")"
# The boot's id is the host's own also in there.
same "the boot's id" "$(cat /proc/sys/kernel/random/boot_id)" "$(tenurectl --json status | jq -r .BootId)"
