//! The syntax of templates: text with `{names}` in braces, in commands and file names.
//!
//! The module `template_compiler` decides what a name means and where it may occur.

/// A piece of a template, borrowed from its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// Plain text, in which `{{` and `}}` are already single braces.
    Text(String),
    /// `{name}`, or `{name.part}`.
    Name { name: &'a str, part: Option<&'a str> },
    /// `{name?text}`.
    Conditional { name: &'a str, text: &'a str },
}

/// Splits `text` into its pieces, or returns an error message.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, String> {
    let mut tokens = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            plain.push_str(brace);
            rest = after;
        } else if brace == "}" {
            return Err("a `}` without its `{`; a plain brace is written twice: `}}`".to_owned());
        } else {
            let end = rest.find(['{', '}']).filter(|end| rest[*end..].starts_with('}'));
            let end = end.ok_or("a `{` without its `}`; a plain brace is written twice: `{{`")?;
            if !plain.is_empty() {
                tokens.push(Token::Text(std::mem::take(&mut plain)));
            }
            tokens.push(name(&rest[..end])?);
            rest = &rest[end + 1..];
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        tokens.push(Token::Text(plain));
    }
    Ok(tokens)
}

/// Parses the text between two braces.
fn name(inside: &str) -> Result<Token<'_>, String> {
    let (token, name) = match (inside.split_once('?'), inside.split_once('.')) {
        (Some((name, text)), _) => (Token::Conditional { name, text }, name),
        (None, Some((name, part))) => (Token::Name { name, part: Some(part) }, name),
        (None, None) => (Token::Name { name: inside, part: None }, inside),
    };
    if is_identifier(name) {
        Ok(token)
    } else {
        Err(format!("`{{{inside}}}` holds no name; a plain brace is written twice: `{{{{`"))
    }
}

/// Returns whether `text` can name a tool or a parameter: letters, digits and `_`, not beginning
/// with a digit.
pub fn is_identifier(text: &str) -> bool {
    let first_fits = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    first_fits && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_splits_into_text_and_names() {
        let text = |text: &str| Token::Text(text.to_owned());
        assert_eq!(tokens(""), Ok(vec![]));
        assert_eq!(tokens("a{{b}}c"), Ok(vec![text("a{b}c")]));
        assert_eq!(
            tokens("-d={p.stem}x{flag?--go fast}"),
            Ok(vec![
                text("-d="),
                Token::Name { name: "p", part: Some("stem") },
                text("x"),
                Token::Conditional { name: "flag", text: "--go fast" },
            ])
        );
    }

    #[test]
    fn braces_that_do_not_match_are_refused() {
        for wrong in ["{", "}", "{p", "p}", "{}", "{a b}", "{p{q}}", "{1}", "{?x}", "{.stem}"] {
            assert!(tokens(wrong).is_err(), "{wrong}");
        }
    }
}
