//! Arrays of data behave like JavaScript arrays.

use super::{calls, run};

fn called(source: &str) -> Vec<String> {
    calls(&run(source).unwrap_or_else(|problem| panic!("{problem}")))
}

#[test]
fn arrays_of_data_read_like_arrays() {
    let source = r#"
        var A = Data.define("A", 4), M = Data.define("M", [2, 3]), S = Data.define("S");
        function expect(value, wanted) { if (value !== wanted) throw new Error(`${value} is not ${wanted}`); }
        expect(A.length, 4);
        expect(M.length, 2);
        expect(M[1].length, 3);
        expect(Array.isArray(A) && Array.isArray(M[0]), true);
        expect(A[2], A[2]);
        expect(A.indexOf(A[3]), 3);
        expect(A.at(-1), A[3]);
        expect(A.slice(1, 3)[0], A[1]);
        expect(A.slice(1, 3).length, 2);
        expect(A.map((member, index) => index).join(), "0,1,2,3");
        expect([...A].length, 4);
        expect(A.concat(M[0], [S]).length, 8);
        expect(M.flat().length, 6);
        expect(A.filter((member) => member !== A[0]).length, 3);
        expect([...A.entries()][3][0], 3);
        expect(Object.keys(M).join(), "0,1");
        expect(2 in A, true);
        expect(4 in A, false);
        expect(A.nothing, undefined);
        expect(String(M[1][2]), "M[1][2]");
        expect(String(S), "S");
        expect(M[1].join(), "M[1][0],M[1][1],M[1][2]");
        let seen = 0;
        for (const row of M) for (const member of row) seen += String(member).length;
        expect(seen, 42);
        M.forEach((row, r) => row.forEach((member, c) => expect(member, M[r][c])));
        const [first, ...others] = A;
        expect(others.length, 3);
        expect(Data.define("One", 1).length, 1);
    "#;
    assert_eq!(called(source), Vec::<String>::new());
}

#[test]
fn arrays_slices_and_lists_are_passed_to_array_parameters() {
    let source = r#"
        var A = Data.define("A", 4), M = Data.define("M", [2, 2]), S = Data.define("S");
        Any({in: A, out: M});
        Any({in: A.slice(1, 3), out: M[1]});
        Any({in: [A[3], S, ...M[0]], out: [S]});
        Any({in: [M, [A[0]]], out: A.filter((_, index) => index % 2 === 0)});
        Any({in: S, out: A[1]});
        Any({in: A.concat(S).reverse(), out: Data.define("N", [1, 1])});
    "#;
    let expected = [
        "Any(in=[A[0] A[1] A[2] A[3]],out=[M[0][0] M[0][1] M[1][0] M[1][1]])",
        "Any(in=[A[1] A[2]],out=[M[1][0] M[1][1]])",
        "Any(in=[A[3] S M[0][0] M[0][1]],out=[S])",
        "Any(in=[M[0][0] M[0][1] M[1][0] M[1][1] A[0]],out=[A[0] A[2]])",
        "Any(in=[S],out=[A[1]])",
        "Any(in=[S A[3] A[2] A[1] A[0]],out=[N[0][0]])",
    ];
    assert_eq!(called(source), expected);
}

#[test]
fn data_is_found_by_name_number_and_regular_expression() {
    let source = r#"
        const one = Data.get("Train"), all = Data.get("Unlab", 80), some = Data.get(/^Unlab\/[12]\d?\.csv$/g, 22);
        Copy({in: one, out: Data.define("A")});
        Copy({in: all[10], out: Data.define("B")});
        Copy({in: some[2], out: Data.define("C")});
        if (Data.get("Train") === undefined || Data.get(/^Unlab\/[12]\d?\.csv$/g).length !== 22) throw 1;
    "#;
    let workflow = run(source).unwrap_or_else(|problem| panic!("{problem}"));
    let path = |name: &str, at: usize| match &workflow.elements.iter().find(|e| e.name == name).expect(name).source {
        flow::Source::Input(paths) => paths[at].to_string(),
        flow::Source::Defined => panic!("{name} is an input"),
    };
    assert_eq!(path("Train", 0), "Train.csv");
    assert_eq!(path("Unlab", 10), "Unlab/10.csv");
    assert_eq!(path(r"/^Unlab\/[12]\d?\.csv$/g", 2), "Unlab/10.csv");
    let text = flow::to_json(&workflow);
    assert_eq!(flow::from_json(&text, "x"), Ok(workflow));
}

#[test]
fn configs_keep_their_types() {
    let source = r#"
        var A = Data.get("Train");
        C45({dataset: A, model: Data.define("M"), depth: 8, verbose: true});
        C45({dataset: A, model: Data.define("N"), depth: -0});
    "#;
    let expected = ["C45(dataset=Train,model=M,depth=8,verbose=true)", "C45(dataset=Train,model=N,depth=0)"];
    assert_eq!(called(source), expected);
}

#[test]
fn a_caught_refusal_does_not_end_the_script() {
    let source = r#"
        let train;
        try { train = Data.get("Nothing"); } catch (error) { train = Data.get("Train"); }
        try { Copy({in: train}); } catch (error) {}
        Copy({in: train, out: Data.define("A")});
    "#;
    assert_eq!(called(source), ["Copy(in=Train,out=A)"]);
}

#[test]
fn a_script_gives_the_same_workflow_each_time() {
    let source = r#"
        var n = 1 + Math.floor(Math.random() * 1000000);
        var A = Data.define("A" + n, 3);
        Copy({in: A[Math.floor(Math.random() * 3)], out: Data.define("B" + Math.random())});
    "#;
    assert_eq!(run(source), run(source));
}

#[test]
fn tasks_know_the_lines_of_their_calls() {
    let source = "var A = Data.define('A', 3);\n\nCopy({\n  in: A[0],\n  out: A[1]\n});\n\
                  function copy(i, o) {\n  Copy({in: i, out: o});\n}\ncopy(A[1],\n  A[2]);\n";
    let workflow = run(source).unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(workflow.tasks.iter().map(|task| task.line).collect::<Vec<_>>(), [3, 8]);
}

#[test]
fn what_async_functions_leave_for_later_is_done() {
    let source = "async function f(i, o) {\n  await null;\n  Copy({in: i, out: o});\n}\n\
                  f(Data.get('Train'), Data.define('A'));\n";
    assert_eq!(called(source), ["Copy(in=Train,out=A)"]);
}

#[test]
fn printed_lines_go_to_the_log() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let log: Box<dyn Fn(&str) + Send> = Box::new(move |line| sender.send(line.to_owned()).expect("is received"));
    let inputs = js4cloud::Inputs { log: Some(log), ..super::inputs() };
    super::run_with("print(1, 'a', [2]); console.log(Data.define('A', 2))", inputs).expect("runs");
    assert_eq!(receiver.iter().collect::<Vec<_>>(), ["1 a 2", "A[0],A[1]"]);
}
