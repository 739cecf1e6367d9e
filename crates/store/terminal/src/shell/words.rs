//! The words of a shell's language: separated by blanks, and statements by `;`.
//!
//! A word may be in double quotes, wholly or in part. `\xNN`, `\\`, `\"`, `\t`, `\n`, `\r`, `\0`, `\;` and `\ ` (a
//! blank) are escapes everywhere.

/// Splits a text into statements, and these into words, as bytes.
pub fn split(text: &str) -> Result<Vec<Vec<Vec<u8>>>, String> {
    let mut statements = vec![Vec::new()];
    let mut word: Option<Vec<u8>> = None;
    let mut quoted = false;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let end_of_word = !quoted && (byte == b';' || byte.is_ascii_whitespace());
        if end_of_word {
            statements
                .last_mut()
                .expect("never empty")
                .extend(word.take());
            if byte == b';' {
                statements.push(Vec::new());
            }
            continue;
        }
        let word = word.get_or_insert_default();
        match byte {
            b'"' => quoted = !quoted,
            b'\\' => word.push(escaped(&mut bytes)?),
            _ => word.push(byte),
        }
    }
    if quoted {
        return Err("a quote is not closed".into());
    }
    statements.last_mut().expect("never empty").extend(word);
    Ok(statements)
}

fn escaped(bytes: &mut std::str::Bytes<'_>) -> Result<u8, String> {
    let broken = || "there is a broken escape; a backslash itself is written \\\\".to_string();
    Ok(match bytes.next().ok_or_else(broken)? {
        b't' => b'\t',
        b'n' => b'\n',
        b'r' => b'\r',
        b'0' => 0,
        b'x' => {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit().ok_or_else(broken)?, digit().ok_or_else(broken)?);
            (high * 16 + low) as u8
        }
        byte @ (b'\\' | b'"' | b';' | b' ') => byte,
        _ => return Err(broken()),
    })
}
