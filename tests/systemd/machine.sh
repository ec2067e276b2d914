# A boot in a virtual machine: qemu in software (no KVM is asked for), with Debian's kernel and a disk made from
# the overlay of container.sh. A part of tests/systemd/boot, which sources it.

machine_prepare() {
    prepare_overlay
    furnish "$merged"
    spool="$merged/var/lib/tenured-tests"
    mkdir -p "$merged/etc/systemd/system/tenured-tests.service.d"
    # What the runner says goes to the second serial port; the first is the console.
    printf '%s\n' '[Service]' 'ExecStartPre=/bin/stty -F /dev/ttyS1 raw -echo' 'StandardOutput=file:/dev/ttyS1' \
        >"$merged/etc/systemd/system/tenured-tests.service.d/machine.conf"
    kernel="$(ls "$merged"/boot/vmlinuz-* | tail -n 1)"
    initrd="$(ls "$merged"/boot/initrd.img-* | tail -n 1)"
    truncate -s 3G "$running/disk"
    # Nothing that is written here has to outlive this host.
    mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=1 -d "$merged" "$running/disk"
    touch "$output/console" "$output/out"
}

# One boot, until the machine goes off or wants to boot again.
start_machine() {
    exec setpriv --pdeathsig KILL timeout --foreground --signal=KILL "$limit" qemu-system-x86_64 \
        -accel tcg,thread=multi -cpu max -smp 2 -m 1024 -nodefaults -display none -no-reboot \
        -kernel "$kernel" -initrd "$initrd" \
        -append "root=/dev/vda rootfstype=ext4 rw console=ttyS0 quiet panic=-1 mitigations=off" \
        -drive "file=$running/disk,if=virtio,format=raw,cache=unsafe" \
        -chardev "file,id=console,path=$output/console,append=on" -serial chardev:console \
        -chardev "file,id=out,path=$output/out,append=on" -serial chardev:out \
        -device virtio-rng-pci
}

# Boots as long as the runner's last word is that another boot follows.
machine_run() {
    local status
    follow "$output/out"
    while :; do
        (start_machine) 7<&- 6<&- </dev/null >>"$output/qemu" 2>&1 &
        supervisor=$!
        status=0
        wait "$supervisor" || status=$?
        supervisor=""
        [[ "$status" -eq 0 && "$(tail -n 1 "$output/out")" == "-- "* ]] || break
    done
    unfollow
    return "$status"
}

# The disk is read without being mounted.
machine_collect() {
    debugfs -R "rdump /var/lib/tenured-tests $running" "$running/disk" >/dev/null 2>&1
    mv "$output/out" "$running/tenured-tests/out"
    cp -r "$running/tenured-tests/." "$output/"
}
