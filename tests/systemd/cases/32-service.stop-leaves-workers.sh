# `systemctl stop` leaves workers; one ends while nobody looks, one goes on; the start adopts them.
configure '[run]' 'max_running = 8'
start_daemon
on="$(add_waiting on 0)"
off="$(add_waiting off 5 --retries 0)"
on_worker="$(worker_of "$on")"
off_worker="$(worker_of "$off")"
systemctl stop tenured.service tenured-launcher.service
lives "$on_worker"
lives "$off_worker"
touch "$CASE_DIR/off"
wait_for "one worker to end" 10 gone "$off_worker"
start_daemon
task_is "$off" blocked
same "its exit" 5 "$(exit_code "$off")"
running "$on"
same "the same worker" "$on_worker" "$(worker "$on")"
touch "$CASE_DIR/on"
wait_for "the other to be done" 10 task_is "$on" done
same "its runs" completed "$(outcomes "$on")"
