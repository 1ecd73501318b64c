//! Files of a script as data of the workflow.

use crate::host_files;
use flow::{DataId, Element, Source, TaskId};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use swift::{AppFile, ScriptFileId};

/// The directories of a script's files.
#[derive(Debug, Clone)]
pub struct FileDirectories {
    /// Relative paths of inputs start here.
    pub data: PathBuf,
    /// Mapped files are exported below it.
    pub out: PathBuf,
    /// Texts that the script writes, and does not map, lie here.
    pub texts: PathBuf,
}

/// A datum, and its file on this host if its bytes are there.
#[derive(Debug, Clone)]
pub struct ScriptDatum {
    /// The datum.
    pub data: DataId,
    /// The path of its bytes; `None` if a task writes them.
    pub host: Option<PathBuf>,
    /// The task that writes it.
    pub writer: Option<TaskId>,
}

/// The data of a script. What is new since the last [`ScriptData::take_new`] becomes part of the
/// workflow with the next step.
#[derive(Debug)]
pub struct ScriptData {
    directories: FileDirectories,
    /// The data of files that calls have named.
    known: HashMap<ScriptFileId, ScriptDatum>,
    /// The data of inputs, by path.
    inputs: HashMap<String, DataId>,
    /// The files of these inputs, without links.
    input_files: HashSet<PathBuf>,
    /// The files that the script writes, without links, each once.
    mapped: HashSet<PathBuf>,
    /// Files that no output may overwrite: the script and its parts, without links.
    reserved: HashSet<PathBuf>,
    /// Names of inputs and mapped files.
    names: HashSet<String>,
    next: u32,
    new: NewData,
}

/// Data that are not part of the workflow yet.
#[derive(Debug, Default)]
pub struct NewData {
    /// Elements, each with one member.
    pub elements: Vec<Element>,
    /// Members to export.
    pub exports: Vec<(DataId, PathBuf)>,
    /// Members that no later task reads.
    pub sealed: Vec<DataId>,
}

impl ScriptData {
    /// No data. `reserved` are paths of the script and its parts.
    pub fn new(directories: FileDirectories, reserved: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            directories,
            known: HashMap::new(),
            inputs: HashMap::new(),
            input_files: HashSet::new(),
            mapped: HashSet::new(),
            reserved: reserved.into_iter().map(|path| host_files::resolved(&path)).collect(),
            names: HashSet::new(),
            next: 0,
            new: NewData::default(),
        }
    }

    /// The directories.
    pub fn directories(&self) -> &FileDirectories {
        &self.directories
    }

    /// Takes what is new.
    pub fn take_new(&mut self) -> NewData {
        std::mem::take(&mut self.new)
    }

    /// The datum of a file that was written, or an input.
    pub fn read(&mut self, file: &AppFile) -> ScriptDatum {
        if let Some(known) = self.known.get(&file.id) {
            return known.clone();
        }
        let path = file.path.clone().unwrap_or_default();
        let data = self.input(&path);
        ScriptDatum { data, host: Some(self.directories.data.join(path)), writer: None }
    }

    /// Checks that a path names a file that can be an input, and that the script does not write it.
    /// No file can be mapped there from now on.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_input(&mut self, path: &str) -> Result<(), String> {
        host_files::check_input(&self.directories.data, path)?;
        let file = host_files::resolved(&self.directories.data.join(path));
        if self.mapped.contains(&file) {
            return Err(format!("`{path}` is a file that this script writes: use the file that is mapped to it"));
        }
        self.input_files.insert(file);
        Ok(())
    }

    /// The paths of the inputs that a pattern matches. Files that the script writes are left out.
    ///
    /// # Errors
    /// The pattern is not valid, or matches too much.
    pub fn matching(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let mut found = host_files::matching_files(&self.directories.data, pattern)?;
        found.retain(|path| {
            let file = host_files::resolved(&self.directories.data.join(path));
            let is_input = !self.mapped.contains(&file);
            if is_input {
                self.input_files.insert(file);
            }
            is_input
        });
        Ok(found)
    }

    /// The datum of an input.
    fn input(&mut self, path: &str) -> DataId {
        if let Some(data) = self.inputs.get(path) {
            return *data;
        }
        let name = self.free_name(path);
        let data = self.add(name, Source::Input(vec![path.into()]), None);
        self.inputs.insert(path.to_owned(), data);
        data
    }

    /// The datum of a file, if a call has named it.
    pub fn find(&self, file: ScriptFileId) -> Option<&ScriptDatum> {
        self.known.get(&file)
    }

    /// A new datum that a task of `app` writes. `taken` are the names of the other files in its
    /// directory.
    ///
    /// # Errors
    /// The file is mapped to a path that is not its own.
    pub fn write(
        &mut self,
        file: &AppFile,
        (app, writer): (&str, TaskId),
        taken: &mut HashSet<String>,
    ) -> Result<DataId, String> {
        let datum = |data| ScriptDatum { data, host: None, writer: Some(writer) };
        let Some(path) = &file.path else {
            let variable = if file.name.is_empty() { app } else { &file.name };
            let data = self.add(format!("{variable}~{}", self.next), Source::Defined, None);
            self.known.insert(file.id, datum(data));
            return Ok(data);
        };
        let target = self.map(path)?;
        let last = path.rsplit('/').next().unwrap_or(path).to_owned();
        let flat = path.replace('/', "_");
        let numbered = (2..).map(|number| format!("{number}_{flat}"));
        let name = [last, flat.clone()].into_iter().chain(numbered).find(|name| !taken.contains(name));
        let name = name.expect("numbers do not end");
        taken.insert(name.clone());
        let element = self.free_name(path);
        let data = self.add(element, Source::Defined, Some(name.into()));
        self.new.exports.push((data, target));
        self.known.insert(file.id, datum(data));
        Ok(data)
    }

    /// Writes a text of the script: to the path that it is mapped to, or among the texts of the
    /// run. Tasks read it as an input.
    ///
    /// # Errors
    /// The file is mapped to a path that is not its own, or cannot be written.
    pub fn write_text(&mut self, file: &AppFile, text: &str) -> Result<(), String> {
        let target = match &file.path {
            Some(path) => self.map(path)?,
            None => host_files::text_path(&self.directories.texts, text),
        };
        host_files::write_text(&target, text)?;
        let path = target.display().to_string();
        let name = self.free_name(file.path.as_deref().unwrap_or(&path));
        let data = self.add(name, Source::Input(vec![path.into()]), None);
        self.known.insert(file.id, ScriptDatum { data, host: Some(target), writer: None });
        Ok(())
    }

    /// No operation can see a file any more.
    pub fn seal(&mut self, file: ScriptFileId) {
        if let Some(ScriptDatum { data, host: None, .. }) = self.known.remove(&file) {
            self.new.sealed.push(data);
        }
    }

    /// The target of a mapped file.
    fn map(&mut self, path: &str) -> Result<PathBuf, String> {
        let target = host_files::mapped_path(&self.directories.out, path)?;
        let file = host_files::resolved(&target);
        if self.input_files.contains(&file) {
            return Err(format!("a file is mapped to `{path}`, which is an input of the script"));
        }
        if self.reserved.contains(&file) {
            return Err(format!("a file is mapped to `{path}`, which is a part of the script"));
        }
        if !self.mapped.insert(file) {
            return Err(format!("two files are mapped to `{path}`"));
        }
        Ok(target)
    }

    fn add(&mut self, name: String, source: Source, file: Option<Box<str>>) -> DataId {
        let data = DataId(self.next);
        self.next += 1;
        self.new.elements.push(Element { name, shape: Vec::new(), first: data, count: 1, source, file });
        data
    }

    /// A name of an element that no other one has.
    fn free_name(&mut self, wanted: &str) -> String {
        let plain = if flow::check_element_name(wanted).is_ok() { wanted } else { "file" };
        let numbered = (2..).map(|number| format!("{plain} ({number})"));
        let free = std::iter::once(plain.to_owned()).chain(numbered).find(|name| !self.names.contains(name));
        let free = free.expect("numbers do not end");
        self.names.insert(free.clone());
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn data(root: &Path) -> ScriptData {
        let directories =
            FileDirectories { data: root.join("data"), out: root.join("out"), texts: root.join("report/texts") };
        ScriptData::new(directories, [root.join("out/s.swift")])
    }

    fn file(id: u64, name: &str, path: Option<&str>) -> AppFile {
        AppFile { id: ScriptFileId(id), name: name.into(), path: path.map(str::to_owned) }
    }

    #[test]
    fn each_path_is_one_input_and_each_written_file_one_datum() {
        let mut data = data(Path::new("/w"));
        let taken = &mut HashSet::new();
        let one = data.read(&file(1, "", Some("a.txt"))).data;
        assert_eq!(data.read(&file(2, "", Some("a.txt"))).data, one);
        let two = data.write(&file(3, "part", None), ("app", TaskId(0)), taken).expect("a temporary");
        let three = data.write(&file(4, "", Some("deep/a.txt")), ("app", TaskId(0)), taken).expect("mapped");
        assert_eq!(data.read(&file(4, "", Some("deep/a.txt"))).data, three);
        let new = data.take_new();
        let names: Vec<(&str, Option<&str>)> =
            new.elements.iter().map(|element| (element.name.as_str(), element.file.as_deref())).collect();
        assert_eq!(names, [("a.txt", None), ("part~1", None), ("deep/a.txt", Some("a.txt"))]);
        assert_eq!(new.exports, [(three, PathBuf::from("/w/out/deep/a.txt"))]);
        data.seal(ScriptFileId(3));
        assert_eq!(data.take_new().sealed, [two]);
    }

    #[test]
    fn files_of_one_call_have_different_names_in_its_directory() {
        let mut data = data(Path::new("/w"));
        let taken = &mut HashSet::new();
        for (id, path) in [(1, "a/x"), (2, "b/x")] {
            data.write(&file(id, "", Some(path)), ("app", TaskId(0)), taken).expect("mapped");
        }
        let names: Vec<String> =
            data.take_new().elements.iter().filter_map(|element| Some(element.file.as_ref()?.to_string())).collect();
        assert_eq!(names, ["x", "b_x"]);
    }

    #[test]
    fn two_files_with_one_path_and_the_script_itself_are_refused() {
        let mut data = data(Path::new("/w"));
        let taken = &mut HashSet::new();
        data.write(&file(1, "", Some("a")), ("app", TaskId(0)), taken).expect("mapped");
        for path in ["a", "s.swift", "../b"] {
            assert!(data.write(&file(2, "", Some(path)), ("app", TaskId(0)), taken).is_err(), "{path}");
        }
    }

    #[test]
    fn texts_of_the_script_lie_where_they_are_mapped_or_in_the_report() {
        let root = tempfile::tempdir().expect("made");
        let mut data = data(root.path());
        data.write_text(&file(1, "", Some("note.txt")), "tide").expect("written");
        data.write_text(&file(2, "", None), "ebb").expect("written");
        let ebb = host_files::text_path(Path::new("report/texts"), "ebb").display().to_string();
        let text = |path: &str| std::fs::read_to_string(root.path().join(path)).expect("it is there");
        assert_eq!((text("out/note.txt"), text(&ebb)), ("tide".to_owned(), "ebb".to_owned()));
        assert_eq!(data.read(&file(2, "", None)).host, Some(root.path().join(&ebb)));
        assert_eq!(data.take_new().elements.len(), 2);
    }
}
