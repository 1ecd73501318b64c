//! Tokens: the words and marks of a script.

use crate::source::Span;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub enum SwiftToken {
    /// A name or a keyword.
    Word(Arc<str>),
    /// A whole number.
    Int(i64),
    /// A number with a point, `NaN` or `inf`.
    Float(f64),
    /// A string, without its quotes and escapes.
    Text(Arc<str>),
    /// Anything else.
    Mark(Mark),
    /// A line of the preprocessor, without its `#`; the text behind the directive's word starts at
    /// the offset.
    Directive {
        /// The word, for example `include`.
        word: Arc<str>,
        /// The rest of the line.
        rest: Arc<str>,
        /// The offset of the rest in its text.
        at: u32,
    },
    /// The end of the text.
    End,
}

/// A token with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Lexeme {
    /// The token.
    pub token: SwiftToken,
    /// The position. That of a token from a macro is the macro's use.
    pub span: Span,
}

impl SwiftToken {
    /// Returns whether this is the word.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(found) if **found == *word)
    }
}

impl Display for SwiftToken {
    /// The token as messages quote it.
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Int(number) => write!(f, "`{number}`"),
            Self::Float(number) => write!(f, "`{number}`"),
            Self::Text(_) => f.write_str("a string"),
            Self::Mark(mark) => write!(f, "`{}`", mark.text()),
            Self::Directive { word, .. } => write!(f, "`#{word}`"),
            Self::End => f.write_str("the end of the script"),
        }
    }
}

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A mark: an operator or punctuation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Mark { $($name,)* }

        impl Mark {
            /// All marks; one that begins with another comes before it.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The mark as it is written.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

marks! {
    Ellipsis = "...",
    IntegerDivide = "%/",
    Modulo = "%%",
    Power = "**",
    Append = "+=",
    Chain = "=>",
    Equal = "==",
    NotEqual = "!=",
    AtLeast = ">=",
    AtMost = "<=",
    And = "&&",
    Or = "||",
    Update = ":=",
    Plus = "+",
    Minus = "-",
    Times = "*",
    Divide = "/",
    Percent = "%",
    Assign = "=",
    Not = "!",
    Greater = ">",
    Less = "<",
    OpenParenthesis = "(",
    CloseParenthesis = ")",
    OpenBrace = "{",
    CloseBrace = "}",
    OpenBracket = "[",
    CloseBracket = "]",
    Comma = ",",
    Semicolon = ";",
    Colon = ":",
    Dot = ".",
    At = "@",
    Bar = "|",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_begins_with_another_is_tried_before_it() {
        for (position, mark) in Mark::ALL.iter().enumerate() {
            let hidden = Mark::ALL[..position].iter().find(|before| mark.text().starts_with(before.text()));
            assert_eq!(hidden, None, "{mark:?}");
        }
    }
}
