//! Structs whose fields come in parts.

use crate::eval::fake_world::run;

const TYPES: &str =
    "type place { int x; int y; } type person { string name; int events[]; place home; string tags[string][]; }\n";

fn typed(text: &str) -> Vec<String> {
    let mut lines = run(&format!("{TYPES}{text}"));
    lines.sort();
    lines
}

#[test]
fn fields_that_are_arrays_or_structs_get_their_parts_one_by_one() {
    let text = "person p; p.events[1] = 5; p.home.x = 1; p.home.y = p.home.x + 1; p.tags[\"k\"][0] = \"v\";
        foreach i in [2:4] { p.events[i] = i; }
        trace(size(p.events), p.events[4], p.home.y, p.tags[\"k\"][0]);";
    assert_eq!(typed(text), ["trace: 4,4,2,v"]);
    assert_eq!(typed("person p; p.events += 7; p.events += 8; trace(p.events[1]);"), ["trace: 8"]);
}

#[test]
fn functions_give_structs_their_parts() {
    let text = "(person p) make(int n) { foreach i in [1:n] { p.events[i] = i; } if (n > 1) { p.home.x = n; } else { p.home.x = 0; } p.name = \"n\"; }
        foreach n in [1:3] { person q = make(n); trace(size(q.events), q.home.x); }";
    assert_eq!(typed(text), ["trace: 1,0", "trace: 2,2", "trace: 3,3"]);
    let local =
        "foreach n in [1:2] { person p; p.events[0] = n; p.events[1] = n; trace(p.events[1], size(p.events)); }";
    assert_eq!(typed(local), ["trace: 1,2", "trace: 2,2"]);
}

#[test]
fn fields_of_members_are_not_assigned_by_themselves() {
    let message = "a struct in an array is assigned as a whole, not field by field";
    assert_eq!(typed("person A[]; A[0].name = \"n\";"), [format!("s.swift:2:18: {message}")]);
    assert_eq!(
        typed("person p; p.events[0] = 1; p.events[0] = 2;"),
        ["s.swift:2:28: the member [0] of this array is assigned twice"]
    );
    assert_eq!(typed("person p; p.home.z = 1;"), ["s.swift:2:18: there is no field of place `z`"]);
}
