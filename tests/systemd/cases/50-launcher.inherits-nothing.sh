# What a worker finds around it is what the same command finds under `systemd-run --scope`, for root and for
# another user: nothing of the daemon, which is hardened, nor of the launcher. All of it is read from outside,
# so that the command is the same to the letter.

# The lines of /proc/PID/status that are given on; the others are numbers of the process and its memory.
status_lines='^(Umask|Uid|Gid|Groups|CoreDumping|THP_enabled|Sig(Blk|Ign)|Cap[A-Z][a-z]{2}|NoNewPrivs|Seccomp|Seccomp_filters|'
status_lines+='Speculation.*|.*_allowed|.*_allowed_list):'

# What is compared of a process, into a directory.
look_at() { # pid, directory
    local file
    mkdir -p "$2"
    for file in limits mountinfo oom_score_adj coredump_filter timerslack_ns personality loginuid setgroups; do
        cat "/proc/$1/$file" >"$2/$file" 2>&1 || true
    done
    grep -E "$status_lines" "/proc/$1/status" >"$2/status"
    # Namespaces; a mount namespace of the daemon's own would show here first.
    (cd "/proc/$1/ns" && readlink -- *) >"$2/namespaces"
    # nice, real-time priority and policy of proc_pid_stat(5): fields 19, 40 and 41.
    sed 's/.*) //' "/proc/$1/stat" | cut -d' ' -f17,38,39 >"$2/scheduling"
    ionice -p "$1" >"$2/io" 2>&1 || true
    taskset -cp "$1" | sed 's/.*: //' >"$2/cpus" || true
    (cd "/proc/$1/fd" && printf '%s\n' *) >"$2/descriptors"
    readlink "/proc/$1/cwd" "/proc/$1/root" >"$2/places"
}

reference_sleeps() { # user
    runs_sleep "$(property "reference-$1.service" MainPID)"
}

# The same command in a scope, begun by a service with nothing but the defaults. The groups are given, since
# systemd-run forgets them under some versions.
reference() { # user
    systemctl reset-failed "reference-$1.service" 2>/dev/null || true
    systemd-run --quiet --unit="reference-$1" --property=User=root --property=IgnoreSIGPIPE=no \
        --property=StandardInput=null --property=StandardOutput=null --property=StandardError=null \
        setpriv --reuid=root --regid=root --groups="$(id -G "$1" | tr ' ' ,)" \
        systemd-run --quiet --scope --uid="$1" --unit="reference-$1.scope" /usr/bin/sleep 300
    wait_for "the reference for $1" 10 reference_sleeps "$1"
    property "reference-$1.service" MainPID
}

runs_sleep() { # pid
    prints "/usr/bin/sleep 300 " tr '\0' ' ' <"/proc/$1/cmdline"
}

worker_sleeps() { # task
    runs_sleep "$(task_says "$1" WorkerPid)"
}

# Names of the variables that a task's command has, beside those of its task.
usual_variables="HOME LANG LOGNAME PATH SHELL USER"

compare() { # user
    local task pid reference environment
    task="$(add --user "$1" --cwd / -- /usr/bin/sleep 300)"
    # Until its gate is open it is still the program that waits there.
    wait_for "the command of $1" 20 worker_sleeps "$task"
    pid="$(task_says "$task" WorkerPid)"
    reference="$(reference "$1")"
    look_at "$pid" "$CASE_DIR/worker-$1"
    look_at "$reference" "$CASE_DIR/reference-$1"
    diff -ru "$CASE_DIR/reference-$1" "$CASE_DIR/worker-$1" ||
        fail "a worker of $1 differs from a scope of systemd-run"

    environment="$(tr '\0' '\n' <"/proc/$pid/environ" | sed 's/=.*//' | grep -v '^TENURED_' | sort | paste -sd' ')"
    same "the variables of a worker of $1" "$usual_variables" "$environment"
    grep -Ez '^TENURED_(NONCE|TASK|RUN|ATTEMPT|QUEUE|BUS_ADDRESS)=' "/proc/$pid/environ" | tr '\0' '\n' |
        wc -l | { read -r count; same "the variables of its task" 6 "$count"; }

    local cgroup
    cgroup="$(sed -n 's/^0:://p' "/proc/$pid/cgroup")"
    case "$cgroup" in
        */tenured.slice/*/tenured-"$task"-run-*.scope) ;;
        *) fail "the worker of $1 is in $cgroup" ;;
    esac
    tenurectl cancel "$task" >/dev/null
    systemctl stop "reference-$1.scope"
}

start_daemon >"$CASE_DIR/daemon"
daemon="$(cat "$CASE_DIR/daemon")"
compare root
compare ann

# A witness that cannot tell is no witness: the daemon does differ, in what a worker would inherit from it. Its
# oom_score_adj is not asked for: a container may not lower one.
look_at "$daemon" "$CASE_DIR/daemon-itself"
for file in status limits mountinfo namespaces; do
    ! diff -q "$CASE_DIR/daemon-itself/$file" "$CASE_DIR/worker-root/$file" >/dev/null ||
        fail "the daemon is not hardened: its $file is that of a worker"
done
grep -q '^NoNewPrivs:.*1' "$CASE_DIR/daemon-itself/status" || fail "the daemon may gain privileges"
