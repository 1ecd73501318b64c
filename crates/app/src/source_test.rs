//! Tests of loading a workflow from its files.

use super::*;
use crate::args::SourceArgs;

const TOOLS: &str = r#"
version = 1
[tools.Copy]
command = ["cp", "{from}", "{to}"]
inputs.from = {}
outputs.to = { extension = ".txt" }
"#;
const SCRIPT: &str = "var n = 1;\nfor (var i = 0; i < n; i++)\n  \
    Copy({from: Data.get('Poem'), to: Data.define('Copy' + i)});\n";
const DESCRIPTOR: &str = r#"{"tidemill_flow": 1, "name": "empty", "tools": [], "elements": [], "tasks": []}"#;

/// Directory of a workflow: a script, a tool file and a data directory.
struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        fs::create_dir(project.path("data")).unwrap();
        project.write("w.js", SCRIPT);
        project.write("tools.toml", TOOLS);
        project.write("data/Poem.txt", "the tide");
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    fn args(&self, workflow: &str) -> SourceArgs {
        SourceArgs {
            workflow: self.path(workflow),
            tools: None,
            data: Some(self.path("data")),
            sets: Vec::new(),
            swift: SwiftArgs::default(),
        }
    }

    fn load(&self, args: &SourceArgs) -> Result<LoadedWorkflow, String> {
        let written = [self.path("data/out")];
        load(args, &[written[0].as_path()])
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    fn refusal(&self, args: &SourceArgs) -> String {
        self.load(args).expect_err("it was loaded")
    }
}

#[test]
fn a_script_is_loaded_with_the_tools_beside_it_and_the_inputs_of_its_data_directory() {
    let project = Project::new();
    let loaded = project.load(&project.args("w.js")).unwrap();
    assert_eq!((loaded.language, loaded.tools.as_deref()), ("js4cloud", Some(&*project.path("tools.toml"))));
    assert_eq!(loaded.data_dir, project.path("data").canonicalize().unwrap());
    assert_eq!(loaded.flow.workflow().tasks.len(), 1);
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn a_set_replaces_the_first_value_of_a_variable() {
    let project = Project::new();
    let args = SourceArgs { sets: vec!["n=3".to_owned()], ..project.args("w.js") };
    let loaded = project.load(&args).unwrap();
    assert_eq!(loaded.flow.workflow().tasks.len(), 3);
    assert_eq!(loaded.sets, [("n".to_owned(), ConfigValue::Integer(3))]);
    let unknown = SourceArgs { sets: vec!["m=3".to_owned()], ..project.args("w.js") };
    assert!(project.refusal(&unknown).contains('m'));
}

#[test]
fn a_named_tool_file_is_read_in_place_of_the_default() {
    let project = Project::new();
    project.write("other.toml", TOOLS.replace("Copy", "Duplicate"));
    let args = SourceArgs { tools: Some(project.path("other.toml")), ..project.args("w.js") };
    assert!(project.refusal(&args).contains("Copy"), "the tool is not in that file");
    fs::remove_file(project.path("tools.toml")).unwrap();
    assert!(project.refusal(&project.args("w.js")).contains("Copy"), "no tool file is read");
}

#[test]
fn a_refusal_names_the_file_and_what_is_wrong_with_it() {
    let project = Project::new();
    project.write("broken.json", "{");
    project.write("broken.js", "var = 1;");
    project.write("latin1.js", b"// caf\xe9");
    project.write("broken.toml", "version = ");
    let missing_tools = SourceArgs { tools: Some(project.path("none.toml")), ..project.args("w.js") };
    let broken_tools = SourceArgs { tools: Some(project.path("broken.toml")), ..project.args("w.js") };
    let missing_data = SourceArgs { data: Some(project.path("none")), ..project.args("w.js") };
    let file_as_data = SourceArgs { data: Some(project.path("w.js")), ..project.args("w.js") };
    let cases = [
        (project.args("none.js"), "none.js: No such file"),
        (project.args("data"), "data: Is a directory"),
        (project.args("broken.json"), "broken.json"),
        (project.args("broken.js"), "broken.js:1"),
        (project.args("latin1.js"), "latin1.js: byte 6 is not UTF-8 text"),
        (missing_tools, "none.toml: No such file"),
        (broken_tools, "broken.toml"),
        (missing_data, "none: No such file"),
        (file_as_data, "w.js: not a directory"),
    ];
    for (args, expected) in cases {
        let refusal = project.refusal(&args);
        assert!(refusal.contains(expected), "{expected}: {refusal}");
    }
}

#[test]
fn a_descriptor_is_known_by_its_content_or_its_name_and_takes_no_flags_of_scripts() {
    let project = Project::new();
    for name in ["d.json", "d.txt"] {
        project.write(name, DESCRIPTOR);
        let loaded = project.load(&project.args(name)).unwrap();
        assert_eq!((loaded.language, loaded.tools), ("json", None), "{name}");
        assert_eq!(loaded.warnings.len(), 1);
        assert!(loaded.warnings[0].ends_with("the workflow has 0 tasks: `tasks` is empty"), "{:?}", loaded.warnings);
    }
    project.write("d.JSON", SCRIPT);
    assert!(project.refusal(&project.args("d.JSON")).contains("d.JSON"), "a script with this name is no JSON");
    let set = SourceArgs { sets: vec!["n=1".to_owned()], ..project.args("d.json") };
    assert!(project.refusal(&set).starts_with("--set n: a descriptor has no variables"));
    let tools = SourceArgs { tools: Some(project.path("tools.toml")), ..project.args("d.json") };
    assert!(project.refusal(&tools).contains("a descriptor brings its own tools"));
}

#[test]
fn a_script_without_tasks_is_loaded_with_a_warning() {
    let project = Project::new();
    project.write("idle.js", "var n = 1;");
    let loaded = project.load(&project.args("idle.js")).unwrap();
    assert!(loaded.warnings[0].ends_with("idle.js: the workflow has 0 tasks: the script calls no tool"));
}

#[test]
fn files_in_directories_that_the_run_writes_are_no_inputs_by_pattern_but_by_full_name() {
    let project = Project::new();
    fs::create_dir(project.path("data/out")).unwrap();
    project.write("data/out/Old.txt", "");
    project.write("by-name.js", "Copy({from: Data.get('Old'), to: Data.define('A')});");
    project.write("by-full-name.js", "Copy({from: Data.get('out/Old.txt'), to: Data.define('A')});");
    assert!(project.refusal(&project.args("by-name.js")).contains("no file `Old`"));
    let loaded = project.load(&project.args("by-full-name.js")).unwrap();
    assert_eq!(loaded.flow.workflow().elements.len(), 2);
}

#[test]
fn an_unusable_name_in_the_data_directory_is_a_warning_only_for_scripts_that_search_it() {
    let project = Project::new();
    project.write("data/two\nlines", "");
    let warned = project.load(&project.args("w.js")).unwrap().warnings;
    assert!(warned.len() == 1 && warned[0].contains("two\\nlines is not an input"), "{warned:?}");
    project.write("idle.js", "var n = 1;");
    assert_eq!(project.load(&project.args("idle.js")).unwrap().warnings.len(), 1, "only that it has no tasks");
}
