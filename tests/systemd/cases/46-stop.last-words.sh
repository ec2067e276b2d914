# Exit 0 with a grandchild left that holds the output and goes on writing: the run ends with status 0 after linger time
# and ladder, nobody waits for ever, and no line is lost, in the journal or in a file, also not the last words.
# limit: 120
configure '[sweep]' 'interval = "1s"' 'linger = "1s"' '[run]' 'stop_grace = "2s"' 'max_running = 8'
start_daemon

# The grandchild counts until it is told to end, says how far it came, and then whether it minds.
talker='n=0; trap "echo asked at \$n; $1; echo last words" TERM
while :; do n=$((n + 1)); echo "line $n"; sleep 0.02; done'
leave() { # what it does when asked, further words of add
    local then="$1"
    shift
    add --retries 0 "$@" -- bash -c 'echo first words; setsid bash -c "$0" & exit 0' "${talker/\$1/$then}"
}

in_journal() { journal --output=cat --identifier="tenured-$1"; }
# Every number up to the last one, once each and in order.
whole() { # lines on standard input
    awk '/^line [0-9]+$/ { n++; if ($2 != n) { print "line " $2 " in place of " n; exit 1 } } END { print n " lines" }'
}

has_last_words() { # how to read, task
    "$1" "$2" | grep -qx 'last words' || { "$1" "$2" | tail -n 2; return 1; }
}

for how in journal file; do
    read_it=in_journal
    [ "$how" = journal ] || read_it=logs
    logs() { tenurectl logs "$1"; }
    note "one that goes when it is asked, into the $how"
    task="$(leave 'echo last words; exit 0' --output "$how")"
    wait_for "the run to end" 20 task_is "$task" done
    same "its end" completed "$(outcomes "$task")"
    same "its exit code" 0 "$(exit_code "$task")"
    wait_for "its last words" 10 has_last_words "$read_it" "$task"
    "$read_it" "$task" >"$CASE_DIR/polite.$how"
    whole <"$CASE_DIR/polite.$how"
    same "its first line" "first words" "$(head -n 1 "$CASE_DIR/polite.$how")"
    asked="$(sed -n 's/^asked at //p' "$CASE_DIR/polite.$how")"
    same "how far it came" "$asked" "$(grep -c '^line' "$CASE_DIR/polite.$how")"
    same "what was sent" 1 "$(count_events "$task" signalled)"

    note "one that goes on until it is killed, into the $how"
    task="$(leave : --output "$how")"
    wait_for "the run to end" 20 task_is "$task" done
    same "its end" completed "$(outcomes "$task")"
    same "its exit code" 0 "$(exit_code "$task")"
    same "what was sent" 2 "$(count_events "$task" signalled)"
    wait_for "its words" 10 has_last_words "$read_it" "$task"
    "$read_it" "$task" >"$CASE_DIR/deaf.$how"
    whole <"$CASE_DIR/deaf.$how"
    asked="$(sed -n 's/^asked at //p' "$CASE_DIR/deaf.$how" | head -n 1)"
    [ "$(grep -c '^line' "$CASE_DIR/deaf.$how")" -gt "$asked" ] || fail "what it said in the grace is lost"
done
