//! Tests of the commands on files of a pool, over a pool in memory.

use super::*;
use pool::LocalEndpoint;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Pool with a connection to it, and a directory of the host.
struct Fixture {
    pool: PoolHandle,
    endpoint: LocalEndpoint,
    host: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let host = tempfile::tempdir().unwrap();
        let node = pool::embedded_node(ByteSize::mib(64), Duration::ZERO).unwrap();
        let endpoint = LocalEndpoint::open(&node, host.path()).unwrap();
        let pool = PoolHandle::connect(&pool_arg(&endpoint)).unwrap_or_else(|problems| panic!("{}", problems[0]));
        Self { pool, endpoint, host }
    }

    fn pool_arg(&self) -> PoolArg {
        pool_arg(&self.endpoint)
    }

    /// Makes a file of the host.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.host.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn put_args(&self, key: &str, file: PathBuf) -> PutArgs {
        let (if_absent, if_version, placement, stripe_size) = (false, None, None, None);
        PutArgs { pool_arg: self.pool_arg(), key: key.to_owned(), file, if_absent, if_version, placement, stripe_size }
    }

    /// Puts bytes under a key.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), String> {
        messages(put_file(&self.pool, &self.put_args(key, self.file("source", bytes))))
    }

    /// Reads all bytes under a key.
    fn text(&self, key: &str) -> Result<Vec<u8>, String> {
        let mut found = Vec::new();
        messages(self.pool.read(key, |bytes| {
            found.extend_from_slice(bytes);
            Ok(())
        }))?;
        Ok(found)
    }
}

fn pool_arg(endpoint: &LocalEndpoint) -> PoolArg {
    PoolArg { pool: Some(endpoint.file().to_owned()) }
}

/// Returns the message and hint of an error.
fn messages(done: Result<(), KeyCommandError>) -> Result<(), String> {
    done.map_err(|error| match error {
        KeyCommandError::Reported(problem) => problem.to_string(),
        KeyCommandError::ReaderGone => "the reader is gone".to_owned(),
    })
}

#[test]
fn what_was_put_is_got_whatever_its_length() {
    let fixture = Fixture::new();
    for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES] {
        let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
        fixture.put("deep/down/f", &bytes).unwrap();
        assert!(fixture.text("deep/down/f") == Ok(bytes), "{length} bytes");
    }
}

#[test]
fn a_put_with_a_condition_is_refused_with_the_version_that_exists() {
    let fixture = Fixture::new();
    let put = |absent, if_version| {
        let file = fixture.file("new", b"new");
        messages(put_file(&fixture.pool, &PutArgs { if_absent: absent, if_version, ..fixture.put_args("f", file) }))
    };
    assert_eq!(put(true, None), Ok(()));
    let version = ObjectMeta::from(&fixture.pool.find("f").ok().unwrap()).version;
    assert!(put(true, None).unwrap_err().contains(&version.to_string()), "a file exists");
    assert_eq!(put(false, Some(version)), Ok(()));
    assert!(put(false, Some(version)).is_err(), "that version was replaced");
    let removed = RmArgs { pool_arg: fixture.pool_arg(), keys: vec!["f".into()], recursive: false };
    assert_eq!(rm(&removed).unwrap(), 0);
    assert!(put(false, Some(version)).is_err(), "nothing exists");
}

#[test]
fn a_key_that_ends_in_a_slash_gets_the_name_of_the_file() {
    let key = |key: &str, from: &str| key_for(key, Path::new(from)).map_err(|error| messages(Err(error)).unwrap_err());
    assert_eq!(key("a/b", "/x/f"), Ok("a/b".to_owned()));
    assert_eq!(key("a/", "/x/f"), Ok("a/f".to_owned()));
    assert_eq!(key("/", "x/f.txt"), Ok("/f.txt".to_owned()));
    for from in ["-", "/", ".."] {
        assert!(key("a/", from).unwrap_err().starts_with("a/ is a directory"), "{from}");
    }
}

#[test]
fn a_source_that_is_no_file_of_the_host_is_named() {
    let fixture = Fixture::new();
    for (path, expected) in
        [(fixture.host.path().join("none"), "No such file"), (fixture.host.path().into(), "is a directory")]
    {
        let refused = messages(put_file(&fixture.pool, &fixture.put_args("f", path.clone()))).unwrap_err();
        assert!(refused.starts_with(&path.display().to_string()) && refused.contains(expected), "{refused}");
    }
    assert_eq!(fixture.text("f").unwrap_err(), "f: no such file or directory");
}

#[test]
fn a_file_that_the_pool_can_never_hold_is_refused_before_it_is_read() {
    let fixture = Fixture::new();
    let huge = fixture.file("huge", b"");
    File::options().write(true).open(&huge).unwrap().set_len(1 << 40).unwrap();
    let refused = messages(put_file(&fixture.pool, &fixture.put_args("f", huge))).unwrap_err();
    assert!(refused.starts_with("f: "), "{refused}");
    assert!(fixture.text("f").is_err());
}

#[test]
fn keys_that_lead_nowhere_are_refused_in_words() {
    let fixture = Fixture::new();
    fixture.put("d/f", b"tide").unwrap();
    let cases = [
        ("none", "none: no such file or directory".to_owned()),
        ("d", "d is a directory".to_owned()),
        ("", "/ is a directory".to_owned()),
        ("d/f/x", "d/f/x: a part of its path is not a directory".to_owned()),
    ];
    for (key, expected) in cases {
        assert_eq!(fixture.text(key).unwrap_err(), expected);
    }
    assert!(fixture.put(&"n".repeat(300), b"").unwrap_err().contains("too long a key"));
    assert!(fixture.put("d", b"").unwrap_err().contains("d is a directory"));
}

#[test]
fn get_replaces_a_file_of_the_host_whole_or_leaves_it() {
    let fixture = Fixture::new();
    fixture.put("d/f", b"high tide").unwrap();
    let target = fixture.file("target", b"low");
    let get =
        |key: &str, file: &Path| get(&GetArgs { pool_arg: fixture.pool_arg(), key: key.into(), file: file.into() });
    assert_eq!(get("none", &target), Ok(1));
    assert_eq!(fs::read(&target).unwrap(), b"low");
    assert_eq!(get("d/f", &target), Ok(0));
    assert_eq!(fs::read(&target).unwrap(), b"high tide");
    fs::create_dir(fixture.host.path().join("dir")).unwrap();
    assert_eq!(get("d/f/", &fixture.host.path().join("dir")), Ok(0), "a directory gets the key's last name");
    assert_eq!(fs::read(fixture.host.path().join("dir/f")).unwrap(), b"high tide");
    let parts = fs::read_dir(fixture.host.path()).unwrap();
    let parts = parts.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().contains(".part-"));
    assert_eq!(parts.count(), 0, "nothing incomplete is left");
    assert_eq!(get("d/f", Path::new("/dev/null")), Ok(0), "a device is written to, not replaced");
    assert!(!Path::new("/dev/null").is_file());
}

#[test]
fn cp_copies_one_file_and_rm_spares_the_root_and_directories() {
    let fixture = Fixture::new();
    fixture.put("d/f", &vec![7; CHUNK_BYTES + 5]).unwrap();
    let cp = |from: &str, to: &str| cp(&CpArgs { pool_arg: fixture.pool_arg(), from: from.into(), to: to.into() });
    assert_eq!((cp("d/f", "e/"), cp("d/f", "e/f"), cp("d", "g")), (Ok(0), Ok(0), Ok(1)));
    assert_eq!(fixture.text("e/f"), Ok(vec![7; CHUNK_BYTES + 5]));
    let rm = |keys: &[&str], recursive| {
        rm(&RmArgs { pool_arg: fixture.pool_arg(), keys: keys.iter().map(ToString::to_string).collect(), recursive })
    };
    assert_eq!(rm(&["d"], false), Ok(1));
    assert_eq!(rm(&["/"], true), Ok(1));
    assert!(fixture.text("d/f").is_ok());
    assert_eq!(rm(&["none", "d"], true), Ok(1), "an error with one key does not spare the next");
    assert_eq!(fixture.text("d/f").unwrap_err(), "d/f: no such file or directory");
    assert!(fixture.text("e/f").is_ok());
}

#[test]
fn a_long_key_is_shown_by_its_beginning_and_the_root_as_a_slash() {
    assert_eq!([display_key(""), display_key("/"), display_key("//")], ["/", "/", "/"]);
    assert_eq!(display_key(&"k".repeat(100)), "k".repeat(100));
    assert_eq!(display_key(&"é".repeat(101)), format!("{}... (202 bytes)", "é".repeat(100)));
}

#[test]
fn stat_tells_kind_mode_and_times_in_words_and_as_json() {
    let fixture = Fixture::new();
    fixture.put("f", b"tide").unwrap();
    let found = fixture.pool.find("f").ok().unwrap();
    let json = as_json("f", &found);
    assert_eq!((&json["key"], &json["kind"], &json["size"]), (&json!("f"), &json!("file"), &json!(4)));
    assert_eq!(json["version"], json!(ObjectMeta::from(&found).version.to_string()));
    assert_eq!((json["mode"].as_str().unwrap().len(), &json["links"]), (4, &json!(1)));
    assert!(json["modified"].as_str().unwrap().ends_with('Z'), "{json}");
    assert_eq!(shown_time(Timestamp { secs: 86_400, nanos: 1_999_999 }), "1970-01-02T00:00:00.001Z");
    assert_eq!(shown_time(Timestamp { secs: -5, nanos: 0 }), "1970-01-01T00:00:00.000Z");
    let kinds = [
        (Kind::File, '-', "file", ""),
        (Kind::Directory, 'd', "folder", "/"),
        (Kind::Symlink, 'l', "link", ""),
        (Kind::Fifo, 'p', "pipe", ""),
        (Kind::Socket, 's', "socket", ""),
        (Kind::CharDevice(1), 'c', "device", ""),
        (Kind::BlockDevice(1), 'b', "device", ""),
    ];
    for (kind, expected_letter, expected_word, expected_ending) in kinds {
        assert_eq!((letter(kind), word(kind), ending(kind)), (expected_letter, expected_word, expected_ending));
    }
}

#[test]
fn a_chunk_is_short_only_at_the_end_of_its_reader() {
    let bytes = vec![7; CHUNK_BYTES + 3];
    let mut from =
        bytes.chunks(1000).fold(Box::new(io::empty()) as Box<dyn Read>, |all, part| Box::new(all.chain(part)));
    let lengths = [(); 3].map(|()| chunk(&mut *from).unwrap().len());
    assert_eq!(lengths, [CHUNK_BYTES, 3, 0]);
}

#[test]
fn a_pool_that_does_not_run_is_refused() {
    let pool_arg = PoolArg { pool: Some("/none/such/pool".into()) };
    let problems = PoolHandle::connect(&pool_arg).map(drop).unwrap_err();
    assert!(problems[0].to_string().contains("/none/such/pool"), "{}", problems[0]);
}
