# A board that is none: the daemon says what helps and stays down, once; no empty board in its place.
start_daemon
task="$(add -- true)"
wait_for "the task to be done" 10 task_is "$task" done
systemctl stop tenured.service
cp /var/lib/tenured/board.db "$CASE_DIR/good"
dd if=/dev/urandom of=/var/lib/tenured/board.db bs=4096 count=4 conv=notrunc status=none
before="$(sha256sum </var/lib/tenured/board.db)"
if systemctl start tenured.service; then fail "it started"; fi
unit_is tenured.service failed
same "exit status" 78 "$(property tenured.service ExecMainStatus)"
same restarts 0 "$(property tenured.service NRestarts)"
same "the board" "$before" "$(sha256sum </var/lib/tenured/board.db)"
journal_says 'board.db.*(BACKUP|move it away)'
# Put back, all is as before.
rm -f /var/lib/tenured/board.db-{wal,shm}
cp "$CASE_DIR/good" /var/lib/tenured/board.db
start_daemon
task_is "$task" done
systemctl stop tenured.service
# A bad configuration is no restart loop either.
mkdir -p /etc/tenured/tenured.toml.d
echo 'nonsense = 1' >/etc/tenured/tenured.toml.d/case.toml
if systemctl start tenured.service; then fail "it started with a bad configuration"; fi
same "exit status" 78 "$(property tenured.service ExecMainStatus)"
same restarts 0 "$(property tenured.service NRestarts)"
