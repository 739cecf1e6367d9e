//! Words and flags of other programs, and what does the same here: tables for [`hints`](crate::hints). Statements of
//! shells are in `plinth_core::similar`.

/// Words that are no command behind those before them, and what does that.
#[rustfmt::skip]
pub const MEANT: [(&[&str], &str, &str); 44] = [
    (&[], "restore fdbrestore", "`plinth load' reads what `plinth dump' has written"),
    (&[], "backup fdbbackup fdbdr snapshot save",
        "`plinth dump' writes pairs to a file, and `plinth copy' copies a database"),
    (&[], "import", "`plinth load' reads pairs, and `plinth keeper import' the nodes of a ZooKeeper"),
    (&[], "export", "`plinth dump' writes pairs, and `plinth keeper export' the nodes of a tree"),
    (&[], "store kv database cluster",
        "the store's commands have no system before them: `plinth dev', `plinth cli', `plinth status'"),
    (&[], "redis redis-server redis-cli valkey keydb memcached hazelcast ignite engine memory",
        "the in-memory engine is `plinth farm': begin with `plinth farm dev' and `plinth farm cli'"),
    (&[], "fdb foundationdb",
        "`plinth dev' starts a cluster, `plinth cli' is its fdbcli, `plinth copy' copies a database of FoundationDB"),
    (&[], "clickhouse clickhouse-server clickhouse-client clickhouse-keeper kafka solr hbase curator",
        "`plinth keeper server' serves who needs a ZooKeeper: its gateways stand where the configuration names that"),
    (&[], "etcd etcdctl consul chubby",
        "`plinth delos' has locks, queues and tables, and `plinth cli' keys with transactions; `plinth dev' starts a \
        cluster"),
    (&[], "rocksdb leveldb lmdb tikv dynamodb cassandra mongo mongodb",
        "`plinth dev' starts a cluster of ordered keys with transactions, and `plinth cli' is its shell"),
    (&[], "quit exit bye logout", "there is no shell to leave; `plinth cli' is one, and `exit' leaves it"),
    (&[], "knob knobs", "`plinth server --knob list' shows the knobs"),
    (&[], "log logs trace traces", "a server writes what it does to the file of `--trace', or to its data directory"),
    (&[], "shell fdbcli exec repl console connect client",
        "the shell is `plinth cli', and `plinth cli --exec STATEMENTS' carries some out"),
    (&[], "sql psql postgres postgresql mysql sqlite cockroach query", "the shell of tables is `plinth table cli'"),
    (&[], "start run serve up init daemon fdbserver fdbmonitor create-cluster",
        "`plinth dev' starts a cluster on this machine, and `plinth server' one server"),
    (&[], "create new make",
        "`plinth dev' makes a cluster, and so do `plinth farm create', `plinth delos create', `plinth stream create' \
        theirs"),
    (&[], "metrics prometheus health healthz pages",
        "a server shows them at its pages: `--pages IP:PORT' of `plinth server', /metrics and /health/ready there"),
    (&[], "join add-server", "`plinth server -C FILE' joins the cluster of that file"),
    (&[], "stop restart down shutdown", ENDED),
    (&[], "version", "`plinth --version' prints it"),
    (&[], "zk zkcli zkserver zookeeper gateway tree trees",
        "`plinth keeper' serves ZooKeeper's clients: `plinth keeper server', `plinth keeper list'"),
    (&[], "lock-service queue locks queues leader election mutex service services",
        "`plinth delos' has locks and queues: `plinth delos dev NAME --kind lock'"),
    (&[], "monitor htop dashboard", "`plinth top' watches a cluster"),
    (&[], "benchmark perf ycsb", "`plinth bench' measures a cluster"),
    (&[], "auth user users role acl passwd login",
        "`plinth keys' has the keys of who may do what, and `plinth token' signs what clients may do"),
    (&["keeper"], "dev", "`plinth dev --data-dir DIR --zookeeper-port 2181' starts a cluster with a gateway"),
    (&["keeper"], "cli shell zkcli", OF_KEEPER),
    (&["keeper"], "top", "`plinth top' watches the cluster below, and `plinth keeper status' shows the tree"),
    (&["keeper"], "trees", "`plinth keeper list' shows the trees of a cluster"),
    (&["stream"], "status show consumers info", "`plinth stream list' shows streams, and how far their consumers are"),
    (&["token"], "list inspect view decode", "`plinth token show FILE' tells what a token grants"),
    (&["table"], "dev", "`plinth table server --data-dir DIR' is one; `plinth delos dev NAME --kind table' several"),
    (&["table"], "status", "`plinth delos status' shows the service behind the tables"),
    (&["table"], "top", "`plinth delos top' watches the service behind the tables"),
    (&["table"], "bench", "`plinth delos bench' measures services"),
    (&["table"], "shell sql", "the shell is `plinth table cli'"),
    (&["farm"], "top", "`plinth farm status' shows the cluster, and `--pages' of a server has its metrics"),
    (&["farm", "bench"], "list", "`plinth farm bench' lists what there is to measure"),
    (&["bench"], "list", "`plinth bench run --workload list' explains what there is to measure"),
    (&["farm"], "shell", "the shell is `plinth farm cli'"),
    (&["delos"], "cli shell", OF_DELOS),
    (&["delos"], "list ls", "`plinth delos status -C SERVICE' shows one service, whose file names it"),
    (&["keys"], "show", "`plinth keys list' shows the keys of a cluster"),
];

/// Statements that are nothing alone: no tip from a word of another program leads to them.
pub const OF_SESSIONS: [&str; 7] = [
    "begin",
    "commit",
    "rollback",
    "exit",
    "help",
    "usetenant",
    "getversion",
];
const ENDED: &str = "a server ends by SIGTERM: `systemctl stop' or `restart' where systemd has started it; `kill' in \
     plinth cli starts one again that is looked after";
pub const OF_KEEPER: &str = "`plinth keeper server' serves the shells of ZooKeeper, as zkCli.sh";
pub const OF_DELOS: &str =
    "`plinth delos call' carries out an operation; the shell of tables is `plinth table cli'";

/// Flags that one command has not, and what does that.
#[rustfmt::skip]
pub const OF_ONE: [(&[&str], &str, &str); 5] = [
    (&[], "v", "-V prints the version"),
    (&["status"], "watch w follow f", "`plinth top' watches a cluster"),
    (&["keeper", "status"], "watch w follow f", "`plinth top' watches the cluster below"),
    (&["delos", "status"], "watch w follow f", "`plinth delos top' watches a service"),
    (&["farm", "status"], "watch w follow f", "`watch plinth farm status …' shows it again and again"),
];

/// What stands behind flags, of commands that have all of these.
pub const AT_PLACES: [(&[&str], &str); 5] = [
    (
        &["--exec", "--connect"],
        "statements stand behind --exec, as in --exec 'select * from t'",
    ),
    (
        &["--exec"],
        "statements stand behind --exec, as in --exec 'get a'",
    ),
    (
        &["--from", "--to", "--overwrite"],
        "--from and --to name the cluster files",
    ),
    (&["--tree"], "--tree names a tree, as in --tree default"),
    (&["--data-dir"], "--data-dir names the directory"),
];

/// Flags of other programs, without hyphens, and what a command may have instead: the first that it has.
#[rustfmt::skip]
pub const SAME: [(&str, &str); 46] = [
    ("e execute eval command cmd statement query", "--exec"),
    ("seconds time runtime t", "--duration"),
    ("seconds delay n every", "--interval"),
    ("replicas copies replicationfactor redundancy", "--replication"),
    ("workers servers nodes", "--processes"),
    ("processes servers nodes replicas", "--machines"),
    ("nodes servers processes", "--replicas"),
    ("from start startkey prefix", "--begin"),
    ("to stop endkey", "--end"),
    ("begin end prefix", "--range"),
    ("jobs threads parallel parallelism connections clients", "--concurrency"),
    ("threads parallel parallelism concurrency workers", "--jobs"),
    ("duration ttl expires validity", "--for"),
    ("clusterfile cluster source src", "--from"),
    ("target dest destination", "--to"),
    ("tsv csv format writeout w o output", "--json"),
    ("csv raw", "--tsv"),
    ("cluster C file", "--cluster-file"),
    ("clusterfile cluster host server endpoint endpoints address addr url p port", "--connect"),
    ("port p host bind address addr clientport zookeeperport publicaddress listenaddress listenclienturls \
      listenpeerurls advertiseclienturls initialadvertisepeerurls endpoints endpoint server url", "--listen"),
    ("p baseport listen clientport bind", "--port"),
    ("keeperport zkport clientport", "--zookeeper-port"),
    ("server host endpoint endpoints zookeeper address", "--gateway"),
    ("server host endpoint endpoints zookeeper address", "--from"),
    ("name t", "--tree"),
    ("ticktime tick", "--tick-ms"),
    ("minsessiontimeout", "--min-session-timeout-ms"),
    ("maxsessiontimeout sessiontimeout", "--max-session-timeout-ms"),
    ("maxclientcnxns maxconnections maxclients", "--max-connections-per-address"),
    ("adminport adminserver adminserverport metricsport metrics prometheus http listenmetricsurls", "--pages"),
    ("adminport metricsport metrics prometheus pages", "--pages-port"),
    ("dir directory data path d datadir dbpath db", "--data-dir"),
    ("locality localityzoneid zoneid rack az", "--zone"),
    ("localitymachineid machineid hostname", "--machine"),
    ("role processclass", "--class"),
    ("logdir log logfile L verbose v debug", "--trace"),
    ("memory cache cachesize cachememory storagememory M m", "--cache-mib"),
    ("cert certfile tlscert", "--tls-certificate-file"),
    ("key keyfile tlskey", "--tls-key-file"),
    ("cacert cafile ca trustedcafile tlsca", "--tls-ca-file"),
    ("dialtimeout commandtimeout wait limit", "--timeout"),
    ("super superuser", "--super-digest"),
    ("storage storageengine backend", "--engine"),
    ("force clobber replace", "--overwrite"),
    ("yes y f", "--force"),
    ("conf configfile f", "--config"),
];

/// Words of other programs for what is done with something, and how it is called here.
pub const VERBS: [(&str, &[&str]); 5] = [
    ("ls show all", &["list", "status"]),
    ("add make new generate gen init", &["create", "new", "add"]),
    (
        "delete remove rm del destroy erase",
        &["drop", "remove", "forget"],
    ),
    (
        "info describe health stat stats nodes members",
        &["status", "list"],
    ),
    ("serve start up daemon gateway", &["server", "dev"]),
];
