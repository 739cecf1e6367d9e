//! `plinth copy` between two clusters, with and without the C API.

use crate::common::client_programs::build_directory;
use crate::common::gateways::{connect, start_gateway};
use crate::common::{BINARY, Cluster, Directory, free_ports, text};
use plinth_runtime::real;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

fn copy(directory: &Directory, from: &Cluster, to: &Cluster, more: &[&str]) -> Output {
    Command::new(BINARY)
        .args(["copy", "--piece-bytes", "100000", "--json", "--from"])
        .arg(from.cluster_file())
        .arg("--to")
        .arg(to.cluster_file())
        .args(more)
        .current_dir(&directory.0)
        .output()
        .expect("it was built")
}

fn result(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_str(&text(&output.stdout)).expect("JSON")
}

/// Writes rows of all sizes, some with unusual bytes.
fn fill(cluster: &Cluster, directory: &Directory) {
    let mut rows = String::new();
    for i in 0..20_000 {
        rows += &format!("key-{i:06}\\x00\t{}\n", "v".repeat(i % 97));
    }
    rows += &format!("large\t{}\n", "x".repeat(90_000));
    let file = directory.file("rows.tsv");
    std::fs::write(&file, rows).expect("writes");
    let loaded = cluster.plinth(&["load", file.to_str().expect("text")]);
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
}

#[test]
fn a_database_is_copied_through_the_c_api_and_back_and_checked() {
    let directory = Directory::new("copy");
    let (source, target) = (
        Cluster::start("copy-from", 1, &["--engine", "memory"]),
        Cluster::start("copy-to", 1, &["--engine", "memory"]),
    );
    fill(&source, &directory);
    let library = build_directory().join("libfdb_c.so");
    let library = library.to_str().expect("text");
    assert!(Path::new(library).exists(), "build the package plinth-capi");

    let copied = result(&copy(
        &directory,
        &source,
        &target,
        &["--from-library", library],
    ));
    assert_eq!(
        (&copied["rows"], &copied["rows_copied"]),
        (&20_001.into(), &20_001.into())
    );
    assert!(copied["pieces"].as_u64().expect("a number") > 5);
    assert!(!directory.file("plinth-copy.progress").exists());
    let same = result(&copy(&directory, &source, &target, &["--verify-only"]));
    assert_eq!(same["checksum"], copied["checksum"]);

    // Differences are found, and a copy without --overwrite is refused.
    target.cli("set key-000005\\x00 other; clear key-000006\\x00; set more rows");
    let compared = copy(&directory, &source, &target, &["--verify-only"]);
    assert_eq!(compared.status.code(), Some(1));
    assert!(
        text(&compared.stderr).contains("pieces differ"),
        "{}",
        text(&compared.stderr)
    );
    let refused = copy(&directory, &source, &target, &[]);
    assert!(
        text(&refused.stderr).contains("--overwrite"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(
        target.cli("get key-000005\\x00"),
        "`key-000005\\x00' is `other'\n"
    );

    // Copy back, from the changed database into the original one.
    let back = [
        "--to-library",
        library,
        "--overwrite",
        "--begin",
        "key",
        "--end",
        "n",
    ];
    let back = result(&copy(&directory, &target, &source, &back));
    assert_eq!(back["rows"], 20_001);
    assert_eq!(
        source.cli("get more; get key-000006\\x00"),
        "`more' is `rows'\n`key-000006\\x00': not found\n"
    );
}

#[test]
fn a_copy_that_stopped_goes_on_and_one_of_another_database_does_not() {
    let directory = Directory::new("copy-resume");
    let (source, target) = (
        Cluster::start("copy-resume-from", 1, &["--engine", "memory"]),
        Cluster::start("copy-resume-to", 1, &["--engine", "memory"]),
    );
    fill(&source, &directory);
    result(&copy(&directory, &source, &target, &[]));
    let connection = |cluster: &Cluster| {
        let text = std::fs::read_to_string(cluster.cluster_file()).expect("a cluster file");
        text.trim().to_owned()
    };
    let whole = format!(
        "{} -> {}  \\xff\n",
        connection(&source),
        connection(&target)
    );
    let pieces = " key-010000\nkey-010000 \\xff\n\n0\n";
    let progress = directory.file("plinth-copy.progress");
    std::fs::write(&progress, format!("{whole}{pieces}")).expect("writes");
    let stopped = copy(&directory, &source, &target, &["--overwrite"]);
    assert!(
        text(&stopped.stderr).contains("--resume"),
        "{}",
        text(&stopped.stderr)
    );
    let resumed = result(&copy(&directory, &source, &target, &["--resume"]));
    assert_eq!(
        (&resumed["rows_copied"], &resumed["rows"]),
        (&10_001.into(), &20_001.into())
    );

    std::fs::write(&progress, format!("other{whole}{pieces}")).expect("writes");
    let other = copy(&directory, &source, &target, &["--resume"]);
    assert!(
        text(&other.stderr).contains("another copy"),
        "{}",
        text(&other.stderr)
    );
}

#[test]
fn what_cannot_be_copied_is_said_in_one_line() {
    let directory = Directory::new("copy-refused");
    let cluster = Cluster::start("copy-refused", 1, &["--engine", "memory"]);
    let stopped = Cluster::stopped("copy-stopped", 1, &[]);
    std::fs::write(stopped.cluster_file(), "d:i@127.0.0.1:1\n").expect("writes");
    for (from, to, more, said) in [
        (&cluster, &cluster, &[][..], "the same cluster"),
        (
            &cluster,
            &stopped,
            &["--timeout", "1"],
            "does not serve within 1 s; coordinators tried: 127.0.0.1:1 (cannot be reached)",
        ),
        (
            &cluster,
            &stopped,
            &["--from-library", "/no/such.so"],
            "cannot be used",
        ),
        (
            &cluster,
            &stopped,
            &["--end", "\\xff\\x02"],
            "belong to the system",
        ),
    ] {
        let output = copy(&directory, from, to, more);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(
            error.contains(said) && error.lines().count() == 1,
            "{error}"
        );
    }
}

fn tenants_of(cluster: &Cluster) -> String {
    let output = cluster.plinth(&["cli", "--tsv", "--exec", "listtenants"]);
    text(&output.stdout)
}

fn one_line(output: &Output) -> String {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

/// Two tenants and keys of no tenant; the number 2 was given out, too, and its tenant is gone.
fn fill_tenants(cluster: &Cluster) {
    cluster.cli(
        "createtenant web; createtenant gone; deletetenant gone; createtenant shop; \
         usetenant web; set secret 1; usetenant shop; set page 3; defaulttenant; set plain 2",
    );
}

const READ_TENANTS: &str =
    "usetenant web; get secret; usetenant shop; get page; defaulttenant; get plain";
const TENANTS_READ: [&str; 3] = ["`secret' is `1'", "`page' is `3'", "`plain' is `2'"];

fn assert_tenants_are_there(cluster: &Cluster) {
    let read = cluster.cli(READ_TENANTS);
    for row in TENANTS_READ {
        assert!(read.contains(row), "{read}");
    }
    assert_eq!(tenants_of(cluster), "shop\t3\nweb\t1\n");
    // A number is not given out again.
    cluster.cli("createtenant next");
    assert_eq!(tenants_of(cluster), "next\t4\nshop\t3\nweb\t1\n");
    cluster.cli("deletetenant next");
}

#[test]
fn tenants_are_copied_with_their_numbers_and_a_target_with_others_is_refused() {
    let directory = Directory::new("copy-tenants");
    let (source, target, other) = (
        Cluster::start("copy-tenants-from", 1, &["--engine", "memory"]),
        Cluster::start("copy-tenants-to", 1, &["--engine", "memory"]),
        Cluster::start("copy-tenants-other", 1, &["--engine", "memory"]),
    );
    fill_tenants(&source);
    other.cli("createtenant zz; usetenant zz; set inzz 9");
    for more in [&[][..], &["--overwrite"]] {
        let line = one_line(&copy(&directory, &source, &other, more));
        assert!(
            line.contains("--to: tenant `zz' (number 1)")
                || line.contains("number 1 is tenant `zz'"),
            "{line}"
        );
        assert!(line.contains("nothing is changed"), "{line}");
        assert!(!directory.file("plinth-copy.progress").exists());
    }
    assert_eq!(tenants_of(&other), "zz\t1\n");
    assert!(
        other
            .cli("usetenant zz; get inzz")
            .contains("`inzz' is `9'")
    );

    let copied = result(&copy(&directory, &source, &target, &[]));
    assert_eq!(
        (&copied["rows"], &copied["tenants"]),
        (&3.into(), &2.into())
    );
    assert_tenants_are_there(&target);
    // The same again.
    result(&copy(&directory, &source, &target, &["--overwrite"]));
    result(&copy(&directory, &source, &target, &["--verify-only"]));
    // Through the library, which makes no tenants and reads them.
    let library = build_directory().join("libfdb_c.so");
    let library = library.to_str().expect("text");
    let through = ["--overwrite", "--to-library", library];
    let through = result(&copy(&directory, &source, &target, &through));
    assert_eq!(through["tenants"], 2);
    other.cli("usetenant zz; clear inzz; defaulttenant; deletetenant zz");
    let refused = ["--to-library", library];
    let line = one_line(&copy(&directory, &source, &other, &refused));
    assert!(line.contains("without --to-library"), "{line}");

    // A tenant that only one of them has, or has by another name.
    target.cli("renametenant web site");
    let line = one_line(&copy(&directory, &source, &target, &["--verify-only"]));
    assert!(line.contains("not the same in both: site, web"), "{line}");
    // Keys outside of the tenants' are copied whatever tenants there are.
    let keys = ["--begin", "p", "--end", "q", "--overwrite"];
    assert_eq!(
        result(&copy(&directory, &source, &target, &keys))["tenants"],
        0
    );
}

/// What a former release has dumped: the same without the tenants.
fn without_tenants(directory: &Directory, file: &str) -> String {
    let whole = std::fs::read_to_string(file).expect("reads");
    let of_tenant = |line: &&str| line.contains("xff/tenant/");
    assert_eq!(whole.lines().filter(of_tenant).count(), 3);
    let rows = whole.lines().filter(|line| !of_tenant(line));
    let rows: String = rows.map(|line| format!("{line}\n")).collect();
    let name = Path::new(file).file_name().expect("a name");
    let former = directory.file(&format!("former-{}", name.display()));
    std::fs::write(&former, &rows).expect("writes");
    former.display().to_string()
}

fn load(cluster: &Cluster, file: &str) {
    let loaded = cluster.plinth(&["load", file]);
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
}

#[test]
fn tenants_are_dumped_and_loaded_and_no_rows_get_into_another_ones() {
    let directory = Directory::new("dump-tenants");
    let (source, target) = (
        Cluster::start("dump-tenants-from", 1, &["--engine", "memory"]),
        Cluster::start("dump-tenants-to", 1, &["--engine", "memory"]),
    );
    fill_tenants(&source);
    let make_zz = "createtenant zz; usetenant zz; set inzz 9";
    for name in ["all.tsv", "all.jsonl"] {
        let file = directory.file(name);
        let file = file.to_str().expect("text");
        let dumped = source.plinth(&["dump", file]);
        assert!(dumped.status.success(), "{}", text(&dumped.stderr));
        let former = without_tenants(&directory, file);
        // A tenant of the target's own has the number of one that comes.
        target.cli(make_zz);
        for (file, said) in [
            (file, "number 1 is tenant `zz' there"),
            (&former, "the key would be of tenant `zz' (number 1)"),
        ] {
            let line = one_line(&target.plinth(&["load", file]));
            assert!(
                line.contains(said) && line.contains("nothing is loaded"),
                "{line}"
            );
        }
        let rows = target.cli("usetenant zz; getrange \"\" \\xff");
        assert!(rows.contains("inzz") && !rows.contains("secret"), "{rows}");
        // The number is given out, and belongs to nobody.
        target.cli("usetenant zz; clear inzz; defaulttenant; deletetenant zz");
        let line = one_line(&target.plinth(&["load", &former]));
        assert!(line.contains("there is none here"), "{line}");
        load(&target, file);
        load(&target, file);
        assert_tenants_are_there(&target);
        target.cli(
            "usetenant web; clear secret; usetenant shop; clear page; defaulttenant; clear plain; \
             deletetenant web; deletetenant shop; option on access_system_keys; clear \\xff/tenant/lastId",
        );
    }
}

#[test]
fn a_dump_that_goes_on_does_so_with_the_same_tenants_and_one_without_them_is_as_before() {
    let directory = Directory::new("dump-tenants-resumed");
    let cluster = Cluster::start("dump-tenants-resumed", 1, &["--engine", "memory"]);
    fill_tenants(&cluster);
    let whole = text(&cluster.plinth(&["dump"]).stdout);
    let lines: Vec<&str> = whole.lines().collect();
    assert_eq!(lines.len(), 6);
    let part = directory.file("part.tsv");
    let part = part.to_str().expect("text");
    for kept in [4, 3, 2] {
        std::fs::write(part, format!("{}\n", lines[..kept].join("\n"))).expect("writes");
        let resumed = cluster.plinth(&["dump", part, "--resume"]);
        assert!(resumed.status.success(), "{}", text(&resumed.stderr));
        assert_eq!(std::fs::read_to_string(part).expect("reads"), whole);
    }
    cluster.cli("renametenant web site");
    let line = one_line(&cluster.plinth(&["dump", part, "--resume"]));
    assert!(
        line.contains("tenants were made, renamed or deleted"),
        "{line}"
    );
    let plain = cluster.plinth(&["dump", "--begin", "p", "--end", "q"]);
    assert_eq!(text(&plain.stdout), "plain\t2\n");
}

#[test]
fn keys_in_the_way_of_a_new_tenant_are_named() {
    let cluster = Cluster::start("tenant-in-the-way", 1, &["--engine", "memory"]);
    cluster.cli("set \\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01secret 1");
    let line = cluster.cli_fails("createtenant web");
    for part in ["number 1", "(2135)", "secret", "clearrange"] {
        assert!(line.contains(part), "{line}");
    }
    let number = |last: u8| format!("{}\\x{last:02}", "\\x00".repeat(7));
    cluster.cli(&format!(
        "clearrange {} {}; createtenant web",
        number(1),
        number(2)
    ));
}

#[test]
fn a_tree_that_a_gateway_serves_is_not_written_over_unless_forced() {
    let directory = Directory::new("copy-served");
    let empty = Cluster::start("copy-served-from", 1, &["--engine", "memory"]);
    let port = crate::common::free_ports(1).to_string();
    let more = ["--engine", "memory", "--zookeeper-port", &port];
    let target = Cluster::start("copy-served-to", 1, &more);
    let whole = || text(&target.plinth(&["keeper", "status", "--json"]).stdout);
    let begun = std::time::Instant::now();
    while !(whole().contains("\"is_whole\":true") && whole().contains("127.0.0.1")) {
        assert!(begun.elapsed().as_secs() < 60, "{}", whole());
    }
    empty.cli("set a 1");
    let line = one_line(&copy(&directory, &empty, &target, &["--overwrite"]));
    assert!(
        line.contains("tree `default' of the keeper is served at"),
        "{line}"
    );
    assert!(
        line.contains("--force") && line.contains("nothing is changed"),
        "{line}"
    );

    let file = directory.file("tree.tsv");
    std::fs::write(&file, "a\t2\nkeeper/default\\x00m\tx\n").expect("writes");
    let file = file.to_str().expect("text");
    let line = one_line(&target.plinth(&["load", file]));
    assert!(
        line.contains("is served at") && line.contains("nothing is loaded"),
        "{line}"
    );
    assert_eq!(target.cli("get a"), "`a': not found\n");
    assert!(whole().contains("\"is_whole\":true"));
    result(&copy(
        &directory,
        &empty,
        &target,
        &["--overwrite", "--force"],
    ));
    assert!(!whole().contains("\"is_whole\":true"));
}

/// The rows of a tree come along, and the stream of its changes does not: nobody could serve the tree.
#[test]
fn a_tree_that_comes_along_without_its_stream_is_named_with_the_way_out() {
    let directory = Directory::new("carried-tree");
    let cluster = |name: &str| Cluster::start(name, 1, &["--engine", "memory"]);
    let (source, copied, loaded) = (
        cluster("tree-from"),
        cluster("tree-copied"),
        cluster("tree-loaded"),
    );
    let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let gateway = start_gateway(&source, address, &["--tree", "shop"]);
    real::block_on(async {
        let client = connect(address, None).await;
        client.close().await.expect("closed");
    });
    drop(gateway);
    let file = directory.file("all.tsv").display().to_string();
    assert!(source.plinth(&["dump", &file]).status.success());
    let loading = loaded.plinth(&["load", &file]);
    assert!(loading.status.success(), "{}", text(&loading.stderr));
    let mut copying = Command::new(BINARY);
    copying.arg("copy").arg("--from").arg(source.cluster_file());
    copying
        .arg("--to")
        .arg(copied.cluster_file())
        .current_dir(&directory.0);
    let copying = copying.output().expect("it was built");
    assert!(copying.status.success(), "{}", text(&copying.stderr));
    for said in [&loading, &copying] {
        let said = text(&said.stderr);
        for words in [
            "tree `shop' of the keeper came from another cluster, without its stream of changes",
            "`plinth keeper drop --tree shop --whole'",
            "`plinth keeper import --from-files DIR --tree shop'",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    let compared = result(&copy(&directory, &source, &copied, &["--verify-only"]));
    assert_eq!(
        compared["unusable"].as_array().map(Vec::len),
        Some(1),
        "{compared}"
    );
    // Rows of others come along as they are.
    let rows = directory.file("rows.tsv").display().to_string();
    std::fs::write(&rows, "a\t1\n").expect("writes");
    let loading = loaded.plinth(&["load", &rows, "--json"]);
    assert_eq!(result(&loading)["unusable"], serde_json::json!([]));
    the_way_out_is_one(&source, &copied, &directory);
}

fn the_way_out_is_one(source: &Cluster, copied: &Cluster, directory: &Directory) {
    let exported = directory.file("exported").display().to_string();
    for (cluster, words) in [
        (copied, &["keeper", "drop", "--tree", "shop", "--whole"][..]),
        (
            source,
            &[
                "keeper",
                "export",
                "--tree",
                "shop",
                "--to-files",
                &exported,
            ],
        ),
        (
            copied,
            &[
                "keeper",
                "import",
                "--from-files",
                &exported,
                "--tree",
                "shop",
            ],
        ),
        (copied, &["keeper", "status", "--tree", "shop"]),
    ] {
        let done = cluster.plinth(words);
        assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
    }
}
