//! The rules for names of data elements.

use base::Problem;

/// The longest name of an element in bytes. With indices and an extension it is a file name, which
/// has at most 255.
pub const ELEMENT_NAME_BYTES_MAX: usize = 200;

/// Refuses a name that no element may have, so that references such as `Model[0][3]` stay readable.
pub fn check_element_name(name: &str) -> Result<(), Problem> {
    let what = if name.is_empty() {
        "is empty"
    } else if name.ends_with(']') {
        "ends with `]`"
    } else if name.chars().any(char::is_control) {
        "holds a line end or another control character"
    } else {
        return Ok(());
    };
    Err(Problem::new(format!("the name of a data element {what}: {name:?}")))
}

/// Refuses a name that no element written by tasks may have, because its files are named after it.
pub fn check_defined_name(name: &str) -> Result<(), Problem> {
    check_element_name(name)?;
    let what = if name.contains('/') {
        "holds no `/`".to_owned()
    } else if name.len() > ELEMENT_NAME_BYTES_MAX {
        format!("has at most {ELEMENT_NAME_BYTES_MAX} bytes")
    } else if name == "." || name == ".." {
        "is neither `.` nor `..`".to_owned()
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(40).collect();
    Err(Problem::new(format!("a file is named after `{shown}`, so it {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_files_or_references_cannot_have_are_refused() {
        for name in ["Model", "a b", "a.b", "Modèle", "a[0]x"] {
            assert!(check_defined_name(name).is_ok(), "{name}");
        }
        for name in ["", "a/b", ".", "..", "a]", "a\nb", "a\0", &"x".repeat(201)] {
            assert!(check_defined_name(name).is_err(), "{name}");
        }
        assert!(check_element_name("/part.*[0-9]/i").is_ok());
    }
}
