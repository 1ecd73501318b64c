//! The syntax trees of texts, and the problems of those that have none.

use super::*;
use crate::ast::*;
use crate::lexer::lex;

fn module(text: &str) -> Result<SwiftModule, Vec<String>> {
    let mut sources = Sources::default();
    let source = sources.add("s.swift", text).expect("short");
    let tokens = lex(&sources, source).map_err(|problem| vec![problem.to_string()])?;
    parse(&tokens, &sources).map_err(|problems| problems.iter().map(Problem::to_string).collect())
}

fn only(text: &str) -> StatementKind {
    let mut module = module(text).unwrap_or_else(|problems| panic!("{}", problems.join("\n")));
    assert_eq!(module.statements.len(), 1, "{module:?}");
    module.statements.remove(0).kind
}

/// The first lines of the problems of a text.
fn problems(text: &str) -> Vec<String> {
    let problems = module(text).expect_err("it has problems");
    problems.iter().map(|problem| problem.lines().next().unwrap_or_default().to_owned()).collect()
}

/// The whole problems of a text.
fn all_problems(text: &str) -> Vec<String> {
    module(text).expect_err("it has problems")
}

/// An expression with all its parentheses.
fn shown(expression: &Expression) -> String {
    let list = |all: &[Expression]| all.iter().map(shown).collect::<Vec<_>>().join(", ");
    match &expression.kind {
        ExpressionKind::Int(number) => number.to_string(),
        ExpressionKind::Float(number) => format!("{number:?}"),
        ExpressionKind::Boolean(value) => value.to_string(),
        ExpressionKind::Text(text) => format!("{text:?}"),
        ExpressionKind::Variable(name) => name.to_string(),
        ExpressionKind::Call(call) => {
            let annotations = call.annotations.iter().map(|annotation| {
                let value = annotation.value.as_ref().map(|value| format!("={}", shown(value))).unwrap_or_default();
                format!("@{}{value} ", annotation.name.text)
            });
            let arguments = call.arguments.iter().map(|(name, value)| {
                let name = name.as_ref().map(|name| format!("{}=", name.text)).unwrap_or_default();
                format!("{name}{}", shown(value))
            });
            let arguments = arguments.collect::<Vec<_>>().join(", ");
            format!("{}{}({arguments})", annotations.collect::<String>(), call.function.text)
        }
        ExpressionKind::Unary(operator, inner) => format!("({operator:?} {})", shown(inner)),
        ExpressionKind::Binary(operator, both) => format!("({} {operator:?} {})", shown(&both.0), shown(&both.1)),
        ExpressionKind::Index(both) => format!("{}[{}]", shown(&both.0), shown(&both.1)),
        ExpressionKind::Field(inner, name) => format!("{}.{}", shown(inner), name.text),
        ExpressionKind::Array(values) => format!("[{}]", list(values)),
        ExpressionKind::Range { start, end, step } => {
            let step = step.as_ref().map(|step| format!(":{}", shown(step))).unwrap_or_default();
            format!("[{}:{}{step}]", shown(start), shown(end))
        }
        ExpressionKind::Map(members) => {
            let members = members.iter().map(|(index, value)| format!("{}: {}", shown(index), shown(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        ExpressionKind::Tuple(values) => format!("({})", list(values)),
    }
}

fn value(text: &str) -> String {
    match only(&format!("x = {text};")) {
        StatementKind::Assignment(AssignmentStatement { values, .. }) => shown(&values[0]),
        other => panic!("{other:?}"),
    }
}

/// A type as it is written.
fn type_text(type_: &TypeExpression) -> String {
    let named = |named: &NamedType| {
        let parameter = named.parameter.as_ref().map(|inner| format!("<{}>", type_text(inner))).unwrap_or_default();
        format!("{}{parameter}", named.name.text)
    };
    let alternatives = type_.alternatives.iter().map(named).collect::<Vec<_>>().join("|");
    let indices = type_.indices.iter().map(|index| format!("[{}]", index.as_ref().map(type_text).unwrap_or_default()));
    format!("{alternatives}{}", indices.collect::<String>())
}

fn parameter_texts(parameters: &[Parameter]) -> String {
    let text = |parameter: &Parameter| {
        let dots = if parameter.is_variadic { "..." } else { "" };
        let default = parameter.default.as_ref().map(|value| format!("={}", shown(value))).unwrap_or_default();
        format!("{}{dots} {}{default}", type_text(&parameter.type_), parameter.name.text)
    };
    parameters.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[test]
fn operators_bind_as_in_swift_t() {
    assert_eq!(value("a + b * c ** d"), "(a Add (b Multiply (c Power d)))");
    assert_eq!(value("a - b - c"), "((a Subtract b) Subtract c)");
    assert_eq!(value("-a ** b ** c"), "(((Negate a) Power b) Power c)");
    assert_eq!(value("a || b && c == d < e"), "(a Or (b And (c Equal (d Less e))))");
    assert_eq!(value("a %/ b %% c"), "((a IntegerDivide b) Modulo c)");
    assert_eq!(value("!(a <= b)"), "(Not (a AtMost b))");
    assert_eq!(value("\"%i %s\" % (n, s)"), "(\"%i %s\" Format (n, s))");
    assert_eq!(value("dir / \"x\" + y"), "((dir Divide \"x\") Add y)");
}

#[test]
fn values_of_all_forms_are_read() {
    assert_eq!(value("A[i][\"k\"].name"), "A[i][\"k\"].name");
    assert_eq!(value("[0:n-1:2]"), "[0:(n Subtract 1):2]");
    assert_eq!(value("[[1, 2], []]"), "[[1, 2], []]");
    assert_eq!(value("{\"a\": 1, \"b\": f(2)}"), "{\"a\": 1, \"b\": f(2)}");
    assert_eq!(value("f(1, y=2.0, true)"), "f(1, y=2.0, true)");
    assert_eq!(value("@prio=i+1 @location=L f(i)"), "@prio=(i Add 1) @location=L f(i)");
    assert_eq!(value("@filename(f)"), "filename(f)");
    assert_eq!(value("-1"), "(Negate 1)");
}

#[test]
fn declarations_have_types_arrays_mappings_and_values() {
    let StatementKind::Declaration(found) = only("file a<\"d/\"+n>, b[string][], c<\"x\">=f(), d = g();") else {
        panic!("a declaration")
    };
    let texts = found.variables.iter().map(|variable| {
        let (mapping, value) = (variable.mapping.as_ref().map(shown), variable.value.as_ref().map(shown));
        format!("{} {} {mapping:?} {value:?}", type_text(&variable.type_), variable.name.text)
    });
    let expected = [
        r#"file a Some("(\"d/\" Add n)") None"#,
        "file[string][] b None None",
        r#"file c Some("\"x\"") Some("f()")"#,
        r#"file d None Some("g()")"#,
    ];
    assert_eq!(texts.collect::<Vec<_>>(), expected);
    assert!(matches!(only("bag<int> b[];"), StatementKind::Declaration(_)));
    assert!(matches!(
        only("global const float PI = 3.14;"),
        StatementKind::Declaration(Declaration { is_constant: true, .. })
    ));
}

#[test]
fn assignments_have_one_or_several_targets() {
    let StatementKind::Assignment(found) = only("(a, A[i].x) = f();") else { panic!("an assignment") };
    assert_eq!((found.targets.len(), found.targets[1].path.len(), found.appends), (2, 2, false));
    let StatementKind::Assignment(found) = only("a, b = 1, 2;") else { panic!("an assignment") };
    assert_eq!((found.targets.len(), found.values.len()), (2, 2));
    assert!(matches!(only("A += x;"), StatementKind::Assignment(AssignmentStatement { appends: true, .. })));
}

#[test]
fn functions_are_told_from_calls_by_what_follows_their_parentheses() {
    let StatementKind::Function(found) = only("<T> (int n, T o[]) f (int|float... v, string s=\"a\") { n = 1; }")
    else {
        panic!("a function")
    };
    assert_eq!(parameter_texts(&found.outputs), "int n, T[] o");
    assert_eq!(parameter_texts(&found.inputs), "int|float... v, string s=\"a\"");
    assert_eq!(found.body.map(|body| body.statements.len()), Some(1));
    for text in [
        "f (int x) { }",
        "() f (int x) { }",
        "main { }",
        "@pure (int o) f (int i) \"pkg\" \"1.0\" [ \"set\" ];",
        "(int o) f () \"pkg\" \"1\" \"g\";",
    ] {
        assert!(matches!(only(text), StatementKind::Function(_)), "{text}");
    }
    assert!(matches!(only("f(x);"), StatementKind::Expression(_)));
    assert!(matches!(only("@prio=1 f(x);"), StatementKind::Expression(_)));
}

#[test]
fn app_functions_have_words_and_streams() {
    let text = "@suppress=unused_output app (file o, void v) f (file i[], int n) { \"cat\" \"-n\" n -1 (n+1) i @i @stdin=i @stdout=o; }";
    let StatementKind::App(found) = only(text) else { panic!("an app function") };
    let words = found.command.iter().map(|word| match word {
        AppWord::Value(value) => shown(value),
        AppWord::Path(name) => format!("@{}", name.text),
    });
    assert_eq!(words.collect::<Vec<_>>().join(" "), "\"cat\" \"-n\" n (Negate 1) (n Add 1) i @i");
    let streams: Vec<_> = found.streams.iter().map(|(stream, value)| (*stream, shown(value))).collect();
    assert_eq!(streams, [(StandardStream::Input, "i".into()), (StandardStream::Output, "o".into())]);
}

#[test]
fn control_structures_are_read() {
    assert!(matches!(only("if (a) { } else if (b) { } else { }"), StatementKind::If { otherwise: Some(_), .. }));
    let StatementKind::Switch { cases, .. } = only("switch (a) { case 1: x = 1; y = 2; case -2: default: x = 3; }")
    else {
        panic!("a switch")
    };
    let counts: Vec<_> = cases.iter().map(|(case, block)| (*case, block.statements.len())).collect();
    assert_eq!(counts, [(Some(1), 2), (Some(-2), 0), (None, 1)]);
    assert!(matches!(only("foreach v, i in A { }"), StatementKind::Foreach { index: Some(_), .. }));
    assert!(matches!(only("@async foreach v in [1:3] { }"), StatementKind::Foreach { index: None, .. }));
    let StatementKind::For { variables, updates, .. } = only("for (int i = 0, c = 1; i < n; i = i+1, c = d) { }")
    else {
        panic!("a for")
    };
    assert_eq!((variables.len(), updates.len()), (2, 2));
    assert!(matches!(only("iterate i { } until (i > 3)"), StatementKind::Iterate { .. }));
    assert!(matches!(only("wait deep (a, b) { }"), StatementKind::Wait { is_deep: true, .. }));
    assert!(matches!(only("{ int x; }"), StatementKind::Block(_)));
}

#[test]
fn statements_are_chained() {
    let StatementKind::Chain(first, rest) = only("sleep(1) => int y = g() => x => trace(y);") else {
        panic!("a chain")
    };
    assert!(matches!((first.kind, rest.kind), (StatementKind::Expression(_), StatementKind::Chain(..))));
    assert!(matches!(only("f() => { g(); }"), StatementKind::Chain(..)));
}

#[test]
fn types_and_modules_are_read() {
    let StatementKind::Struct { fields, .. } = only("type person { string name; int events[]; }") else {
        panic!("a struct")
    };
    assert_eq!(fields.len(), 2);
    assert!(matches!(only("type sorted file;"), StatementKind::Alias { is_same: false, .. }));
    assert!(matches!(only("typedef t file[string];"), StatementKind::Alias { is_same: true, .. }));
    assert!(matches!(only("import a.b;"), StatementKind::Import { path } if path.len() == 2));
    assert!(matches!(only("import \"dir/a\";"), StatementKind::Import { path } if path.len() == 1));
    assert!(matches!(only("pragma worktypedef a;"), StatementKind::Pragma));
    assert!(matches!(only("arguments(string name, int v=10);"), StatementKind::Arguments { are_flags: false, .. }));
    assert!(matches!(only("flags(1);"), StatementKind::Expression(_)), "the words may be functions");
}

#[test]
fn several_problems_are_told_at_once_each_with_its_place() {
    let text = "int x = ;\nfoo(1;\nif (a) {\n  y = 1 +;\n}\nz = 2\nw = 3;";
    let expected = [
        "s.swift:1:9: a value should be here, not `;`",
        "s.swift:2:6: `,` or `)` should be here, not `;`",
        "s.swift:4:10: a value should be here, not `;`",
        "s.swift:6:5: `;` is missing behind this, before `w`",
    ];
    assert_eq!(problems(text), expected);
}

#[test]
fn messages_say_what_should_be_there() {
    let first = |text: &str| problems(text).remove(0);
    assert_eq!(first("foreach i on A { }"), "s.swift:1:11: `in` should be here, not `on`");
    assert_eq!(
        first("int if = 1;"),
        "s.swift:1:5: `if` is a word of the language, and cannot be the name of a variable"
    );
    assert_eq!(first("{ x = 1;"), "s.swift:1:1: this `{` has no `}`");
    assert_eq!(first("}"), "s.swift:1:1: this `}` closes nothing");
    assert_eq!(first("app (file o) f () { }"), "s.swift:1:14: the app function `f` names no program");
    assert_eq!(first("app (file o) f (file i) { \"cat\" g(i) }"), "s.swift:1:33: `g` is followed by `(`");
    assert_eq!(first("x = ();"), "s.swift:1:5: there is nothing in these parentheses");
}

#[test]
fn depth_and_the_number_of_problems_are_bounded() {
    let deep = format!("x = {}1;", "(".repeat(5000));
    assert!(problems(&deep)[0].ends_with("blocks and expressions are nested more than 200 deep"));
    assert!(problems(&"{".repeat(5000))[0].ends_with("blocks and expressions are nested more than 200 deep"));
    assert_eq!(problems(&"x = ;\n".repeat(100)).len(), PROBLEMS_MAX);
}

#[test]
fn mistakes_on_a_command_line_are_told_once_with_their_remedy() {
    let remedy = |body: &str| {
        let problems = all_problems(&format!("app (file o) f(string s) {{ {body} }}\nint x = 1;"));
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems[0].lines().last().unwrap_or_default().trim().to_owned()
    };
    assert!(remedy("\"f\" s > o").ends_with("@stdout=f"));
    assert!(remedy("\"f\" \"-a=\" + s @stdout=o").ends_with("needs parentheses around it: (\"a\" + b)"));
    assert!(remedy("\"f\" filename(s) @stdout=o").ends_with("needs parentheses around it: (f(x))"));
    assert!(remedy("\"f\" s stdout=o").ends_with("@stdout=f"));
    assert!(remedy("\"f\" s | \"g\"").contains("\"sh\" \"-c\""));
}

#[test]
fn habits_of_other_languages_are_told_their_remedy() {
    assert!(all_problems("while (true) { }")[0].contains("iterate"));
    assert!(all_problems("int[] A = [1];")[0].contains("int A[]"));
}
