# The daemon asks the login manager to be told before a shutdown and before sleep, and lets go when it ends.
start_daemon
locks() { # number wanted
    prints "$1" bash -c 'busctl --json=short call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager \
        ListInhibitors | jq "[.data[0][] | select(.[1] == \"tenured\" and .[3] == \"delay\") | .[0]] | sort | join(\":\")"'
}
wait_for "its lock" 10 locks '"shutdown:sleep"'
systemctl restart tenured.service
wait_for "its lock again" 10 locks '"shutdown:sleep"'
# A login manager that is restarted has lost it; the daemon asks again.
systemctl restart systemd-logind.service
wait_for "its lock from the new one" 20 locks '"shutdown:sleep"'
systemctl stop tenured.service
wait_for "no lock" 10 locks '""'
