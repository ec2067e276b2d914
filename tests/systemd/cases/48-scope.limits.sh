# The limits of a task are on its scope, under systemd's names and in the kernel, and on nobody else's; where the
# kernel would not keep one, for want of its controller, the task is refused with the reason and nothing of it runs.
# also: vm
# limit: 90
configure '[run]' 'max_running = 16'
start_daemon

# What is asked for; the controller; the property and its value; the file of the cgroup and what it says.
limits="MemoryMax=96M|memory|MemoryMax|100663296|memory.max|100663296
MemoryHigh=48M|memory|MemoryHigh|50331648|memory.high|50331648
TasksMax=40|pids|TasksMax|40|pids.max|40
CPUWeight=30|cpu|CPUWeight|30|cpu.weight|30
CPUQuota=150%|cpu|CPUQuotaPerSecUSec|1.500000s|cpu.max|150000 100000
IOWeight=70|io|IOWeight|70|io.weight|default 70"

# The kernel's own file, where there is one for the value: io.weight comes with some schedulers only.
in_kernel() { # unit, file
    local group
    group="$(property "$1" ControlGroup)"
    cat "/sys/fs/cgroup$group/$2"
}

plain="$(add -- sleep 1000)"
plain_worker="$(worker_of "$plain")"
all=() kept=0 refused=0
while IFS='|' read -r asked controller name value file line <&3; do
    all+=(--property "$asked")
    if has_controller "$controller"; then
        task="$(add --property "$asked" -- sleep 1000)"
        worker_of "$task" >/dev/null
        unit="$(task_says "$task" Unit)"
        same "$name of $unit" "$value" "$(property "$unit" "$name")"
        if [ "$file" != io.weight ] || [ -e "/sys/fs/cgroup$(property "$unit" ControlGroup)/$file" ]; then
            same "$file of $unit" "$line" "$(in_kernel "$unit" "$file")"
        else
            note "this kernel has no $file"
        fi
        kept=$((kept + 1))
    else
        task="$(add --property "$asked" -- touch "$CASE_DIR/$name.ran")"
        wait_for "the task to be refused" 10 task_is "$task" blocked
        same "its code" config "$(task_says "$task" BlockCode)"
        reason="$(task_says "$task" BlockReason)"
        [[ "$reason" == *"$name"*controller* ]] || fail "the reason does not say what is missing: $reason"
        same "its ends" misconfigured "$(outcomes "$task")"
        [ ! -e "$CASE_DIR/$name.ran" ] || fail "the command ran without its limit"
        refused=$((refused + 1))
    fi
done 3<<<"$limits"
note "$kept kept, $refused refused"
same "what was tried" 6 $((kept + refused))

# All of them at once, as a task of some weight has them.
if [ "$refused" = 0 ]; then
    task="$(add "${all[@]}" -- sleep 1000)"
    worker_of "$task" >/dev/null
    unit="$(task_says "$task" Unit)"
    while IFS='|' read -r _ _ name value _ <&3; do
        same "$name of $unit" "$value" "$(property "$unit" "$name")"
    done 3<<<"$limits"
fi

# Who asked for nothing has nothing, and went on beside it all.
unit="$(task_says "$plain" Unit)"
same "MemoryMax of the plain one" infinity "$(property "$unit" MemoryMax)"
same "CPUQuota of the plain one" infinity "$(property "$unit" CPUQuotaPerSecUSec)"
lives "$plain_worker"
# What was refused left nothing in the manager.
left() { systemctl list-units --all --plain --no-legend 'tenured-*.scope' | awk '{print $1}' | sort; }
units() { tenurectl --json list | jq -r 'select(.Status == "running") | .Task' | while read -r task; do task_says "$task" Unit; done | sort; }
wait_for "the scopes of what runs alone" 10 prints "$(units)" left
