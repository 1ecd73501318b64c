//! Preprocessor: included files, macros and conditions, as the C preprocessor has them.
//!
//! It works on tokens, so that every token keeps its place. Not supported: `#` and `##` in the
//! bodies of macros, which make strings and words of their arguments.

mod conditions;
mod macros;

use crate::lexer::{Lexer, lex};
use crate::source::{SourceId, Sources, Span};
use crate::token::{Lexeme, SwiftToken};
use base::Problem;
use conditions::Conditions;
use macros::Macros;
use std::sync::Arc;

/// Included files within included files.
const DEPTH_MAX: usize = 100;
/// The number of tokens of a program. It bounds macros that multiply.
const TOKENS_MAX: usize = 1_000_000;

/// The files that a script includes and imports.
pub trait ScriptFiles {
    /// The text of a file; `None` if there is no such file.
    ///
    /// # Errors
    /// The reason why the file cannot be read, in words.
    fn read(&self, path: &str) -> Option<Result<String, String>>;
}

/// A file that is included or imported, as it was found.
pub fn find_file(
    files: &dyn ScriptFiles,
    directories: &[String],
    name: &str,
) -> Option<Result<(String, String), Problem>> {
    let paths = directories.iter().map(|directory| join(directory, name));
    paths.into_iter().find_map(|path| {
        let text = files.read(&path)?;
        let refused = |why| Problem::new(format!("{path} cannot be read: {why}"));
        Some(text.map(|text| (path.clone(), text)).map_err(refused))
    })
}

/// The path of a file in a directory; the empty one is where the program runs.
fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() || name.starts_with('/') {
        return name.to_owned();
    }
    format!("{}/{name}", directory.trim_end_matches('/'))
}

/// The directory of a file; empty if its name has none.
pub fn directory_of(file: &str) -> String {
    file.rsplit_once('/')
        .map(|(directory, _)| if directory.is_empty() { "/" } else { directory })
        .unwrap_or_default()
        .to_owned()
}

/// The preprocessor of a program: macros hold for the files that come later.
pub struct Preprocessor<'a> {
    files: &'a dyn ScriptFiles,
    /// The directories in which included files are searched for.
    search: &'a [String],
    macros: Macros,
    output: Vec<Lexeme>,
    depth: usize,
}

impl<'a> Preprocessor<'a> {
    /// A preprocessor that knows these macros: names with the text that stands for them (`-D`).
    ///
    /// # Errors
    /// The first text that has no tokens of Swift.
    pub fn new(
        files: &'a dyn ScriptFiles,
        search: &'a [String],
        defines: &[(String, String)],
        sources: &mut Sources,
    ) -> Result<Self, Problem> {
        let mut macros = Macros::default();
        for (name, value) in defines {
            let source = sources.add("the command line", value)?;
            macros.define_value(name, &lex(sources, source)?);
        }
        Ok(Self { files, search, macros, output: Vec::new(), depth: 0 })
    }

    /// The tokens of a file; the last one is [`SwiftToken::End`].
    ///
    /// # Errors
    /// The first problem.
    pub fn tokens_of(&mut self, source: SourceId, sources: &mut Sources) -> Result<Vec<Lexeme>, Problem> {
        let end = self.file(source, sources)?;
        let mut tokens = std::mem::take(&mut self.output);
        tokens.push(end);
        Ok(tokens)
    }

    /// Appends the tokens of a file, and returns its end.
    fn file(&mut self, source: SourceId, sources: &mut Sources) -> Result<Lexeme, Problem> {
        let mut lexer = Lexer::new(sources, source);
        let mut conditions = Conditions::default();
        // The tokens between two directives: the arguments of a macro end before the next one.
        let mut part = Vec::new();
        loop {
            if !conditions.is_active() {
                lexer.skip_to_directive();
            }
            let lexeme = lexer.next(sources)?;
            match &lexeme.token {
                SwiftToken::Directive { word, rest, at } => {
                    self.expand(std::mem::take(&mut part), sources)?;
                    let line = DirectiveLine { word, rest, start: Span { offset: *at, ..lexeme.span } };
                    self.directive(&line, lexeme.span, &mut conditions, sources)?;
                }
                SwiftToken::End => {
                    self.expand(part, sources)?;
                    return conditions.end(sources).map(|()| lexeme);
                }
                _ => part.push(lexeme),
            }
        }
    }

    fn expand(&mut self, part: Vec<Lexeme>, sources: &Sources) -> Result<(), Problem> {
        self.macros.expand(part, &mut self.output, sources)?;
        match self.output.last().filter(|_| self.output.len() > TOKENS_MAX) {
            Some(last) => Err(sources.problem(last.span, format!("the script has more than {TOKENS_MAX} words"))),
            None => Ok(()),
        }
    }

    fn directive(
        &mut self,
        line: &DirectiveLine<'_>,
        span: Span,
        conditions: &mut Conditions,
        sources: &mut Sources,
    ) -> Result<(), Problem> {
        if conditions.directive(line, span, &self.macros, sources)? || !conditions.is_active() {
            return Ok(());
        }
        match line.word {
            "define" => self.macros.define(line, sources),
            "undef" => self.macros.undefine(line, sources),
            "include" => self.include(line, span, sources),
            "error" => Err(sources.problem(span, format!("#error{}", line.rest.trim_end()))),
            // `warning` and `pragma` say nothing about the program.
            _ => Ok(()),
        }
    }

    fn include(&mut self, line: &DirectiveLine<'_>, span: Span, sources: &mut Sources) -> Result<(), Problem> {
        let name = line.rest.trim();
        let quoted = name.strip_prefix('"').and_then(|name| name.split_once('"'));
        let angled = name.strip_prefix('<').and_then(|name| name.split_once('>'));
        let Some((name, _)) = quoted.or(angled) else {
            let hint = "write #include \"file.swift\" or #include <file.swift>";
            return Err(sources.problem(span, "#include needs the name of a file").hint(hint));
        };
        let beside = quoted.is_some().then(|| directory_of(sources.name(span.source)));
        let directories: Vec<String> = beside.into_iter().chain(self.search.iter().cloned()).collect();
        let Some(found) = find_file(self.files, &directories, name) else {
            let message = format!("there is no file `{name}` to include");
            return Err(sources.problem(span, message).hint("-I DIRECTORY names more directories to search"));
        };
        let (path, text) = found.map_err(|problem| problem.at(sources.location(span)))?;
        if self.depth >= DEPTH_MAX {
            let message = format!("files include each other more than {DEPTH_MAX} deep");
            return Err(sources.problem(span, message).hint("does a file include itself?"));
        }
        let source = sources.add(&path, &text).map_err(|problem| problem.at(sources.location(span)))?;
        self.depth += 1;
        let included = self.file(source, sources);
        self.depth -= 1;
        included.map(drop)
    }
}

/// A line of the preprocessor.
struct DirectiveLine<'a> {
    word: &'a str,
    /// The text behind the word.
    rest: &'a Arc<str>,
    /// The position of that text.
    start: Span,
}

impl DirectiveLine<'_> {
    /// The tokens of the text behind the word.
    fn tokens(&self, sources: &Sources) -> Result<Vec<Lexeme>, Problem> {
        let end = self.start.offset + u32::try_from(self.rest.len()).expect("texts are shorter");
        crate::lexer::lex_part(sources, self.start.source, (self.start.offset, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    impl ScriptFiles for BTreeMap<&str, &str> {
        fn read(&self, path: &str) -> Option<Result<String, String>> {
            self.get(path).map(|text| Ok((*text).to_owned()))
        }
    }

    fn preprocess(files: &[(&str, &str)]) -> Result<String, String> {
        let files: BTreeMap<&str, &str> = files.iter().copied().collect();
        let mut sources = Sources::default();
        let source = sources.add("main.swift", files["main.swift"]).expect("short");
        let (search, defines) = (["lib".to_owned()], [("FAST".to_owned(), "2".to_owned())]);
        let mut preprocessor = Preprocessor::new(&files, &search, &defines, &mut sources).expect("right");
        let tokens = preprocessor.tokens_of(source, &mut sources).map_err(|problem| problem.to_string())?;
        let words = tokens.iter().map(|lexeme| lexeme.token.to_string().replace('`', ""));
        Ok(words.take(tokens.len() - 1).collect::<Vec<_>>().join(" "))
    }

    fn main(text: &str) -> Result<String, String> {
        preprocess(&[("main.swift", text)])
    }

    #[test]
    fn macros_stand_for_their_bodies_but_not_for_themselves() {
        assert_eq!(main("#define N 3 + M\n#define M 4 // four\nx = N;").as_deref(), Ok("x = 3 + 4 ;"));
        assert_eq!(main("#define X X + 1\nX;").as_deref(), Ok("X + 1 ;"));
        assert_eq!(main("#define A B\n#define B A\nA;").as_deref(), Ok("A ;"));
        assert_eq!(main("#define N 1\n#undef N\nN FAST;").as_deref(), Ok("N 2 ;"));
    }

    #[test]
    fn macros_take_arguments() {
        let text = "#define ADD(a, b) (a + b)\n#define TWO(x) ADD(x, x)\nTWO(f(1, 2)); ADD;";
        assert_eq!(main(text).as_deref(), Ok("( f ( 1 , 2 ) + f ( 1 , 2 ) ) ; ADD ;"));
        assert_eq!(main("#define ONE() 1\n#define NO (2)\nONE() NO").as_deref(), Ok("1 ( 2 )"));
        let error = main("#define ADD(a, b) a\nADD(1);").expect_err("one is missing");
        assert!(error.starts_with("main.swift:2:1: the macro `ADD` takes 2 arguments, and has 1"), "{error}");
        let error = main("#define ADD(a, b) a\nADD(1, 2").expect_err("no end");
        assert!(error.starts_with("main.swift:2:1: the arguments of the macro `ADD` have no end"), "{error}");
        let error = main("#define S(a) #a\n").expect_err("not supported");
        assert!(error.starts_with("main.swift:1:14: "), "{error}");
    }

    #[test]
    fn macros_that_multiply_are_bounded() {
        let lines: Vec<String> = (1..40).map(|k| format!("#define M{k} M{} M{}\n", k - 1, k - 1)).collect();
        let doubled = lines.concat();
        assert!(main(&format!("{doubled}M39;")).is_err_and(|error| error.contains("more than")));
    }

    #[test]
    fn conditions_choose_lines() {
        let choose = |condition: &str| main(&format!("#{condition}\na\n#elif FAST > 1\nb\n#else\nc\n#endif\nd"));
        assert_eq!(choose("ifdef FAST").as_deref(), Ok("a d"));
        assert_eq!(choose("ifndef FAST").as_deref(), Ok("b d"));
        assert_eq!(choose("if defined(FAST) && !(FAST == 3 || 0)").as_deref(), Ok("a d"));
        assert_eq!(choose("if defined OTHER").as_deref(), Ok("b d"));
        let nested = "#if 0\n#if 1\na\n#else\nb\n#endif\n#error never\n#include \"none\"\n#else\nc\n#endif";
        assert_eq!(main(nested).as_deref(), Ok("c"));
        assert_eq!(main("#if 0\nit isn't \"Swift\n #endif\na").as_deref(), Ok("a"), "other lines may have anything");
    }

    #[test]
    fn conditions_without_their_other_end_are_refused() {
        let error = |text| main(text).expect_err("wrong").lines().next().map(str::to_owned).unwrap_or_default();
        assert_eq!(error("a\n#ifdef X\nb"), "main.swift:2:1: this #ifdef has no #endif");
        assert_eq!(error("a\n#endif"), "main.swift:2:1: #endif without #if");
        assert_eq!(error("#if 1\n#else\n#else\n#endif"), "main.swift:3:1: #else after #else");
        assert_eq!(error("#if 1 +\n#endif"), "main.swift:1:1: the condition of #if ends too early");
        assert_eq!(error("#if 1 / 0\n#endif"), "main.swift:1:1: the condition of #if divides by zero");
        assert_eq!(error("#error too old"), "main.swift:1:1: #error too old");
    }

    #[test]
    fn files_are_included_from_beside_or_from_the_search_path() {
        let files = [
            ("main.swift", "#include \"sub/a.swift\"\n#include <b.swift>\nmain"),
            ("sub/a.swift", "#include \"c.swift\"\na"),
            ("sub/c.swift", "c"),
            ("lib/b.swift", "#ifndef B\n#define B\nb\n#include <b.swift>\n#endif"),
        ];
        assert_eq!(preprocess(&files).as_deref(), Ok("c a b main"));
        let error = main("#include \"none.swift\"").expect_err("it is not there");
        assert!(error.starts_with("main.swift:1:1: there is no file `none.swift` to include"), "{error}");
        let error = main("#include \"main.swift\"").expect_err("it has no end");
        assert!(error.contains("files include each other more than 100 deep"), "{error}");
    }
}
