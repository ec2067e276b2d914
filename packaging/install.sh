#!/usr/bin/env bash
# Installs tenured: packaging/install.sh DESTDIR [BINDIR]
#
# DESTDIR is the root to install into (/ for this host, a package's build root, a tree to boot); BINDIR has the
# built programs (target/release). Nothing is enabled or started, no user is made: that is the packages' or the
# administrator's to do (systemd-sysusers, systemd-tmpfiles --create, systemctl daemon-reload, journalctl
# --update-catalog, systemctl enable --now tenured). A configuration that is there is left as it is.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,/^set /{ /^set /d; s/^# \{0,1\}//; p }' "$0" >&2
    exit 2
fi
root="$(cd "$(dirname "$0")/.." && pwd)"
destination="${1%/}"
programs="${2:-$root/target/release}"

for name in tenured tenurectl tenured-exec; do
    [ -x "$programs/$name" ] && continue
    echo "$programs/$name is missing: build it (cargo build --release), or say where it is" >&2
    exit 1
done

# mode, path below DESTDIR, file
put() { install -D -m "$1" "$3" "$destination$2"; }

put 0755 /usr/bin/tenured "$programs/tenured"
put 0755 /usr/bin/tenurectl "$programs/tenurectl"
put 0755 /usr/libexec/tenured/tenured-exec "$programs/tenured-exec"

# What dist/ holds goes to the places whose names it carries.
places=(
    "systemd /usr/lib/systemd"
    "dbus-1 /usr/share/dbus-1"
    "polkit-1 /usr/share/polkit-1"
    "sysusers.d /usr/lib/sysusers.d"
    "tmpfiles.d /usr/lib/tmpfiles.d"
    "man /usr/share/man"
)
for place in "${places[@]}"; do
    read -r folder target <<<"$place"
    [ -d "$root/dist/$folder" ] || continue
    while IFS= read -r -d '' file; do
        put 0644 "$target/$file" "$root/dist/$folder/$file"
    done < <(cd "$root/dist/$folder" && find . -type f -printf '%P\0')
done

install -d -m 0755 "$destination/etc/tenured/tenured.toml.d"
[ -e "$destination/etc/tenured/tenured.toml" ] || put 0644 /etc/tenured/tenured.toml "$root/dist/tenured.toml"
