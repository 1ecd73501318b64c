//! Functions of the library that scripts call rarely.

use crate::eval::fake_world::run;

#[test]
fn statistics_are_combined() {
    let text = "import stats; float m; float d; (m, d) = stats([2, 4, 4, 4, 5, 5, 7, 9]); trace(m, d);
        PartialStats parts[]; int n1; float m1; float s1; (n1, m1, s1) = statagg([2, 4, 4, 4]);
        parts[0] = PartialStats(n1, m1, s1); int n2; float m2; float s2; (n2, m2, s2) = statagg([5, 5, 7, 9]);
        parts[1] = PartialStats(n2, m2, s2); int n; float mean; float std; (n, mean, std) = stat_combine(parts);
        trace(n, mean, std);";
    assert_eq!(run(text), ["trace: 5.0,2.0", "trace: 8,5.0,2.0"]);
}

#[test]
fn members_are_picked_and_joined() {
    let text = "import string; string A[] = [\"a\", \"b\", \"c\"]; trace(join(pick_integer_string(A, [2, 0])));
        trace(join_args(\"-\", 1, \"x\", 2.5)); trace(size(split(\"a b c\")));";
    assert_eq!(run(text), ["trace: 1-x-2.5", "trace: 3", "trace: c a"]);
    assert_eq!(run("trace(pick_integer_string([\"a\"], [1])[0]);"), ["s.swift:1:7: the array has no member [1]"]);
}

#[test]
fn assertions_compare() {
    let text =
        "import assert; assertLT(1, 2, \"m\"); assertLTE(2.0, 2.0, \"m\"); assertLT(\"a\", \"b\", \"m\"); trace(1);";
    assert_eq!(run(text), ["trace: 1"]);
    let failed = |text: &str| run(&format!("import assert; {text}"));
    assert_eq!(failed("assertLT(2, 2, \"m\");"), ["s.swift:1:16: assertion failed: 2 is not less than 2: m"]);
    assert_eq!(failed("assertLTE(3, 2, \"m\");"), ["s.swift:1:16: assertion failed: 3 is more than 2: m"]);
}

#[test]
fn tools_of_unix_are_apps() {
    let text = "import unix; file e<\"e\"> = echo(\"hi\"); file c<\"c\"> = cp(e); sleep(3) => mkdir(\"d\") => rm(\"-r\", \"d\");";
    assert_eq!(run(text), ["echo hi >e", "cp e c", "sleep 3", "mkdir -p d", "rm -r d"]);
}

#[test]
fn arrays_are_written_line_by_line() {
    let text = "import files; file f<\"f\"> = write_array_string([\"a\", \"b\"], 100, true); file t = mktemp();
        wait (f, t) { trace(\"written\"); } trace(_lines_of([\"a\"], true));";
    assert_eq!(run(text), ["trace: 0 a\n", "trace: written"]);
}
