//! Links to outputs: URLs relative to the directory of the report, which stay valid if both are
//! moved together.

use crate::RunReport;
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

impl RunReport {
    /// Fills `Member::link` of exported members, for a report in the absolute path
    /// `report_directory`. Paths are resolved lexically, as in a browser; symbolic links are not
    /// followed.
    pub fn link_outputs(&mut self, report_directory: &Path) {
        let from = normalize(report_directory);
        let directory = PathBuf::from(&self.directory);
        for member in &mut self.data {
            let Some(exported) = &member.exported else { continue };
            let path = normalize(&directory.join(exported));
            member.link = path.to_str().and_then(|path| url(&from, Path::new(path)));
        }
    }
}

/// `path` without `.` and `..`.
fn normalize(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// The relative URL from the directory `from` to the file `to`; none if it cannot be determined.
fn url(from: &Path, to: &Path) -> Option<String> {
    // Bytes that are not UTF-8 were replaced in run.json, so the real name of the file is unknown.
    let text = to.to_str().filter(|text| !text.contains(char::REPLACEMENT_CHARACTER))?;
    if !from.is_absolute() || !Path::new(text).is_absolute() {
        return None;
    }
    let common = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().count() - common;
    let down = to.components().skip(common).map(|part| percent_encode(&part.as_os_str().to_string_lossy()));
    Some(std::iter::repeat_n("..".to_owned(), up).chain(down).collect::<Vec<_>>().join("/"))
}

/// A name encoded as a part of a URL: it cannot contain a scheme, a delimiter or a quote.
fn percent_encode(name: &str) -> String {
    let mut url = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;

    fn link(directory: &str, report_directory: &str, exported: &str) -> Option<String> {
        let member = Member { exported: Some(exported.into()), ..Member::default() };
        let mut run =
            RunReport { directory: directory.into(), data: vec![member, Member::default()], ..RunReport::default() };
        run.link_outputs(Path::new(report_directory));
        assert_eq!(run.data[1].link, None, "what was not exported");
        run.data[0].link.clone()
    }

    #[test]
    fn an_output_is_linked_from_the_directory_of_the_report() {
        for (report_directory, exported, expected) in [
            ("/home/ada/tidemill-report/run-1", "/home/ada/out/A.txt", "../../out/A.txt"),
            ("/home/ada/report", "out/E/1.csv", "../out/E/1.csv"),
            ("/home/ada/out/../out", "/home/ada/./out/A", "A"),
            ("/srv/report", "/home/ada/A", "../../home/ada/A"),
        ] {
            assert_eq!(link("/home/ada", report_directory, exported).as_deref(), Some(expected));
        }
    }

    #[test]
    fn no_name_becomes_anything_but_a_file() {
        let hostile = "/r/javascript:alert(1)/\"><b>\u{202e}?#%";
        let expected = "javascript%3Aalert%281%29/%22%3E%3Cb%3E%E2%80%AE%3F%23%25";
        assert_eq!(link("/", "/r", hostile).as_deref(), Some(expected));
        assert_eq!(link("/", "/r", "/r/not\u{fffd}utf8"), None);
        assert_eq!(link("", "/r", "out/A"), None, "a directory that is not known");
    }
}
