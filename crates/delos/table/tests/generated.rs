//! The messages are what `proto/table.proto` says, and so are the calls of the service. Who builds the project needs
//! no compiler of such files, and no time for one.

#![allow(clippy::disallowed_methods)] // it reads and writes the source

use protox::prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    MethodDescriptorProto,
};
use std::path::Path;

/// `UpdateWhere` for `update_where`.
fn type_name(word: &str) -> String {
    let capital = |part: &str| part[..1].to_uppercase() + &part[1..].to_lowercase();
    word.split('_').map(capital).collect()
}

/// `drop_table` for `DropTable`.
fn module_name(name: &str) -> String {
    let small = |letter: char| match letter.is_uppercase() {
        true => format!("_{}", letter.to_lowercase()),
        false => letter.to_string(),
    };
    let name: String = name.chars().map(small).collect();
    name.trim_start_matches('_').to_owned()
}

/// The type of a field with the protocol's word for it.
fn kind(field: &FieldDescriptorProto) -> (String, String) {
    let of = last_word(field.type_name());
    let (rust, word) = match field.r#type().as_str_name() {
        "TYPE_BOOL" => ("bool", "bool"),
        "TYPE_SINT64" => ("i64", "sint64"),
        "TYPE_UINT64" => ("u64", "uint64"),
        "TYPE_UINT32" => ("u32", "uint32"),
        "TYPE_DOUBLE" => ("f64", "double"),
        "TYPE_STRING" => ("String", "string"),
        "TYPE_BYTES" => ("Bytes", "bytes = \"bytes\""),
        "TYPE_MESSAGE" => (of, "message"),
        "TYPE_ENUM" => return ("i32".into(), format!("enumeration = {of:?}")),
        other => panic!("a field of type {other}: say here what it is"),
    };
    (rust.into(), word.into())
}

fn last_word(path: &str) -> &str {
    path.rsplit('.').next().expect("a name")
}

/// The file, and what its comments say of a place in it.
struct Source(FileDescriptorProto);

impl Source {
    fn read() -> Source {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let parsed = protox::compile([root.join("proto/table.proto")], [root.join("proto")]);
        Source(parsed.expect("it is well-formed").file.remove(0))
    }

    fn comment(&self, indentation: &str, place: &[i32]) -> String {
        let all = &self.0.source_code_info.as_ref().expect("comments").location;
        let found = all.iter().find(|location| location.path == place);
        let text = found.and_then(|found| {
            let above = found.leading_comments.as_ref();
            above.or(found.trailing_comments.as_ref())
        });
        let line = |line: &str| format!("{indentation}/// {}\n", line.trim());
        text.map_or("", |text| text.trim())
            .lines()
            .map(line)
            .collect()
    }

    /// A message of the file, for `messages!`.
    fn message(&self, message: &DescriptorProto, at: i32) -> String {
        let name = message.name();
        let mut choices: Vec<i32> = Vec::new();
        let mut rows = String::new();
        for (field, i) in message.field.iter().zip(0..) {
            let Some(choice) = field.oneof_index else {
                rows += &self.comment("        ", &[4, at, 2, i]);
                rows += &own_field(field);
                continue;
            };
            if !choices.contains(&choice) {
                choices.push(choice);
                rows += &field_of_choice(message, choice);
            }
        }
        let rows = match rows.is_empty() {
            true => rows,
            false => format!("\n{rows}    "),
        };
        format!("{}    {name} {{{rows}}}\n", self.comment("    ", &[4, at]))
    }

    /// What a message has one at a time, for `choices!`.
    fn choices(&self, message: &DescriptorProto, at: i32) -> String {
        let mut text = String::new();
        for (choice, number) in message.oneof_decl.iter().zip(0..) {
            let module = module_name(message.name());
            text += &format!("    {module}::{} {{\n", type_name(choice.name()));
            for (field, i) in message.field.iter().zip(0..) {
                if field.oneof_index == Some(number) {
                    text += &self.comment("        ", &[4, at, 2, i]);
                    text += &variant(message, field);
                }
            }
            text += "    }\n";
        }
        text
    }

    fn enumeration(&self, of: &EnumDescriptorProto, at: i32) -> String {
        let mut text = format!("{}    {} {{\n", self.comment("    ", &[5, at]), of.name());
        for (value, i) in of.value.iter().zip(0..) {
            text += &self.comment("        ", &[5, at, 2, i]);
            text += &format!(
                "        {} = {},\n",
                type_name(value.name()),
                value.number()
            );
        }
        text + "    }\n"
    }
}

fn own_field(field: &FieldDescriptorProto) -> String {
    let (rust, word) = kind(field);
    let (rust, word) = match (field.label().as_str_name(), word.as_str()) {
        ("LABEL_REPEATED", _) => (format!("Vec<{rust}>"), format!("{word}, repeated")),
        (_, "message") => (format!("Option<{rust}>"), format!("{word}, optional")),
        _ => (rust, word),
    };
    let (name, tag) = (field.name(), field.number());
    format!("        {name}: {rust} = ({word}, tag = \"{tag}\"),\n")
}

fn field_of_choice(message: &DescriptorProto, choice: i32) -> String {
    let fields = message.field.iter();
    let fields = fields.filter(|field| field.oneof_index == Some(choice));
    let tags: Vec<String> = fields.map(|field| field.number().to_string()).collect();
    let name = message.oneof_decl[choice as usize].name();
    let path = format!("{}::{}", module_name(message.name()), type_name(name));
    let tags = tags.join(", ");
    format!("        {name}: Option<{path}> = (oneof = {path:?}, tags = {tags:?}),\n")
}

fn variant(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let (rust, word) = kind(field);
    let rust = match rust == message.name() {
        true => format!("Box<{rust}>"),
        false => rust,
    };
    let (name, tag) = (type_name(field.name()), field.number());
    format!("        {name}({rust}) = ({word}, tag = \"{tag}\"),\n")
}

/// The messages as `src/proto.rs` has them.
fn messages(source: &Source) -> String {
    let (of_messages, of_enums) = (
        source.0.message_type.iter().zip(0..),
        source.0.enum_type.iter().zip(0..),
    );
    let messages: String = of_messages
        .clone()
        .map(|(of, at)| source.message(of, at))
        .collect();
    let choices: String = of_messages.map(|(of, at)| source.choices(of, at)).collect();
    let enums: String = of_enums
        .map(|(of, at)| source.enumeration(of, at))
        .collect();
    format!(
        "// Written by the test `generated` from `proto/table.proto`.\n\nuse bytes::Bytes;\n\n\
         messages! {{\n{messages}}}\n\nchoices! {{\n{choices}}}\n\nenumerations! {{\n{enums}}}\n"
    )
}

/// The calls as `src/service.rs` has them.
fn calls(source: &Source) -> Vec<String> {
    let service = &source.0.service[0];
    let path = format!("{}.{}", source.0.package(), service.name());
    let call = |call: &MethodDescriptorProto| {
        let (asked, answer) = (last_word(call.input_type()), last_word(call.output_type()));
        let (name, word) = (module_name(call.name()), call.name());
        format!("    {name}({asked}) -> {answer} = \"/{path}/{word}\";")
    };
    service.method.iter().map(call).collect()
}

#[test]
fn the_messages_and_the_calls_are_what_the_proto_file_says() {
    let source = Source::read();
    let messages = messages(&source);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("src/proto.rs");
    if std::env::var_os("PLINTH_WRITE_GENERATED").is_some() {
        std::fs::write(&file, &messages).expect("it is written");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == messages,
        "{} is not what proto/table.proto says: write it anew with \
         PLINTH_WRITE_GENERATED=1 cargo test -p plinth-table --test generated",
        file.display()
    );
    let service = std::fs::read_to_string(root.join("src/service.rs")).expect("the service");
    let found = service.lines().filter(|line| line.contains("\"/plinth."));
    assert_eq!(
        found.collect::<Vec<_>>(),
        calls(&source),
        "in src/service.rs"
    );
}
