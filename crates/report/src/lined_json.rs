//! JSON as run.json has it: compact, but each field of the whole and each object of a list there
//! has a line of its own, so that `grep` and `diff` work. It is written as it is made: a report of
//! 100,000 tasks takes no memory beside the tasks.

use serde::Serialize;
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// Writes a struct.
pub fn write_lined(value: &impl Serialize, mut out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, LinedFormatter::default());
    value.serialize(&mut serializer)?;
    out.write_all(b"\n")
}

/// Breaks lines at the outermost level.
#[derive(Debug, Default)]
struct LinedFormatter {
    /// Lists and objects around what is written.
    depth: usize,
    /// True within a list that is a field of the outermost object.
    is_in_list: bool,
    /// True if that list has an object.
    is_lined: bool,
}

impl Formatter for LinedFormatter {
    fn begin_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        if self.depth == 2 {
            (self.is_in_list, self.is_lined) = (true, false);
        }
        out.write_all(b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth == 1 {
            self.is_in_list = false;
            out.write_all(if self.is_lined { b"\n" } else { b"" })?;
        }
        out.write_all(b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        let is_broken = self.depth == 2 && self.is_lined;
        out.write_all(if first { b"" } else { b"," })?;
        out.write_all(if is_broken { b"\n" } else { b"" })
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        if self.depth == 2 && self.is_in_list && !self.is_lined {
            self.is_lined = true;
            out.write_all(b"\n")?;
        }
        self.depth += 1;
        out.write_all(if self.depth == 1 { b"{\n" } else { b"{" })
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        out.write_all(if self.depth == 0 { b"\n}" } else { b"}" })
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b"," })?;
        out.write_all(if self.depth == 1 && !first { b"\n" } else { b"" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn lined(value: &Value) -> String {
        let mut out = Vec::new();
        write_lined(value, &mut out).expect("memory takes it");
        String::from_utf8(out).expect("JSON is text")
    }

    #[test]
    fn each_field_and_each_object_of_a_list_has_a_line() {
        let value = json!({"a": 1, "list": [{"x": [1, {"y": {}}], "z": {"q": [2]}}, {"x": []}], "plain": [1, 2], "none": [], "deep": {"l": [{"a": 1}, 2]}});
        let expected = "{\n\"a\":1,\n\"list\":[\n{\"x\":[1,{\"y\":{}}],\"z\":{\"q\":[2]}},\n{\"x\":[]}\n],\n\"plain\":[1,2],\n\"none\":[],\n\"deep\":{\"l\":[{\"a\":1},2]}\n}\n";
        assert_eq!(lined(&value), expected);
        assert_eq!(serde_json::from_str::<Value>(&lined(&value)).expect("it is JSON"), value);
    }
}
