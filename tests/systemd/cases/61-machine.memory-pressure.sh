# The daemon under memory pressure, its own and the host's: no worker is mistaken for a dead one, the host's OOM
# killer takes the hog and not the daemon, and all is well once there is memory again.
# needs: vm
# needs: controller memory
# limit: 120
configure '[sweep]' 'interval = "1s"' '[run]' 'max_running = 8'
pid="$(start_daemon)"
daemon="$(process "$pid")"
tasks=() workers=()
for _ in 1 2 3; do
    task="$(add -- sleep 1000)"
    tasks+=("$task")
    workers+=("$(worker_of "$task")")
done
# Squeezed to half of what it uses: it swaps its own pages in and out.
used="$(cat "/sys/fs/cgroup/system.slice/tenured.service/memory.current")"
note "the daemon uses $used"
systemctl set-property --runtime tenured.service MemoryHigh=$((used / 2))
for _ in 1 2 3; do tenurectl sweep; done
systemctl set-property --runtime tenured.service MemoryHigh=infinity
# A hog with no limit at all: the host has no more memory.
hog="$(add --retries 0 -- perl -e 'my @memory; push @memory, "x" x (16 << 20) while 1')"
wait_for "the hog to be ended" 60 task_is "$hog" blocked
note "the hog ended: $(outcomes "$hog")"
for worker in "${workers[@]}"; do lives "$worker"; done
for task in "${tasks[@]}"; do running "$task"; done
# A host that thrashes for long enough may cost the daemon its watchdog; never its place in memory.
if ! lives "$daemon"; then
    note "the daemon was started again: $(property tenured.service NRestarts)"
    journal_says "Failed with result 'watchdog'"
fi
wait_for "the daemon to be ready" 30 unit_is tenured.service active
