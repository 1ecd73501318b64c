//! Calls of programs: arrays of files that they write, and files that they do not name.

use crate::eval::fake_world::run;

const SPLIT: &str = "app (file o[]) split(file i) { \"split\" i o } file whole = input(\"w\"); ";

fn split(text: &str) -> Vec<String> {
    run(&format!("{SPLIT}\n{text}"))
}

#[test]
fn a_program_writes_the_files_that_brackets_name() {
    let text = "file a<\"a\">; file b; [a, b, c] = split(whole); trace(filename(a));
        app (file o) cat(file i[]) { \"cat\" i @stdout=o } file d<\"d\"> = cat([c, a]);";
    assert_eq!(split(text), ["split w a #3 #4", "cat #4 a >d", "trace: a"]);
    assert_eq!(
        split("file a = input(\"x\"); [a] = split(whole);"),
        ["s.swift:2:23: `a` is assigned twice: first in line 2"]
    );
    assert_eq!(
        split("int a; [a] = split(whole);"),
        ["s.swift:2:9: the app writes files of type file, and `a` is of type int"]
    );
    assert_eq!(
        split("[a, b] = input(\"x\");"),
        ["s.swift:2:10: `input` is no app function that writes an array of files"]
    );
}

#[test]
fn a_program_writes_the_files_that_an_array_holds_already() {
    let text = "file parts[]; foreach i in [1:2] { file f<\"part-%i\" % i>; parts[i] = f; }
        parts = split(whole);
        app (void o) use(file i) { \"use\" i } foreach p in parts { use(p); }";
    assert_eq!(split(text), ["split w part-1 part-2", "use part-1", "use part-2"]);
    let given = "(file o[]) halves(file i) { file a<\"a\">; file b<\"b\">; o[0] = a; o[1] = b; o = split(i); }
        file h[] = halves(whole); trace(filename(h[1]));";
    assert_eq!(split(given), ["split w a b", "trace: b"]);
}

#[test]
fn an_array_whose_number_of_files_is_not_known_is_told() {
    assert_eq!(
        split("file parts[] = split(whole);"),
        ["s.swift:2:16: the number of files in `parts` is not known, so no app can write them"]
    );
    assert_eq!(
        split("app (void o) use(file i[]) { \"use\" i } use(split(whole));"),
        ["s.swift:2:44: the number of files that `split` writes is not known here"]
    );
    assert_eq!(
        split("file parts[]; if (size([1:3]) == 1) { file f; parts[0] = f; } parts = split(whole);"),
        ["s.swift:1:16: `split` writes the files of an array that has none"]
    );
    assert_eq!(
        split("file a; file parts[]; parts[0] = a; parts[1] = a; parts = split(whole);"),
        ["s.swift:1:16: `a`, which this call writes, has a writer already"]
    );
}

#[test]
fn a_file_that_the_command_does_not_name_orders_calls() {
    let text = "
        @suppress=unused_output
        app (file implicit) produce(string dir) { \"produce\" dir }
        app (void o) consume(string dir, file implicit) { \"consume\" dir }
        file made = produce(\"d\"); consume(\"d\", made) => trace(\"consumed\");";
    assert_eq!(run(text), ["produce d", "consume d", "trace: consumed"]);
}

#[test]
fn several_outputs_are_written_where_their_files_are() {
    let text = "app (file a, file b) two(int i) { \"two\" i a b } file x<\"x\">; file y<\"y\">; (x, y) = two(1);";
    assert_eq!(run(text), ["two 1 x y"], "no file is copied");
}

#[test]
fn kinds_of_files_and_arrays_within_arrays_are_written_too() {
    let text = "type part file; app (part o[]) split(file i) { \"split\" i o } app (void o) use(part i) { \"use\" i }
        [a, b] = split(input(\"w\")); use(a); file c; [c] = split(b);";
    assert_eq!(run(text), ["split w #1 #2", "split #2 #4", "use #1"]);
    let rows = "app (file o[][]) split(file i) { \"split\" i o } file p[][]; file a<\"a\">; p[0][1] = a; p = split(input(\"w\"));";
    assert_eq!(run(rows), ["split w a"]);
    assert_eq!(
        run("app (file o[][]) split(file i) { \"split\" i o }\n[a] = split(input(\"w\"));"),
        ["s.swift:2:7: `split` writes files of type file[][]: put them into such an array first"]
    );
}
