# A boot in a container: systemd-nspawn on an overlay, so that the tree itself stays as it was made. A part
# of tests/systemd/boot, which sources it and gives suite, tree, output, limit, shell.

running=""      # the directory of this boot: the layers of the overlay, its mount point, its lock
merged=""       # where the overlay is mounted: the container's root
payload=""      # the cgroup that all of the container is in, where there is no service manager to ask
supervisor=""   # the process that we started
follower=""     # shows what the runner says

container_prepare() {
    prepare_overlay
    furnish "$merged"
    spool="$merged/var/lib/tenured-tests"
    touch "$spool/out"
}

prepare_overlay() {
    local boots
    boots="$(trees_directory)/running"
    mkdir -p "$boots"
    sweep_containers "$boots"
    running="$boots/$suite.$$"
    merged="$running/root"
    mkdir -p "$running/"{upper,layers,root}
    exec 6>"$running/lock"
    flock -n 6
    trap end_container EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    lay_over || { echo "cannot lay a boot over $tree" >&2; exit 70; }
}

# An overlay needs a disk that can be its upper layer: a container's own root cannot, memory can.
lay_over() {
    local layers="lowerdir=$tree,upperdir=$running/upper,workdir=$running/layers"
    mount -t overlay -o "$layers" tenured-tests "$merged" 2>/dev/null && return
    mount -t tmpfs tenured-tests "$running/layers" || return
    mkdir "$running/layers/"{upper,scratch}
    layers="lowerdir=$tree,upperdir=$running/layers/upper,workdir=$running/layers/scratch"
    mount -t overlay -o "$layers" tenured-tests "$merged" 2>/dev/null && return
    umount "$running/layers"
    cp -a --reflink=auto "$tree/." "$merged/"
}

# What boots left behind that were ended with KILL.
sweep_containers() { # directory
    local old
    for old in "$1"/*/; do
        [ -e "$old/lock" ] || continue
        (flock -n 9 || exit 0; remove_container "${old%/}") 9<"$old/lock"
    done
}

remove_container() { # directory
    local group
    group="$(cat "$1/cgroup" 2>/dev/null || true)"
    if [ -n "$group" ] && [ -d "$group" ]; then
        echo 1 >"$group/cgroup.kill" 2>/dev/null || true
        # The kernel takes its time with the last of them; a cgroup that is not empty is not removed.
        local tries=100
        while [ "$tries" -gt 0 ] && grep -q 'populated 1' "$group/cgroup.events"; do
            tries=$((tries - 1))
            sleep 0.05
        done
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    fi
    mountpoint -q "$1/root" && umount -R -l "$1/root"
    mountpoint -q "$1/layers" && umount -l "$1/layers"
    rm -rf --one-file-system "$1"
}

end_container() {
    local status=$?
    trap '' INT TERM HUP
    trap - EXIT
    if [ -n "$supervisor" ]; then
        kill "$supervisor" 2>/dev/null || true
        wait "$supervisor" 2>/dev/null || true
    fi
    remove_container "$running"
    exit "$status"
}

# Two containers in one cgroup would share one tree of units: each gets its own, which also ends it for sure.
own_cgroup() {
    [ ! -d /run/systemd/system ] || return 0
    local unified
    unified="$(findmnt -n -o TARGET -t cgroup2 | head -n 1)"
    [ -n "$unified" ] || { echo "this host has no cgroup version 2" >&2; return 1; }
    payload="$unified/tenured-tests.$$"
    mkdir -p "$payload"
    echo "$payload" >"$running/cgroup"
}

start_container() {
    local nspawn=(systemd-nspawn --quiet --register=no --keep-unit --machine="tenured-$suite-$$"
        --directory="$merged" --boot "$@")
    export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
    # Ended with us, whatever ends us.
    if [ -n "$payload" ]; then
        echo "$BASHPID" >"$payload/cgroup.procs"
        exec setpriv --pdeathsig TERM timeout --foreground --kill-after=10 "$limit" "${nspawn[@]}"
    fi
    exec setpriv --pdeathsig TERM systemd-run --quiet --scope --property=Delegate=yes \
        timeout --foreground --kill-after=10 "$limit" "${nspawn[@]}"
}

# Shows what the runner says as it comes.
follow() { # file
    tail -n +1 -s 0.1 --pid=$$ -f "$1" 6<&- 7<&- &
    follower=$!
}

unfollow() {
    [ -n "$follower" ] || return 0
    # One look more at the end of the file, then it has shown all.
    sleep 0.2
    kill "$follower" 2>/dev/null || true
    wait "$follower" 2>/dev/null || true
    follower=""
}

# Boots until the tree says that it is through: exit status 133 is a reboot.
container_run() {
    local status
    if ! own_cgroup; then exit 70; fi
    [ "$shell" = interactive ] || follow "$spool/out"
    while :; do
        if [ "$shell" = interactive ]; then
            status=0
            (start_container --console=interactive 7<&- 6<&-) || status=$?
        else
            (start_container --console=pipe) 7<&- 6<&- </dev/null >>"$output/console" 2>&1 &
            supervisor=$!
            status=0
            wait "$supervisor" || status=$?
            supervisor=""
        fi
        [ "$status" -eq 133 ] || break
        echo "(booting again)" >>"$output/console"
    done
    unfollow
    return "$status"
}

container_collect() {
    cp -r "$spool/." "$output/"
    if [ ! -s "$output/journal" ]; then
        journalctl --quiet --no-pager --directory="$merged/var/log/journal" -o short-precise >"$output/journal" 2>/dev/null || true
    fi
}
