machine_prepare() { echo "not yet" >&2; exit 70; }
machine_run() { :; }
machine_collect() { :; }
