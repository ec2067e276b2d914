# The base trees: one minimal Debian per suite, made once and kept outside of the source tree. A part of
# tests/systemd/boot, which sources it. A tree is never booted itself, only what is laid over it.

# What every tree has beside Debian's minimal set.
tree_packages=(
    systemd-sysv dbus dbus-user-session udev polkitd libpam-systemd procps util-linux kmod jq
)
# What a tree for a virtual machine has beside that.
machine_packages=(linux-image-cloud-amd64 initramfs-tools)

# Where the trees are kept.
trees_directory() {
    printf '%s\n' "${TENURED_TREES:-${XDG_CACHE_HOME:-$HOME/.cache}/tenured-trees}"
}

# What a tree is made from: another list makes another tree.
tree_recipe() { # kind, suite
    local packages=("${tree_packages[@]}")
    [ "$1" = container ] || packages+=("${machine_packages[@]}")
    printf '%s %s\n' "$2" "${packages[*]}"
}

tree_is_good() { # tree, kind, suite
    [ -d "$1/usr" ] && [ "$(cat "$1.recipe" 2>/dev/null)" = "$(tree_recipe "$2" "$3")" ]
}

# Makes the tree where it is missing or was made from another recipe. Prints its path on success; all that
# the tools say goes to standard error. Exit status 69 where there is no way to the packages.
make_tree() { # kind (container or machine), suite
    local kind="$1" suite="$2" trees name tree log packages
    trees="$(trees_directory)"
    name="$suite"
    [ "$kind" = container ] || name="$suite-machine"
    tree="$trees/$name"
    mkdir -p "$trees"
    if tree_is_good "$tree" "$kind" "$suite"; then
        printf '%s\n' "$tree"
        return
    fi
    (
        # Boots hold it shared for as long as they stand on the tree; somebody else may be making it.
        flock 8
        tree_is_good "$tree" "$kind" "$suite" && exit 0
        echo "making the tree $tree (once; some 30 s to 2 min)" >&2
        log="$trees/$name.log"
        packages="$(tree_recipe "$kind" "$suite")"
        packages="${packages#* }"
        rm -rf "$tree" "$tree.new" "$tree.recipe"
        # The mirror's list may be older than Debian allows; the signature is checked all the same.
        if ! mmdebstrap --variant=minbase --include="${packages// /,}" \
            --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Languages "none"' \
            --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
            --dpkgopt='path-exclude=/usr/share/locale/*' \
            "$suite" "$tree.new" >"$log" 2>&1; then
            rm -rf "$tree.new"
            tail -n 20 "$log" >&2
            if grep -qE 'Could not (resolve|connect)|Temporary failure|Unable to connect|Failed to fetch|Connection (refused|timed out)' "$log"; then
                echo "no way to the packages of $suite: see $log" >&2
                exit 69
            fi
            echo "the tree cannot be made: see $log" >&2
            exit 1
        fi
        chroot "$tree.new" apt-get clean
        mv "$tree.new" "$tree"
        tree_recipe "$kind" "$suite" >"$tree.recipe"
    ) 8>"$tree.lock" || return
    printf '%s\n' "$tree"
}
