# With linger the user's daemon lives without a login: from enable on, after the last logout, and from boot on;
# her worker is `lost` by the reboot and runs again.
# reboot
uid="$(id -u ann)"
mine() { as ann tenurectl --user --json "$@"; }
mine_runs() { mine show 1 | grep -q '"Stage":"running"' || { mine show 1; return 1; }; }
her_manager() { as ann systemctl --user --quiet is-active default.target; }
if [ "$TURN" = 1 ]; then
    loginctl enable-linger ann
    wait_for "her manager" 20 her_manager
    as ann systemctl --user enable --now tenured.service
    mine add -- sleep 1000
    wait_for "her task to run" 10 mine_runs
    next_turn_after reboot
fi
wait_for "her manager after the boot" 20 her_manager
wait_for "her daemon after the boot" 10 as ann systemctl --user is-active tenured.service
wait_for "her task to run again" 20 mine_runs
as ann busctl --user --json=short call org.tenured1 /org/tenured1 org.tenured1.Manager ListRuns 'ta{sv}' 1 0 |
    jq -r '.data[0][] | .Outcome.data // "-"' >"$CASE_DIR/outcomes"
same "the ends of its runs" "lost" "$(head -n 1 "$CASE_DIR/outcomes")"
same "counted failures" 0 "$(mine show 1 | jq -rs '[.[] | .. | objects | select(has("Failures")) | .Failures][0]')"
same "her state" lingering "$(loginctl show-user --property=State --value ann)"
