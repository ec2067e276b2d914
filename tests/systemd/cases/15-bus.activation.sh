# A call to the name starts the daemon where it is enabled, and only there.
if busctl call org.tenured1 /org/tenured1 org.freedesktop.DBus.Peer Ping; then fail "it was started without being enabled"; fi
unit_is tenured.service inactive
systemctl enable tenured.service
task="$(add -- true)"
unit_is tenured.service active
wait_for "the task to be done" 10 task_is "$task" done
# Again, with two calls at once.
systemctl stop tenured.service
unit_is tenured.service inactive
busctl call org.tenured1 /org/tenured1 org.freedesktop.DBus.Peer Ping &
first=$!
tenurectl list
wait "$first"
unit_is tenured.service active
