# `tenurectl --user` as an ordinary user within a login: enable, tasks in scopes of the user's manager, a
# restart with a worker, and nothing of the host's daemon needed.
uid="$(id -u ann)"
# A login as pam makes one, held open by a process of hers.
systemd-run --quiet --unit=ann-login --property=PAMName=login --property=User=ann sleep infinity
wait_for "her manager" 20 as ann systemctl --user --quiet is-active default.target
trap 'systemctl stop ann-login.service' EXIT

as ann systemctl --user enable --now tenured.service
pid="$(as ann systemctl --user show --property=MainPID --value tenured.service)"
same "the daemon's user" "$uid" "$(stat -c %u "/proc/$pid")"
daemon="$(process "$pid")"
mine() { as ann tenurectl --user --json "$@"; }
task="$(mine add -- sleep 1000 | jq -r .Task)"
mine_runs() { mine show "$task" | grep -q '"Stage":"running"' || { mine show "$task"; return 1; }; }
wait_for "her task to run" 10 mine_runs
worker_pid="$(mine show "$task" | jq -rs '[.[] | .. | objects | select(has("WorkerPid")) | .WorkerPid][0]')"
same "the worker's user" "$uid" "$(stat -c %u "/proc/$worker_pid")"
worker="$(process "$worker_pid")"
grep -q "user@$uid.service/tenured.slice/.*tenured-$task-run-.*\.scope" "/proc/$worker_pid/cgroup" ||
    fail "it is not in a scope of her manager: $(cat "/proc/$worker_pid/cgroup")"
[ -e "/home/ann/.local/state/tenured/board.db" ] || fail "her board is not where it should be: $(find /home/ann -name board.db)"
[ ! -e /var/lib/tenured/board.db ] || fail "the host's board was made"

as ann systemctl --user restart tenured.service
lives "$worker"
gone "$daemon"
mine_runs
as ann systemctl --user reload tenured.service
quick="$(mine add --retries 0 -- sh -c 'exit 3' | jq -r .Task)"
as ann tenurectl --user wait --timeout 10s "$quick" || same "its exit status" 3 "$?"

# A stranger has no way in.
if as bob tenurectl --address "unix:path=/run/user/$uid/tenured/private" list; then fail "bob sees ann's tasks"; fi
mine cancel "$task"
wait_for "the worker to go" 15 gone "$worker"
