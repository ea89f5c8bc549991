# Sourced by the scripts beside it, which must run on a machine that has nothing but a shell and apt.
# shellcheck shell=sh

export DEBIAN_FRONTEND=noninteractive

be_root() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "$0: needs root, for apt and for the namespaces of its nodes. Run it again with sudo." >&2
        exit 1
    fi
}

# need PACKAGE...: installs those that this machine lacks.
need() {
    for package; do
        shift
        if ! dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null | grep -q '^installed$'; then
            set -- "$@" "$package"
        fi
    done
    [ $# -gt 0 ] || return 0
    echo "installing $* with apt-get" >&2
    quietly apt-get update
    quietly apt-get install -y --no-install-recommends "$@"
}

# quietly COMMAND...: its output is shown only if it fails.
quietly() {
    if ! output=$("$@" 2>&1); then
        printf '%s\n' "$output" >&2
        echo "failed: $*" >&2
        exit 1
    fi
}
