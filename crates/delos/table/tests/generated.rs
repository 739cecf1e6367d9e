//! The code of the messages and of the service is what `proto/table.proto` becomes. Who builds the project needs no
//! compiler of such files, and no time for one.

#![allow(clippy::disallowed_methods)] // it reads and writes the source

use std::path::{Path, PathBuf};

const MESSAGES: &str = "src/proto.rs";
const SERVICE: &str = "src/service.rs";

fn generate(into: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parsed = protox::compile([root.join("proto/table.proto")], [root.join("proto")]);
    let parsed = parsed.expect("it is well-formed");
    let messages = tonic_prost_build::configure()
        .build_client(false)
        .build_server(false)
        .bytes(".")
        .out_dir(into.join("messages"));
    let service = tonic_prost_build::configure()
        .build_transport(false)
        .extern_path(".plinth.table.v1", "crate::proto")
        .out_dir(into.join("service"));
    for folder in ["messages", "service"] {
        std::fs::create_dir_all(into.join(folder)).expect("a folder");
    }
    messages.compile_fds(parsed.clone()).expect("written");
    service.compile_fds(parsed).expect("written");
}

#[test]
fn the_code_of_the_messages_and_of_the_service_is_what_the_proto_file_becomes() {
    let into = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("generated");
    generate(&into);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, folder) in [(MESSAGES, "messages"), (SERVICE, "service")] {
        let made = into.join(folder).join("plinth.table.v1.rs");
        let made = std::fs::read_to_string(made).expect("it was made");
        let file = root.join(file);
        if std::env::var_os("PLINTH_WRITE_GENERATED").is_some() {
            std::fs::write(&file, &made).expect("it is written");
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == made,
            "{} is not what proto/table.proto becomes: write it anew with \
             PLINTH_WRITE_GENERATED=1 cargo test -p plinth-table --test generated",
            file.display()
        );
    }
}
