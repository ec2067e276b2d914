# Everything that happens to a task is one line in the journal, with the fields by which it is found and an id that the
# catalog explains.

start_daemon >/dev/null
task="$(add fails --retries 0 -- /bin/sh -c 'exit 3')"
wait_for "the task to have failed" 20 task_is "$task" blocked >/dev/null
ours() { journal -u tenured.service "TENURED_TASK=$task" --output=json; }
lines() { ours | jq -rs 'length'; }
wait_for "its lines" 10 prints 3 lines

same "what was said" "run 1 of task 1 has ended: failed, exit 3|4|failed
run 1 of task 1 has started|6|-
task 1 is blocked after 1 failures: exit 3|4|failures" \
    "$(ours | jq -r '"\(.MESSAGE | sub(": process.*"; ""))|\(.PRIORITY)|\(.TENURED_CAUSE // "-")"' | sort)"
same "the queue" default "$(ours | jq -r .TENURED_QUEUE | sort -u)"
same "the name" tenured "$(ours | jq -r .SYSLOG_IDENTIFIER | sort -u)"
same "the run" "1 null" "$(ours | jq -r .TENURED_RUN | sort -u | paste -sd' ')"

# As the installation of a package does.
journalctl --update-catalog
note "each has an entry in the catalog, with the fields filled in"
for id in $(ours | jq -r .MESSAGE_ID); do
    journalctl --list-catalog "$id" 2>/dev/null | grep -q "tenured:" || fail "no entry for $id"
done
explained="$(journal -u tenured.service "TENURED_TASK=$task" --catalog)"
grep -q "Subject: Run 1 of task 1 has failed" <<<"$explained" || fail "not explained: $explained"
grep -q "tenurectl unblock 1" <<<"$explained" || fail "not explained: $explained"

note "and nothing of the daemon's is written twice"
same "lines per message" 1 "$(ours | jq -r .MESSAGE | sort | uniq -c | awk '{print $1}' | sort -u)"
