# `systemctl kill -s HUP tenured` and reloads with workers: everyone goes on, the configuration is new.
configure '[run]' 'max_running = 5'
pid="$(start_daemon)"
daemon="$(process "$pid")"
workers=()
for _ in 1 2 3; do
    task="$(add -- sleep 1000)"
    workers+=("$(worker_of "$task")")
done
printf '%s\n' '[run]' 'max_running = 3' >/etc/tenured/tenured.toml.d/case.toml
systemctl kill --kill-whom=main --signal=HUP tenured.service
# To the whole unit too, as people do: nobody but the daemon is in it.
systemctl kill --signal=HUP tenured.service
for _ in 1 2 3 4 5; do systemctl reload tenured.service; done
waiting="$(add -- true)"
lives "$daemon"
for worker in "${workers[@]}"; do lives "$worker"; done
same "restarts" 0 "$(property tenured.service NRestarts)"
unit_is tenured.service active
tenurectl sweep
task_is "$waiting" ready
# A bad configuration changes nothing, and nobody ends for it.
echo 'nonsense = 1' >>/etc/tenured/tenured.toml.d/case.toml
systemctl reload tenured.service || note "reload said that it failed"
lives "$daemon"
journal_says nonsense
unit_is tenured.service active
configure '[run]' 'max_running = 5'
wait_for "the fourth to have its turn" 10 task_is "$waiting" done
for worker in "${workers[@]}"; do lives "$worker"; done
