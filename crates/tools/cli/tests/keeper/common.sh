# What the runners of this directory share; they read it with ".".

# Where scripts/need-keeper-clients put things.
repository=$(cd "$here/../../../../.." && pwd)
installed=${KEEPER_CLIENTS:-${CARGO_TARGET_DIR:-$repository/target}/keeper-clients}

# A client that is missing makes a run fail: a test that did not run has not passed.
need() {
    for thing in "$@"; do
        if [ ! -e "$thing" ]; then
            echo "$thing is missing; run scripts/need-keeper-clients" >&2
            exit 1
        fi
    done
}

# The server's address, which is the first argument of every runner.
outside() {
    case ${1:-} in
    *:*) ;;
    *)
        sed -n '2,/^[^#]/s/^# //p' "$0" >&2
        exit 2
        ;;
    esac
    OUTSIDE_SERVER=$1
    export OUTSIDE_SERVER
}

# The directory of the Go client's own sources.
go_client() {
    (cd "$here/go" && go list -m -f '{{.Dir}}' github.com/go-zookeeper/zk)
}

# java_tests LISTS [--short] - the tests that java/LISTS-tests names, but for those that LISTS-left-out and LISTS-slow name.
java_tests() {
    lists="$here/java/$1"
    need "$installed/java/classes" "$installed/java/lib" "$installed/java/junit"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    set -- "$lists-tests" "$lists-left-out" ${2:+"$lists-slow"}
    # A gate stands where each test starts a server; what these servers write, nobody needs. Of four ranges of ports the
    # second: the first is the one that the Go client's tests take theirs from.
    (cd "$work" && java -Xmx1g "-Dplinth.apart=${apart:-false}" -Dzookeeper.serverCnxnFactory=plinth.keeper.Gate -Dzookeeper.admin.enableServer=false \
        -Dzookeeper.4lw.commands.whitelist='*' -Dzookeeper.extendedTypesEnabled=true -Dzookeeper.preAllocSize=100 \
        -Dtest.junit.threads=4 -Dzookeeper.junit.threadid=2 \
        -Dbuild.test.dir="$work" -Djava.io.tmpdir="$work" -Dorg.slf4j.simpleLogger.defaultLogLevel=off \
        -classpath "$installed/java/classes:$installed/java/junit/*:$installed/java/lib/*" plinth.keeper.Run "$@" |
        grep --line-buffered -v '^latch:')
}
