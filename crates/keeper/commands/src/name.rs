//! Names of trees.

pub fn parse_tree(name: &str) -> Result<String, String> {
    let is_good =
        !name.is_empty() && name.len() <= 100 && name.bytes().all(|b| b.is_ascii_graphic());
    match is_good {
        true => Ok(name.into()),
        false => Err("expected 1 to 100 letters, digits or signs".into()),
    }
}
