//! report.html: the code of `web/report`, its style sheet and run.json in one self-contained file.
//!
//! The page's modules are ES modules, so that Node can test those that compute. In the page each
//! module becomes a function that returns its exports. This requires that an import is one line,
//! and that exports are declarations.
//!
//! No data of the run is ever treated as HTML: it is JSON in a script element that the browser does
//! not execute, with every `<` escaped. If a view had a bug that made HTML of it, the page's
//! content security policy would still run no handler and load nothing.

use crate::RunReport;
use std::io::{self, Write};

const TEMPLATE: &str = include_str!("../../../web/report/page.html");
const STYLE: &str = include_str!("../../../web/report/style.css");

macro_rules! modules {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("../../../web/report/", $name, ".js")))),*] };
}

/// The modules, each after those that it imports.
const MODULES: [(&str, &str); 25] = modules!["format" "model" "lanes" "scale" "layers" "rows" "dom" "paint" "theme" "card"
    "nodes" "facts" "stacked" "timeline" "curves" "network" "grid" "drawer" "failures" "critical" "causes" "summary" "tables"
    "tools" "main"];

/// Renders report.html for `run`: one file, which opens without a network and without a server.
pub fn html(run: &RunReport) -> String {
    let mut page = Vec::new();
    write_html(run, &mut page).expect("memory takes it");
    String::from_utf8(page).expect("the page is text")
}

/// Writes the page of [`html`].
///
/// # Errors
/// Those of `out`.
pub fn write_html(run: &RunReport, out: &mut dyn Write) -> io::Result<()> {
    let mut rest = TEMPLATE;
    // In one pass, so that inserted text is never searched for placeholders.
    for place in ["{style}", "{run}", "{script}"] {
        let (before, after) = rest.split_once(place).expect("the template has each place, in this order");
        out.write_all(before.as_bytes())?;
        match place {
            "{style}" => out.write_all(STYLE.as_bytes())?,
            "{run}" => run.write_json(&mut ScriptText { out })?,
            _ => out.write_all(script().as_bytes())?,
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// Writes text within a script of a page: `<` is written by its number, so that nothing ends the
/// script.
struct ScriptText<'a> {
    out: &'a mut dyn Write,
}

impl Write for ScriptText<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        for (number, part) in bytes.split(|byte| *byte == b'<').enumerate() {
            if number > 0 {
                self.out.write_all(b"\\u003c")?;
            }
            self.out.write_all(part)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// All modules as one script.
fn script() -> String {
    MODULES.iter().map(|(name, source)| wrap_module(name, source)).collect()
}

/// Wraps a module as `const $name = (() => { source; return { its exports }; })();`.
fn wrap_module(name: &str, source: &str) -> String {
    let mut exports = Vec::new();
    let lines = source.lines().map(|line| {
        if let Some(import) = line.strip_prefix("import ") {
            return import_binding(import);
        }
        let Some(declaration) = line.strip_prefix("export ") else { return line.to_owned() };
        exports.push(exported_name(declaration));
        declaration.to_owned()
    });
    let body: Vec<String> = lines.filter(|line| !line.trim_start().starts_with("//")).collect();
    format!("const ${name} = (() => {{\n{}\nreturn {{ {} }};\n}})();\n", body.join("\n"), exports.join(", "))
}

/// Translates `{ a, b } from "./x.js";` to `const { a, b } = $x;`, and `* as words from ...` to
/// `const words = ...`.
fn import_binding(import: &str) -> String {
    let (names, from) = import.split_once(" from ").expect("an import names its module on its own line");
    let module = from.trim_start_matches("\"./").trim_end_matches(".js\";");
    format!("const {} = ${module};", names.trim_start_matches("* as "))
}

/// The name that `function name(...` or `const name = ...` declares.
fn exported_name(declaration: &str) -> &str {
    let after = declaration.split_once(' ').map_or(declaration, |(_, after)| after);
    after.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_become_functions_that_answer_their_exports() {
        let source = "// what\nimport { a } from \"./x.js\";\nimport * as words from \"./y.js\";\nexport function f(b) {\n  return a;\n}\nexport const C = 1;\n";
        let script = wrap_module("m", source);
        assert!(
            script.starts_with("const $m = (() => {\nconst { a } = $x;\nconst words = $y;\nfunction f(b) {"),
            "{script}"
        );
        assert!(script.ends_with("const C = 1;\nreturn { f, C };\n})();\n"), "{script}");
    }

    #[test]
    fn every_module_comes_after_those_it_imports() {
        for (at, (name, source)) in MODULES.iter().enumerate() {
            for import in source.lines().filter(|line| line.starts_with("import ")) {
                let known = MODULES[..at].iter().any(|(before, _)| import.ends_with(&format!("\"./{before}.js\";")));
                assert!(known, "{name}: {import}");
            }
        }
    }

    #[test]
    fn nothing_in_the_run_ends_the_element_it_is_in() {
        let hostile = "</script><script>alert(1)</script><!--{script}{style}".to_owned();
        let mut run = RunReport { id: hostile.clone(), ..RunReport::default() };
        run.workflow.name = hostile;
        let page = html(&run);
        let embedded = page.split_once("id=\"run\">").unwrap().1.split_once("</script>").unwrap().0;
        assert_eq!(serde_json::from_str::<RunReport>(embedded).unwrap(), run);
        assert_eq!(page.matches("</script>").count(), TEMPLATE.matches("</script>").count());
    }

    #[test]
    fn the_page_asks_for_nothing_from_outside() {
        let page = html(&RunReport::default());
        for outside in ["http://", "https://", "url(", "@import", "src="] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
