//! Scripts that run: the lines that they print, and the programs that they call.

use super::fake_world::{evaluator, run, run_with};
use super::*;

#[test]
fn statements_run_when_their_inputs_are_there() {
    let text = "import io; int z; printf(\"z %i\", z); int y = x + 1; z = y * 2; int x = 3;";
    // A variable is known behind its declaration.
    assert_eq!(run(text), ["s.swift:1:46: there is no variable `x`"]);
    assert_eq!(run("import io; int x; int z; printf(\"z %i\", z); int y = x + 1; z = y * 2; x = 3;"), ["z 8"]);
}

#[test]
fn functions_begin_before_their_inputs_are_there() {
    let text = "import io;
        (int o) twice(int i) { o = i + i; }
        (int a, int b) both(int i) { a = twice(i); b = a + 1; }
        int x; int p; int q;
        (p, q) = both(x);
        printf(\"%i %i\", p, q);
        x = 5;";
    assert_eq!(run(text), ["10 11"]);
}

#[test]
fn functions_call_themselves() {
    let text = "(int o) fib(int n) { if (n < 2) { o = n; } else { o = fib(n - 1) + fib(n - 2); } } trace(fib(15));";
    assert_eq!(run(text), ["trace: 610"]);
    let deep = "(int o) down(int n) { if (n == 0) { o = 0; } else { o = down(n - 1) + 1; } } trace(down(20000));";
    assert_eq!(run(deep), ["trace: 20000"], "the stack is bounded");
}

#[test]
fn arrays_close_when_nothing_writes_them_any_more() {
    let text = "import stats; int A[]; int n; foreach i in [0:9] { A[i] = i * n; } trace(size(A), sum(A)); n = 2;";
    assert_eq!(run(text), ["trace: 10,90"]);
    let nested = "int A[][]; foreach i in [0:2] { foreach j in [0:i] { A[i][j] = i * j; } } foreach row, i in A { trace(i, size(row)); }";
    assert_eq!(run(nested), ["trace: 0,1", "trace: 1,2", "trace: 2,3"]);
    let output = "(int o[]) squares(int n) { foreach i in [0:n-1] { o[i] = i * i; } trace(size(o)); } int B[] = squares(4); trace(B[3]);";
    assert_eq!(run(output), ["trace: 9", "trace: 4"], "a function reads its own output");
}

#[test]
fn members_are_there_before_their_array_is_closed() {
    let text = "int A[]; int x; A[0] = 1; A[1] = x; foreach i in [2:9] { A[i] = A[i-1] + A[i-2]; } trace(A[9]); x = 1;";
    assert_eq!(run(text), ["trace: 55"]);
    let backwards = "int A[]; foreach i in [0:3] { A[i] = A[i+1] + 1; } A[4] = 0; trace(A[0]);";
    assert_eq!(run(backwards), ["trace: 4"]);
    assert_eq!(run("int A[] = [1, 2]; trace(A[2]);"), ["s.swift:1:26: `A` has no member [2]"]);
    assert_eq!(run("string A[string]; A[\"k\"] = \"v\"; trace(A[\"k\"]);"), ["trace: v"]);
}

#[test]
fn array_literals_and_ranges_have_their_members() {
    assert_eq!(run("import string; string A[] = [\"a\", \"b\"]; trace(string_join(A, \"-\"));"), ["trace: a-b"]);
    assert_eq!(run("import stats; trace(sum([1:10:3]), size([5:4]), avg([1.0, 2.0]));"), ["trace: 22,0,1.5"]);
    assert_eq!(
        run("int M[string] = {\"a\": 1, \"b\": 2}; foreach v, k in M { trace(k, v); }"),
        ["trace: a,1", "trace: b,2"]
    );
    assert_eq!(run("int A[]; A += 5; A += 6; trace(A[1]);"), ["trace: 6"]);
    assert_eq!(run("bag<int> b; b += 1; b += 1; trace(bag_size(b));"), ["trace: 2"]);
}

#[test]
fn conditions_choose_when_they_are_known() {
    let text = "int x; if (x > 1 && true) { trace(\"big\"); } else { trace(\"small\"); } x = 2;";
    assert_eq!(run(text), ["trace: big"]);
    let switch =
        "foreach i in [1:3] { int b; switch (i) { case 1: b = 10; case 2: b = 20; default: b = 30; } trace(b); }";
    assert_eq!(run(switch), ["trace: 10", "trace: 20", "trace: 30"]);
}

#[test]
fn loops_of_all_forms_go_on() {
    let text = "int n = 4; for (int i = 0, int s = 0; i <= n; i = i + 1, s = s + i) { trace(i, s); }";
    assert_eq!(run(text), ["trace: 0,0", "trace: 1,0", "trace: 2,1", "trace: 3,3", "trace: 4,6"]);
    assert_eq!(run("iterate i { int d = i * 2; trace(d); } until (d >= 4);"), ["trace: 0", "trace: 2", "trace: 4"]);
    let long = "int A[]; for (int i = 0; i < 30000; i = i + 1) { A[i] = i; } trace(size(A));";
    assert_eq!(run(long), ["trace: 30000"], "the stack is bounded");
}

#[test]
fn chains_and_waits_order_statements() {
    let text =
        "int x; x => trace(\"after x\") => trace(\"last\"); wait (x) { trace(\"waited\"); } trace(\"first\") => x = 1;";
    assert_eq!(run(text), ["trace: first", "trace: after x", "trace: last", "trace: waited"]);
    let apps = "app (void v) touch(string s) { \"touch\" s } touch(\"a\") => touch(\"b\") => trace(\"done\");";
    assert_eq!(run(apps), ["touch a", "touch b", "trace: done"]);
}

#[test]
fn app_functions_call_programs_with_their_files() {
    let text = "
        app (file o) sort(file i, int n) { \"sort\" \"-k\" n (n + 1) @i @stdout=o }
        file raw = input(\"data.txt\");
        file sorted<\"out/\" + \"sorted.txt\"> = sort(raw, 2);
        file again = sort(sorted, 3);
        trace(filename(sorted));
    ";
    assert_eq!(
        run(text),
        ["sort -k 2 3 data.txt >out/sorted.txt", "sort -k 3 4 out/sorted.txt >#3", "trace: out/sorted.txt"]
    );
}

#[test]
fn arrays_of_files_become_words() {
    let text = "
        app (file o) make(int i) { \"make\" i o }
        app (file o) join(file all[]) { \"cat\" all @stdout=o }
        file parts[];
        foreach i in [0:2] { parts[i] = make(i); }
        file whole<\"all\"> = join(parts);
    ";
    let log = run(text);
    assert_eq!(log.len(), 4, "{log:?}");
    assert_eq!(log[3], "cat #2 #3 #4 >all");
}

#[test]
fn a_copy_of_a_file_is_a_task_if_it_has_a_path() {
    let text = "file a = input(\"a\"); file b<\"b\"> = a; file c = a; trace(filename(c));";
    assert_eq!(run(text), ["cp a b", "trace: a"]);
}

#[test]
fn priorities_and_locations_go_to_tasks() {
    let text = "import io;
        app (void v) f(int i) { \"f\" i }
        foreach i in [1:2] { location l = location(i, HARD, NODE); @prio=i @location=l f(i); }
        @soft_location=location(0, HARD, RANK) f(3);";
    let mut evaluator = evaluator(text, &[]).expect("right");
    let steps = evaluator.advance(100).expect("it goes on");
    let calls: Vec<_> = steps
        .iter()
        .filter_map(|step| if let ScriptStep::Call(call) = step { Some((call.priority, call.location)) } else { None })
        .collect();
    let at = |rank, is_hard, is_node| Some(crate::TaskLocation::Slot { rank, is_hard, is_node });
    let mut sorted = calls.clone();
    sorted.sort_by_key(|(priority, _)| *priority);
    assert_eq!(sorted, [(0, at(0, false, false)), (1, at(1, true, true)), (2, at(2, true, true))]);
}

#[test]
fn structs_have_fields_that_come_one_by_one() {
    let text = "type person { string name; int age; }
        person p; trace(p.name, p.age); p.name = \"Ada\"; int x; p.age = x; x = 36;
        person q = person(\"Bob\", 4); person all[]; all[0] = p; all[1] = q;
        foreach r in all { trace(r.name); }";
    assert_eq!(run(text), ["trace: Ada,36", "trace: Ada", "trace: Bob"]);
}

#[test]
fn errors_name_their_line_and_the_calls_that_led_there() {
    assert_eq!(run("int x = 0;\ntrace(1 %/ x);"), ["s.swift:2:1: division by zero: 1 %/ 0"]);
    let problem = evaluator("(int o) f(int i) {\n  o = 1 %% i;\n}\nint x = f(0);", &[])
        .and_then(|mut evaluator| evaluator.advance(1).map(drop).map_err(|problem| problem.to_string()));
    let text = problem.expect_err("it divides by zero");
    assert!(text.contains("called as `f` in s.swift:4"), "{text}");
    assert_eq!(run("import assert; assert(1 > 2, \"no\");"), ["s.swift:1:16: assertion failed: no"]);
    assert_eq!(
        run("int A[]; foreach i in [0:1] { A[0] = i; }"),
        ["s.swift:1:31: the member [0] of this array is assigned twice"]
    );
}

#[test]
fn a_script_that_cannot_go_on_names_what_is_missing() {
    let error =
        run_with("int A[]; int b = A[1] + 1; trace(b); if (size(A) == 0) { A[1] = 1; }", &[]).expect_err("stuck");
    assert!(error.starts_with("the script cannot go on: nobody gives these variables their values"), "{error}");
    assert!(error.contains("s.swift:1: waits for `A[1]`") && error.contains("waits for `b`"), "{error}");
}

#[test]
fn arguments_of_the_script_are_found_by_name_and_place() {
    let text = "import io; printf(\"%s %s %i %s\", argv(\"a\"), argp(1), argc(), argv(\"b\", \"none\"));";
    assert_eq!(run_with(text, &["-v", "--a=1", "x", "y"]), Ok(vec!["1 x 2 none".into()]));
    assert!(run_with(text, &[]).is_err_and(|error| error.contains("the argument --a=... is missing")));
}

#[test]
fn a_million_iterations_use_one_frame() {
    let text = "import stats; int A[]; foreach i in [0:999999] { A[i] = i * i %% 7; } trace(sum(A));";
    let expected: i64 = (0..1_000_000_i64).map(|i| i * i % 7).sum();
    assert_eq!(run(text), [format!("trace: {expected}")]);
}

#[test]
fn loops_are_unfolded_as_calls_are_wanted() {
    let text = "app (void v) f(int i) { \"f\" i } foreach i in [1:1000000] { f(i); }";
    let mut evaluator = evaluator(text, &[]).expect("right");
    let calls = evaluator.advance(10).expect("it goes on").len();
    assert!((10..20).contains(&calls), "{calls}");
    assert!(evaluator.units.len() < 100, "nothing else was made");
}

#[test]
fn files_that_nothing_can_see_are_sealed() {
    let text = "
        app (file o) make(int i) { \"make\" i o }
        app (void v) use(file i) { \"use\" i }
        foreach i in [0:2] { file f = make(i); use(f); }
    ";
    let mut evaluator = evaluator(text, &[]).expect("right");
    let steps = evaluator.advance(100).expect("it goes on");
    let sealed: Vec<usize> = steps
        .iter()
        .filter_map(|step| if let ScriptStep::Sealed(files) = step { Some(files.len()) } else { None })
        .collect();
    assert_eq!(sealed.len(), 0, "calls are open");
    let calls: Vec<CallId> =
        steps.iter().filter_map(|step| if let ScriptStep::Call(call) = step { Some(call.id) } else { None }).collect();
    for call in calls {
        evaluator.call_ended(call, true).expect("once");
    }
    let steps = evaluator.advance(100).expect("it goes on");
    assert!(matches!(&steps[..], [ScriptStep::Sealed(files)] if files.len() == 3), "{steps:?}");
}

#[test]
fn files_are_found_read_and_written() {
    let text = "import files; import io;
        foreach f, i in glob(\"*.txt\") { printf(\"%i %s %s\", i, basename(f), rootname(f)); }
        foreach line, i in file_lines(input(\"a.txt\")) { printf(\"%i %s\", i, line); }
        file f<\"dir/out.txt\"> = write(\"text\");
        wait (f) { printf(\"written %s\", dirname(f)); }
        trace(file_exists(\"a.txt\"), file_exists(\"c.txt\"), size(glob(\"none\")));";
    let mut log = run(text);
    log.sort();
    assert_eq!(log, ["0 a.txt a", "0 one", "1 b.txt b", "1 two", "2 three", "trace: 1,0,0", "written dir"]);
    assert_eq!(run("import files; trace(read(input(\"c.txt\")));"), ["s.swift:1:21: c.txt is not there"]);
    assert_eq!(run("import files; file f = write(\"bad\");"), ["s.swift:1:24: the disk is full"]);
}

#[test]
fn a_file_that_a_program_writes_is_read_when_it_has_ended() {
    let text =
        "import files; app (file o) make() { \"make\" o } file f<\"a.txt\"> = make(); trace(size(file_lines(f)));";
    assert_eq!(run(text), ["make a.txt", "trace: 3"]);
}

#[test]
fn hosts_have_ranks_and_the_environment_has_values() {
    let text = "import location; import sys; import io;
        foreach h, i in hostmapList() { trace(i, h, hostmapOneRank(h)); }
        location l = hostmapOne(\"two\"); foreach r in hostmapLeadersRank() { trace(r); }
        printf(\"%s|%s\", getenv(\"HOME\"), getenv(\"NONE\")); trace(turbine_workers());";
    let mut log = run(text);
    log.sort();
    assert_eq!(log, ["/home/me|", "trace: 0", "trace: 0,one,1", "trace: 1,two,3", "trace: 2", "trace: 4"]);
    assert_eq!(
        run("import location; location l = hostmapOne(\"x\");"),
        ["s.swift:1:31: there is no host `x`; hosts are one, two"]
    );
}

#[test]
fn random_numbers_are_the_same_in_each_run_of_a_seed() {
    let text = "import random; foreach i in [1:3] { trace(randint(0, 1000)); } float r = random(); if (r >= 0.0 && r < 1.0) { trace(\"in\"); }";
    let first = run(text);
    assert_eq!((run(text), first.len()), (first, 4));
    assert_eq!(
        run("import random; trace(randint(1, 1));"),
        ["s.swift:1:22: randint(1, 1) has no number to choose from"]
    );
}

#[test]
fn bags_and_arrays_within_arrays_are_added_to() {
    let text = "bag<int> A[]; foreach i in [0:1] { A[i] += i; A[i] += 5; } foreach b in A { trace(bag_size(b)); }";
    assert_eq!(run(text), ["trace: 2", "trace: 2"]);
    assert_eq!(run("int A[string][]; A[\"k\"] += 3; A[\"k\"] += 4; trace(A[\"k\"][1]);"), ["trace: 4"]);
}

#[test]
fn a_loop_hides_the_variable_that_it_counts_with() {
    let text = "int count; for (int i = 0, count = 0; i < 3; i = i + 1, count = count + i) { trace(count); }";
    assert_eq!(run(text), ["trace: 0", "trace: 0", "trace: 1"]);
}

#[test]
fn arrays_that_are_written_out_are_arguments_of_all_functions() {
    assert_eq!(run("trace(contains([1, 2], 1), exists({\"a\": 1}, \"b\"), size([\"x\"]));"), ["trace: 1,0,1"]);
    assert_eq!(
        run("<T> (int o) count(T a[]) { o = size(a); } trace(count([1, 2]));"),
        ["s.swift:1:2: names of types are for functions of the library; write one function for each type"]
    );
}

#[test]
fn a_chain_waits_for_a_member_and_not_for_its_array() {
    assert_eq!(run("int A[]; A[0] = 1 => A[1] = 2 => trace(3); trace(size(A));"), ["trace: 3", "trace: 2"]);
    let text = "int x; int A[]; bag<int> b; A[0] = x + 1 => trace(1); b += x => trace(2); trace(0) => x = 1;";
    assert_eq!(run(text), ["trace: 0", "trace: 2", "trace: 1"]);
}

#[test]
fn a_chain_waits_until_an_app_has_written_all_files() {
    let text = "app (file o[]) split() { \"split\" o } app (void o) use() { \"use\" } file p[]; file a; p[0] = a;
        p = split() => use();";
    let mut evaluator = evaluator(text, &[]).expect("right");
    let steps = evaluator.advance(100).expect("it goes on");
    let [ScriptStep::Call(call)] = &steps[..] else { panic!("{steps:?}") };
    evaluator.call_ended(call.id, true).expect("once");
    let steps = evaluator.advance(100).expect("it goes on");
    assert!(matches!(&steps[..], [ScriptStep::Call(_), ..]), "{steps:?}");
}

#[test]
fn a_call_waits_for_the_writer_of_a_file_by_its_other_name() {
    let text = "app (file o) make() { \"make\" o } app (void o) use(file i) { \"use\" i }
        file f; file g = f; file h = g; use(h); f = make();";
    assert_eq!(run(text), ["make #1", "use #1"]);
}

#[test]
fn a_copy_waits_for_the_writer_of_a_file_by_its_other_name() {
    let text = "app (file o) make() { \"make\" o } file f; file g = f; file h<\"h\"> = g; f = make();";
    assert_eq!(run(text), ["make #1", "cp #1 h"]);
    assert_eq!(run("file f; file g; f = g; g = f;"), ["s.swift:1:28: this file would be a copy of itself"]);
    assert_eq!(run("file f<\"f\">; f = f;"), ["s.swift:1:18: this file would be a copy of itself"]);
}
